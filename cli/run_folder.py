"""Checks of output files, and names for the folder of a run."""

import re
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from ..gossip.errors import ConfigError

__all__ = ["check_output", "new_folders"]


def check_output(path: Path, *, force: bool = True) -> None:
    """Check that a file can be written there, before anything takes long."""
    if path.exists() and not force:
        raise ConfigError(f"{path} is there already: give --force to overwrite it")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ConfigError(f"{path} cannot be written: name a file in a folder that exists")


def new_folders(task: str, kind: str = "") -> Iterator[Path]:
    """Yield names for the folder of a run without one, the best one first; *kind* is a prefix."""
    name = re.sub(r"[^\w.-]+", "-", task)
    stem = Path("runs") / f"{kind}{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in count(1):
        yield stem if number == 1 else stem.with_name(f"{stem.name}-{number}")
