"""Runs scenes at full size: ``python -m tests.live.measure [PART OF A NAME ...]``.

Run it from the repository's root, with OMP_NUM_THREADS=1 and nothing else running.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import machine

from .scenes import (
    Outcome,
    dial_out_only,
    half_killed,
    one_way_cut,
    receiver_killed,
    resets,
    slow_link,
    stopped,
)

__all__ = ["SCENES"]

_LARGE = 256_000_000
_SMALL = 4_000_000

SCENES: dict[str, Callable[[Path], Outcome]] = {
    "receiver killed in the middle of 256 MB": lambda f: receiver_killed(f, _LARGE, 0.5),
    "resets every 200 ms, 256 MB": lambda f: resets(f, _LARGE, 0.5, for_s=30),
    "resets every 200 ms, 256 MB in 32 shards": lambda f: resets(
        f, _LARGE, 0.5, for_s=30, shards=32
    ),
    "stopped for 60 s": lambda f: stopped(f, _SMALL, 0.05, for_s=60),
    "256 MB over 4 MB/s": lambda f: slow_link(f, _LARGE, 0.5, link_bytes_s=4e6),
    "one-way cut of 30 s": lambda f: one_way_cut(f, _SMALL, 0.05, for_s=30),
    "three peers that only dial out": lambda f: dial_out_only(f, _SMALL, 0.05, pushes=50),
    "half of 16 killed": lambda f: half_killed(f, _SMALL, 0.25),
}
"""Scenes by title; a part of a title selects a scene."""


def main(names: list[str]) -> None:
    """Run the chosen scenes, or all."""
    for title, scene in SCENES.items():
        if names and not any(name in title for name in names):
            continue
        folder = Path(tempfile.mkdtemp(prefix="rumor-scene-"))
        start_s = time.monotonic()
        try:
            print(f"{title}: {scene(folder)} ({time.monotonic() - start_s:.0f} s)", flush=True)
        finally:
            shutil.rmtree(folder)
    print(machine())


if __name__ == "__main__":
    main(sys.argv[1:])
