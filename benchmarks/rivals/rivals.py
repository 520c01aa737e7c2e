"""Other people's packages that a benchmark compares with: installed once, run in processes apart.

A rival must use the very torch and numpy that we use, or builds would be compared. So its process
runs our interpreter, which finds our packages, and a folder of packages of its own before them;
nothing that it brings is ever seen by us.
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
from typing import Any

from ...gossip.errors import RumorError

__all__ = [
    *("DECENT", "GOSSIPY", "HIVEMIND", "TORCHFT", "Rival", "RivalError"),
    *("install", "measure", "place"),
]

_log = logging.getLogger("rumor.benchmarks")

_INSTALL_S_MAX = 600
_MEASURE_S_MAX = 600


class RivalError(RumorError):
    """A rival could not be installed, or failed; nothing of ours did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A package of somebody else."""

    name: str
    """As the package index knows it."""

    version: str
    """The one that is measured."""

    also: tuple[str, ...] = ()
    """What it imports and we do not bring, each with its version."""


GOSSIPY = Rival(name="gossipy-dfl", version="0.0.1", also=("dill==0.4.1", "pandas==3.1.1"))
"""A simulator of gossip learning; with it, what it declares and loads besides what we have."""

DECENT = Rival(name="decent-dp", version="0.2.3", also=("loguru==0.7.3",))
"""Decentralized data parallel training over torch.distributed."""

HIVEMIND = Rival(
    name="hivemind",
    version="1.1.12",
    also=(
        "annotated-types==0.8.0",
        "base58==2.1.1",
        "blake3==1.0.11",
        "cffi==2.1.1",
        "ConfigArgParse==1.9.0",
        "cryptography==50.0.2",
        "grpcio==1.85.1",
        "grpcio-tools==1.85.1",
        "idna==3.20",
        "mmh3==5.3.1",
        "morphys==1.0",
        "netaddr==1.3.0",
        "prefetch_generator==1.0.3",
        "protobuf==7.36.2",
        "py-cid==0.5.0",
        "py-multibase==2.0.0",
        "py-multicodec==1.0.0",
        "py-multihash==3.0.0",
        "pycparser==3.12",
        "pydantic==2.14.3",
        "pydantic_core==2.50.4",
        "python-baseconv==1.2.2",
        "PyYAML==6.0.3",
        "six==1.17.0",
        "sortedcontainers==2.4.0",
        "typing-inspection==0.4.5",
        "uvloop==0.23.0",
        "varint==1.0.2",
    ),
)
"""Averages with whoever is found in a distributed hash table; its wheel brings a daemon."""


TORCHFT = Rival(
    name="torchft",
    version="0.2.0",
    also=(
        "certifi==2026.10.19.post1",
        "charset-normalizer==3.5.3",
        "googleapis-common-protos==1.76.0",
        "idna==3.20",
        "opentelemetry-api==1.45.2",
        "opentelemetry-exporter-http-transport==0.66b2",
        "opentelemetry-exporter-otlp-common==0.66b2",
        "opentelemetry-exporter-otlp-proto-common==1.45.2",
        "opentelemetry-exporter-otlp-proto-http==1.45.2",
        "opentelemetry-proto==1.45.2",
        "opentelemetry-sdk==1.45.2",
        "opentelemetry-semantic-conventions==0.66b2",
        "protobuf==7.36.2",
        "requests==2.34.2",
        "urllib3==2.8.0",
    ),
)
"""Fault-tolerant data parallel training, and DiLoCo, with a lighthouse that knows who is there."""


def place(rival: Rival, cache: Path | None = None) -> Path:
    """Where *rival* is, if it is installed.

    Args:
        rival: Which.
        cache: As `install` takes it.

    Returns:
        A folder, which may not exist.
    """
    # Compiled parts are of one Python only.
    python = sys.implementation.cache_tag
    return (cache or _cache()) / f"{rival.name}-{rival.version}-{python}"


def install(rival: Rival, cache: Path | None = None) -> Path:
    """Have *rival* in a folder of its own; needs the network the first time only.

    Args:
        rival: What to install.
        cache: Where to keep such folders; ``rumor/rivals`` in the user's cache unless given.

    Returns:
        The folder, to be put on the path of imports.

    Raises:
        RivalError: It could not be installed; the folder does not exist.
    """
    folder = place(rival, cache)
    if folder.is_dir():
        return folder
    _log.info("installing %s %s into %s, once", rival.name, rival.version, folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Moved there when complete: a folder that exists is whole.
        with TemporaryDirectory(dir=folder.parent) as scratch:
            fresh = Path(scratch) / "packages"
            _pip([f"{rival.name}=={rival.version}", *rival.also], fresh)
            if not folder.is_dir():
                fresh.rename(folder)
    except OSError as error:
        raise RivalError(f"{rival.name} could not be kept in {folder}: {error.strerror}") from error
    return folder


def measure(
    rival: Rival,
    script: str,
    asked: Mapping[str, Any],
    environment: Mapping[str, str],
    cache: Path | None = None,
) -> dict[str, Any]:
    """Run a script beside *rival*, installing it first where need be.

    Args:
        rival: Whose packages the script can import, besides ours.
        script: A file. It takes one argument, JSON, and prints one JSON object on its last line.
        asked: What the argument says.
        environment: Variables to set for its process.
        cache: As `install` takes it.

    Returns:
        What the script printed.

    Raises:
        RivalError: It could not be installed, or the script failed; one line says why.
    """
    paths = [str(install(rival, cache)), *filter(None, [os.environ.get("PYTHONPATH")])]
    # -P: the script's folder, with our modules, must not be searched for imports.
    out = _run(
        [sys.executable, "-P", script, json.dumps(asked)],
        rival.name,
        {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)},
        _MEASURE_S_MAX,
    )
    try:
        found = json.loads(_last_line(out))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise RivalError(f"{rival.name} printed no figures: {_last_line(out)!r}")
    return found


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "rumor" / "rivals"


def _pip(requirements: list[str], folder: Path) -> None:
    # --no-deps: torch, numpy and the like are ours.
    options = ["--no-deps", "--quiet", "--disable-pip-version-check", "--target", str(folder)]
    command = [sys.executable, "-m", "pip", "install", *options, *requirements]
    _run(command, "pip", dict(os.environ), _INSTALL_S_MAX)


def _run(command: list[str], name: str, environment: dict[str, str], s_max: float) -> str:
    """What it printed."""
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=s_max
        )
    except subprocess.TimeoutExpired as error:
        raise RivalError(f"{name} took more than {s_max:g} s") from error
    if done.returncode:
        # Negative: the signal that ended it, which leaves no last words.
        why = _last_line(done.stderr) or "no reason given"
        raise RivalError(f"{name} ended with status {done.returncode}: {why}")
    return done.stdout


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1].strip()
