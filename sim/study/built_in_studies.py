"""Studies that come with this project, by name, and study files, by path."""

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from ...gossip.errors import ConfigError
from .study import Study
from .study_file import read_study

__all__ = ["built_in_path", "built_in_studies", "find_study", "time_told"]

_FOLDER: Final = Path(__file__).parent / "built_in"

_TIME: Final = re.compile(r"^#.*?\b(\d[\d.]* (?:s|min|h) on \d+ cores?)", re.MULTILINE)


def built_in_studies() -> tuple[Study, ...]:
    """All of them, by name."""
    return tuple(read_study(path) for path in sorted(_FOLDER.glob("*.toml")))


def find_study(text: str) -> Study:
    """Find a study by what a user typed.

    Args:
        text: A name of `built_in_studies`, or the path of a file that ends in ``.toml``.

    Raises:
        ConfigError: There is no such study, or it cannot be read.
    """
    return read_study(Path(text) if text.endswith(".toml") else built_in_path(text))


def built_in_path(name: str) -> Path:
    """Find the file of a study that comes with this project.

    Raises:
        ConfigError: There is none of that name.
    """
    path = _FOLDER / f"{name}.toml"
    names = sorted(path.stem for path in _FOLDER.glob("*.toml"))
    if name not in names:
        close = get_close_matches(name, names, n=1)
        hint = f", did you mean {close[0]!r}?" if close else "."
        raise ConfigError(
            f"unknown study {name!r}{hint} It must be {', '.join(names)}, or a file that ends in "
            ".toml"
        )
    return path


def time_told(name: str) -> str:
    """How long a study's file says that it takes, as in ``# About 12 min on 2 cores.``

    Returns:
        Such as ``12 min on 2 cores``; nothing where it does not say so.
    """
    found = _TIME.search(built_in_path(name).read_text(encoding="utf-8"))
    return "" if found is None else found[1]
