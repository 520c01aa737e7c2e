"""Study files: TOML, checked key by key, and the studies that come with this project."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from ...gossip.errors import ConfigError, did_you_mean
from ...train.storage.files import read_bytes
from ..calibration import read_calibration
from ..config import SimulationConfig
from ..models.tables import check_keys
from .metrics import METRICS
from .study import Axis, Condition, Point, Study, with_tuples

__all__ = [
    "RUNNER_SETTINGS",
    "SETTINGS",
    "built_in_studies",
    "find_study",
    "read_study",
    "study_path",
    "time_told",
]

RUNNER_SETTINGS: Final = ("threads", "window", "memory_gib")
"""Settings that do not change any bit of a result."""

SETTINGS: Final = tuple(
    field.name
    for field in fields(SimulationConfig)
    # Seeds have a key of their own.
    if field.name not in (*RUNNER_SETTINGS, "seed")
)
"""Arguments of `rumor.sim.simulate` that a study may set or vary."""

_KEYS: Final = (
    *("title", "question", "from", "seeds", "target", "metrics", "tune", "reference", "source"),
    *("settings", "grid", "skip"),
)
_SEEDS: Final = 3
_SEEDS_MAX: Final = 10_000


def read_study(path: Path) -> Study:
    """Read a study from a TOML file, whose name without the suffix is the study's.

    Raises:
        ConfigError: It cannot be read, or is malformed; the message names the key.
    """
    try:
        content = tomllib.loads(read_bytes(path).decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    try:
        return _study(path.stem, content)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _study(name: str, content: Mapping[str, Any]) -> Study:
    if outside := [key for key in content if key in SETTINGS and key not in _KEYS]:
        raise ConfigError(f"{outside[0]} must be in [settings], or in [grid] with several values")
    check_keys(content, _KEYS, "")
    settings = _given(content, "settings", {}, "a table, [settings]")
    check_keys(settings, SETTINGS, "settings")
    grid = _given(content, "grid", {}, "a table, [grid]")
    axes = tuple(_axis(axis, values) for axis, values in grid.items())
    if path := _given(content, "from", "", "the file of a calibration"):
        settings = _measured(path, settings, axes)
    return Study(
        name=name,
        title=_given(content, "title", name, "a string").strip(),
        question=_given(content, "question", "", "a string").strip(),
        settings=with_tuples(settings),
        axes=axes,
        seeds=_seeds(content.get("seeds", _SEEDS)),
        skip=tuple(_conditions(content.get("skip", []), [axis.name for axis in axes])),
        target=float(_given(content, "target", 0.9, "a number")),
        metrics=tuple(_metrics(content.get("metrics", []))),
        tune=_given(content, "tune", "", "the name of an axis"),
        reference=_given(content, "reference", "", "the name of a point").strip(),
        source=_given(content, "source", "", "a string").strip(),
    )


def _measured(path: str, settings: Mapping[str, Any], axes: Iterable[Axis]) -> dict[str, Any]:
    """Add the settings of a calibration that neither the study's own nor its axes replace."""
    varied = {name for axis in axes for point in axis.points for name in point.settings}
    if "workers" in varied:
        raise ConfigError(f"grid varies workers, whose paces {path} says: leave one of them out")
    measured = read_calibration(path).simulation_with({**settings, **dict.fromkeys(varied)})
    return {name: value for name, value in measured.items() if name in {*SETTINGS} - varied}


def _axis(name: str, values: object) -> Axis:
    where = f"grid.{name}"
    if not isinstance(values, list):
        raise ConfigError(f"{where} is {_shown(values)}: it must be a list")
    are_tables = [isinstance(value, dict) for value in values]
    # A list of faults is a list of tables, too, in which none has a name.
    are_points = all(are_tables) and all("name" in value for value in values)
    if any(are_tables) and (are_points or name not in SETTINGS):
        return Axis(name, tuple(_point(where, value) for value in values))
    check_keys({name: values}, SETTINGS, "grid")
    labels = (value if isinstance(value, str) else _shown(value) for value in values)
    points = (Point(n, with_tuples({name: v})) for n, v in zip(labels, values, strict=True))
    return Axis(name, tuple(points))


def _point(where: str, table: object) -> Point:
    label = table.get("name") if isinstance(table, dict) else None
    if not isinstance(table, dict) or not isinstance(label, str) or not label.strip():
        raise ConfigError(f"{where} has {_shown(table)}: each point needs a name")
    settings = {key: value for key, value in table.items() if key != "name"}
    check_keys(settings, SETTINGS, f"{where}, {label}")
    return Point(" ".join(label.split()), with_tuples(settings))


def _metrics(names: object) -> Iterable[str]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"metrics is {_shown(names)}: it must be a list of names")
    check_keys(names, tuple(METRICS), "metrics")
    return names


def _conditions(tables: object, axes: Iterable[str]) -> Iterable[Condition]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError("skip must be tables: [[skip]]")
    for table in tables:
        if not table:
            raise ConfigError("a [[skip]] is empty: it would leave out every trial")
        check_keys(table, (*SETTINGS, *axes), "skip")
        yield table


def _seeds(given: object) -> tuple[int, ...]:
    if isinstance(given, list) and all(type(seed) is int and seed >= 0 for seed in given):
        return tuple(given)
    if type(given) is int and 0 < given <= _SEEDS_MAX:
        return tuple(range(given))
    raise ConfigError(
        f"seeds is {_shown(given)}: it must be their number, up to {_SEEDS_MAX:,}, or a list of "
        "them, such as [0, 1, 2]"
    )


def _given(content: Mapping[str, Any], key: str, default: Any, form: str) -> Any:
    """Return a value of the same type as the default, or an integer for a float."""
    found = content.get(key, default)
    kinds = (int, float) if isinstance(default, float) else (type(default),)
    if type(found) not in kinds:
        raise ConfigError(f"{key} is {_shown(found)}: it must be {form}")
    return found


def _shown(value: object) -> str:
    return json.dumps(value, default=str)


_FOLDER: Final = Path(__file__).parent / "built_in"

_TIME: Final = re.compile(r"^#.*?\b(\d[\d.]* (?:s|min|h) on \d+ cores?)", re.MULTILINE)


def built_in_studies() -> tuple[Study, ...]:
    """Return all built-in studies, by name."""
    return tuple(read_study(path) for path in sorted(_FOLDER.glob("*.toml")))


def find_study(text: str) -> Study:
    """Read a built-in study, or a file that ends in ``.toml``.

    Raises:
        ConfigError: The study is unknown, or cannot be read.
    """
    return read_study(study_path(text))


def study_path(text: str) -> Path:
    """Return the file of a built-in study, or *text* itself if it ends in ``.toml``.

    Raises:
        ConfigError: The study is unknown.
    """
    if text.endswith(".toml"):
        return Path(text)
    names = sorted(path.stem for path in _FOLDER.glob("*.toml"))
    if text not in names:
        hint = did_you_mean(text, names)
        raise ConfigError(
            f"unknown study {text!r}{hint} It must be {', '.join(names)}, or a file that ends in "
            ".toml"
        )
    return _FOLDER / f"{text}.toml"


def time_told(name: str) -> str:
    """Return the time that a study's file states, as in ``# About 12 min on 2 cores.``"""
    found = _TIME.search(study_path(name).read_text(encoding="utf-8"))
    return "" if found is None else found[1]
