"""Third-party packages that a benchmark compares with: installed once, run in separate processes.

A rival must use the same torch and numpy as we do, or builds would be compared. So its process runs
our interpreter, which finds our packages, after a folder with the rival's packages; none of these
is visible to us.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

__all__ = ["DECENT", "GOSSIPY", "HIVEMIND", "Rival", "RivalError", "measure"]

_log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 600


class RivalError(Exception):
    """A rival could not be installed, or failed; our code did not."""


@dataclass(frozen=True, slots=True)
class Rival:
    """A third-party package."""

    name: str
    version: str
    also: tuple[str, ...] = ()
    """Its imports that we do not have, each with its version."""


GOSSIPY: Final = Rival("gossipy-dfl", "0.0.1", ("dill==0.4.1", "pandas==3.1.1"))
"""A simulator of gossip learning."""

DECENT: Final = Rival("decent-dp", "0.2.3", ("loguru==0.7.3",))
"""Decentralized data parallel training over torch.distributed."""

HIVEMIND: Final = Rival(
    "hivemind",
    "1.1.12",
    (
        *("annotated-types==0.8.0", "base58==2.1.1", "blake3==1.0.11", "cffi==2.1.1"),
        *("ConfigArgParse==1.9.0", "cryptography==50.0.2", "grpcio==1.85.1"),
        *("grpcio-tools==1.85.1", "idna==3.20", "mmh3==5.3.1", "morphys==1.0", "netaddr==1.3.0"),
        *("prefetch_generator==1.0.3", "protobuf==7.36.2", "py-cid==0.5.0"),
        *("py-multibase==2.0.0", "py-multicodec==1.0.0", "py-multihash==3.0.0", "pycparser==3.12"),
        *("pydantic==2.14.3", "pydantic_core==2.50.4", "python-baseconv==1.2.2", "PyYAML==6.0.3"),
        *("six==1.17.0", "sortedcontainers==2.4.0", "typing-inspection==0.4.5"),
        *("uvloop==0.23.0", "varint==1.0.2"),
    ),
)
"""Averages with peers found in a distributed hash table; its wheel contains a daemon."""


def measure(
    rival: Rival, script: str, asked: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Run a script next to *rival*, which is installed first if necessary.

    Args:
        rival: Its packages are importable by the script, besides ours.
        script: A module of this folder, which prints one JSON object on its last line: the result.
        asked: The script's only argument, as JSON.
        environment: Variables to set for its process.

    Raises:
        RivalError: It could not be installed, or the script failed; one line says why.
    """
    paths = [str(_installed(rival)), *filter(None, [os.environ.get("PYTHONPATH")])]
    # -P keeps the script's folder out of the import path.
    out = _run(
        [sys.executable, "-P", str(Path(__file__).with_name(f"{script}.py")), json.dumps(asked)],
        {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)},
    )
    return dict(json.loads(_last_line(out)))


def _installed(rival: Rival) -> Path:
    """Return a folder with *rival*, for the import path; needs the network the first time only."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "rumor" / "rivals"
    # Compiled parts fit one Python version only.
    folder = cache / f"{rival.name}-{rival.version}-{sys.implementation.cache_tag}"
    if folder.is_dir():
        return folder
    _log.info("installing %s %s into %s, once", rival.name, rival.version, folder)
    cache.mkdir(parents=True, exist_ok=True)
    # Moved there when complete: a folder that exists is complete.
    with TemporaryDirectory(dir=cache) as scratch:
        fresh = Path(scratch) / "packages"
        # --no-deps: torch, numpy and the like are ours.
        options = ["--no-deps", "--quiet", "--disable-pip-version-check", "--target", str(fresh)]
        packages = [f"{rival.name}=={rival.version}", *rival.also]
        _run([sys.executable, "-m", "pip", "install", *options, *packages], os.environ)
        fresh.rename(folder)
    return folder


def _run(command: list[str], environment: Mapping[str, str]) -> str:
    """Return its output."""
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise RivalError(f"it took more than {_TIMEOUT_S} s") from error
    if done.returncode:
        # Negative: the signal that ended it, without any last output.
        why = _last_line(done.stderr) or "no reason given"
        raise RivalError(f"{Path(command[2]).stem} ended with status {done.returncode}: {why}")
    return done.stdout


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1].strip()
