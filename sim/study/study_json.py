"""A study in a file of its folder: itself, and under which names its cells are kept."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ...gossip.errors import ConfigError
from ...train.durable import write_json
from ..faults import Fault, as_json
from .condition import Condition
from .study import Axis, Point, Study

__all__ = ["STUDY", "holds_study", "read_folder", "write_folder"]

STUDY: Final = "study.json"

_FORMAT: Final = 1


def holds_study(folder: Path) -> bool:
    """Whether a folder is one of a study."""
    return (folder / STUDY).exists()


def write_folder(folder: Path, study: Study, keys: Sequence[str], failures: Any = None) -> None:
    """Write down what a folder is about.

    Args:
        folder: Of the study.
        study: What it asks for.
        keys: Names of its cells in the order of `Study.cells`.
        failures: Cells that failed, by name, and why.

    Raises:
        OSError: It cannot be written; what was there still is.
    """
    told = {
        "format": _FORMAT,
        "study": _as_json(study),
        "cells": list(keys),
        "failures": dict(failures or {}),
    }
    write_json(folder / STUDY, told)


def read_folder(folder: Path) -> tuple[Study, tuple[str, ...], dict[str, str]]:
    """Read what a folder is about.

    Returns:
        The study, names of its cells in order, and cells that failed, by name, and why.

    Raises:
        ConfigError: It is no folder of a study, or what it says cannot be read.
    """
    path = folder / STUDY
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{folder} is not the folder of a study: it has no {STUDY}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    try:
        if told["format"] != _FORMAT:
            raise ConfigError(f"{path} was written by another version of this project")
        study = _study(told["study"])
        return study, tuple(told["cells"]), dict(told["failures"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is not what a study writes: {error!r}") from error


def _as_json(study: Study) -> dict[str, Any]:
    return {
        "name": study.name,
        "title": study.title,
        "question": study.question,
        "settings": _plain(study.settings),
        "axes": [
            {
                "name": axis.name,
                "points": [
                    {"label": point.label, "settings": _plain(point.settings)}
                    for point in axis.points
                ],
            }
            for axis in study.axes
        ],
        "seeds": list(study.seeds),
        "skip": [dict(condition.wanted) for condition in study.skip],
        "target": study.target,
    }


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without objects, which only programs give."""
    found = {name: str(v) if isinstance(v, Path) else v for name, v in settings.items()}
    faults = found.get("faults")
    if isinstance(faults, Sequence) and not isinstance(faults, str):
        found["faults"] = [as_json([f])[0] if isinstance(f, Fault) else f for f in faults]
    return found


def _study(told: Mapping[str, Any]) -> Study:
    axes = tuple(
        Axis(
            axis["name"], tuple(Point(p["label"], _settings(p["settings"])) for p in axis["points"])
        )
        for axis in told["axes"]
    )
    return Study(
        name=told["name"],
        title=told["title"],
        question=told["question"],
        settings=_settings(told["settings"]),
        axes=axes,
        seeds=tuple(told["seeds"]),
        skip=tuple(Condition(wanted) for wanted in told["skip"]),
        target=told["target"],
    )


def _settings(told: Mapping[str, Any]) -> dict[str, Any]:
    """As `read_study` gives them: what JSON has as a list is a tuple."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in told.items()}
