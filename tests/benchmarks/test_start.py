"""How long peers take to start, told from what they write; no timing is asserted."""

import sys
from pathlib import Path

import pytest

from rumor.benchmarks.swarm.start import measure_start

from .checked import checked

__all__: list[str] = []

# Writes what a launch does, for one peer fewer than it is asked for where it is told so.
LAUNCH = """
import json, pathlib, sys, time
fewer, told = int(sys.argv[1]), dict(zip(sys.argv[2::2], sys.argv[3::2]))
assert told["--task"] == "digits"
for i in range(int(told["--peers"]) - fewer):
    folder = pathlib.Path(told["--out"], "peers", f"peer-{i}")
    folder.mkdir(parents=True)
    row = json.dumps({"step": 1, "unix_s": time.time()})
    (folder / "metrics.jsonl").write_text(f"{row}\\n{row}\\n")
sys.exit("there is no room" if fewer < 0 else 0)
"""


def launching(folder: Path, fewer: int) -> tuple[str, ...]:
    script = folder / "launch.py"
    script.write_text(LAUNCH)
    return sys.executable, str(script), str(fewer)


@pytest.mark.extended
def test_first_steps_are_read_from_what_peers_wrote(tmp_path: Path) -> None:
    result = checked(measure_start((1, 3), 1, launching(tmp_path, 0)))
    assert [row.name for row in result.rows] == ["1 peer", "3 peers"]
    assert all(row.note.startswith("import torch") for row in result.rows)


@pytest.mark.parametrize(("fewer", "why"), [(1, "1 of 2 peers took a step"), (-1, "no room")])
def test_a_launch_that_does_not_start_all_of_them_is_no_figure(
    tmp_path: Path, fewer: int, why: str
) -> None:
    with pytest.raises(RuntimeError, match=why):
        measure_start((2,), 1, launching(tmp_path, fewer))


@pytest.mark.slow
@pytest.mark.live
def test_a_real_launch_is_measured() -> None:
    checked(measure_start((1,), 1))
