"""The command that repeats a cell."""

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..study import Cell

__all__ = ["command"]


def command(cell: Cell) -> str:
    """What to type to run one cell by itself, in a shell.

    Files that the study names are named as it names them: from its own folder on.

    >>> command(Cell(labels={}, settings={"topology": "ring", "step_s": 0.5, "seed": 3}))
    'rumor simulate --topology ring --step-s 0.5 --seed 3'
    """
    words = [word for name, value in cell.settings.items() for word in _option(name, value)]
    return shlex.join(["rumor", "simulate", *words])


def _option(name: str, value: Any) -> Iterator[str]:
    flag = f"--{name.replace('_', '-')}"
    if value is None or value is False or value == ():
        return
    if value is True:
        yield flag
    elif name == "faults" and not isinstance(value, str | Path):
        yield from (flag, json.dumps(list(value), default=_plain))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _given(flag, str(one))
    else:
        yield from _given(flag, str(value))


def _given(flag: str, text: str) -> Iterator[str]:
    # An argument that looks like an option must hang on to its own.
    yield from (f"{flag}={text}",) if text.startswith("-") else (flag, text)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)
