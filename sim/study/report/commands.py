"""What a study asked for, and the command that repeats each trial."""

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..study import Point, Study, Trial

__all__ = ["asked", "command"]


def command(trial: Trial) -> str:
    """What to type to run one trial by itself, in a shell.

    Files that the study names are named as it names them: from its own folder on.

    >>> command(Trial(labels={}, settings={"topology": "ring", "step_s": 0.5, "seed": 3}))
    'rumor simulate --set topology=ring --set step_s=0.5 --set seed=3'
    """
    words = [word for name, value in trial.settings.items() for word in _option(name, value)]
    return shlex.join(["rumor", "simulate", *words])


def asked(study: Study) -> Iterator[tuple[str, str]]:
    """Every argument of a study, by name, in words."""
    for name, value in study.settings.items():
        yield name, _text(value)
    for axis in study.axes:
        yield f"{axis.name} (varied)", ", ".join(_point(axis.name, one) for one in axis.points)
    for condition in study.skip:
        wanted = condition.wanted.items()
        yield "left out", " and ".join(f"{name} = {_text(value)}" for name, value in wanted)
    yield "seeds", ", ".join(map(str, study.seeds))
    yield f"target {study.goal}", f"{study.target:g}"


def _point(axis: str, point: Point) -> str:
    if list(point.settings) == [axis]:
        return point.label
    given = ", ".join(f"{name} = {_text(value)}" for name, value in point.settings.items())
    return f"{point.label} ({given or 'nothing set'})"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=_plain)


def _option(name: str, value: Any) -> Iterator[str]:
    if value is None or value == ():
        return
    if name == "faults" and not isinstance(value, str | Path):
        value = json.dumps(list(value), default=_plain)
    for one in value if isinstance(value, list | tuple) else (value,):
        text = str(one).lower() if isinstance(one, bool) else str(one)
        yield from ("--set", f"{name}={text}")


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)
