"""Loggers by name, and their interface: a run, and then its rows of metrics, one by one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from numbers import Real
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from ...gossip.errors import ConfigError, did_you_mean, how_to_install

__all__ = [
    *("LOGGERS", "SWARM", "LoggedRun", "Logger", "LoggerSpec", "check_loggers", "figures"),
    *("final_figures", "flat", "make_loggers"),
]

SWARM: Final = "swarm"
"""Stands for a peer's name in rows about all peers together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRun:
    """The run whose rows a logger gets."""

    name: str
    """Name of the run: its folder's, or the swarm's if each peer writes its own rows."""

    peer: str | None = None
    """The peer whose rows these are; None if one process writes the rows of all peers."""

    folder: Path | None = None
    """The run's folder, or the peer's; None without one."""

    config: Mapping[str, Any] = field(default_factory=dict)
    """Settings; mappings may be nested."""


@runtime_checkable
class Logger(Protocol):
    """Receives rows of metrics; any object with these methods works.

    All are called on one background thread. An exception costs a warning, never a step; only one
    in `open` disables the logger.
    """

    def open(self, run: LoggedRun) -> None:
        """Begin a run. Called once, before the other methods."""

    def log(self, peer: str, x: int, row: Mapping[str, Any]) -> None:
        """Take one row.

        Args:
            peer: The peer that the row is about; ``"swarm"`` for all peers together.
            x: Optimizer steps of all peers together until then.
            row: As in metrics.jsonl: numbers, None if nothing was measured, a few lists.
        """

    def close(self, summary: Mapping[str, Any]) -> None:
        """End the run and write all rows; *summary* are its results, empty if it failed."""


LoggerSpec = str | Logger
"""``NAME`` or ``NAME:WHERE``, such as ``tensorboard:runs/tb``, or a logger."""

LOGGERS: Final = {
    "tensorboard": "TensorBoardLogger",
    "trackio": "TrackioLogger",
    "wandb": "WandbLogger",
    "mlflow": "MlflowLogger",
}
"""Classes by the name of their module, their extra, and the package that the extra installs."""


def check_loggers(specs: Sequence[LoggerSpec]) -> None:
    """Raise ConfigError unless loggers can be made, without importing their packages."""
    if isinstance(specs, str):
        raise ConfigError(f'loggers is {specs!r}: it must be a tuple, as in ("{specs}",)')
    for spec in specs:
        if not isinstance(spec, str):
            if isinstance(spec, type) or not isinstance(spec, Logger):
                raise ConfigError(
                    f"a logger is {spec!r}: it must be a name, or an object with the methods open, "
                    "log and close"
                )
            continue
        name, colon, where = spec.partition(":")
        if name not in LOGGERS:
            hint = did_you_mean(name, LOGGERS, f": known are {', '.join(LOGGERS)}")
            raise ConfigError(f"there is no logger {name!r}{hint}")
        if colon and not where.strip():
            raise ConfigError(f"logger {spec!r} says no place behind its colon: leave it out")
        if find_spec(name) is None:
            raise ConfigError(
                f"logger {name} needs a package that is not installed: {how_to_install(name)}"
            )


def make_loggers(specs: Sequence[LoggerSpec]) -> list[tuple[str, Logger]]:
    """Make loggers, not yet opened, each with its name for warnings; see `check_loggers`."""
    check_loggers(specs)
    found: list[tuple[str, Logger]] = []
    for spec in specs:
        if isinstance(spec, str):
            name, _, where = spec.partition(":")
            module = import_module(f".{name}", __package__)
            found.append((name, getattr(module, LOGGERS[name])(where.strip() or None)))
        else:
            found.append((type(spec).__name__, spec))
    return found


# The x axis already carries the clock. Some tools reserve the name "step" for themselves.
_RENAMED: Final = {"step": "steps"}
_LEFT_OUT: Final = frozenset({"swarm_steps", "unix_s"})


def figures(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a row, by name.

    >>> figures({"step": 3, "swarm_steps": 12, "loss": 0.5, "accuracy": None, "sketch": [1.0]})
    {'steps': 3.0, 'loss': 0.5}
    """
    return {
        _RENAMED.get(name, name): float(value)
        for name, value in row.items()
        if name not in _LEFT_OUT and _is_number(value)
    }


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def final_figures(summary: Mapping[str, Any], run: LoggedRun) -> dict[str, float]:
    """Return the numbers of a summary, by name, without the settings that it repeats.

    >>> final_figures({"seed": 0, "loss": 0.5}, LoggedRun(name="first", config={"seed": 0}))
    {'final/loss': 0.5}
    """
    settings = flat(run.config)
    return {
        f"final/{name}": float(value)
        for name, value in flat(summary).items()
        if name not in settings and _is_number(value)
    }


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str | bool | int | float]:
    """Flatten nested values to one level of strings, booleans and finite numbers.

    >>> flat({"seed": 0, "exchange": {"wire": "int8"}, "slow": ["3:10"], "p": None})
    {'seed': 0, 'exchange.wire': 'int8', 'slow': '3:10'}
    """
    found: dict[str, str | bool | int | float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            if value and not any(isinstance(each, Mapping) for each in value):
                found[prefix + name] = " ".join(map(str, value))
        elif isinstance(value, float) and not math.isfinite(value):
            continue
        elif value is not None:
            found[prefix + name] = (
                value if isinstance(value, str | bool | int | float) else str(value)
            )
    return found
