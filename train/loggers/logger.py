"""What a logger is, and what it gets: a run, then one row of metrics after another."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

__all__ = ["SWARM", "LoggedRun", "Logger", "LoggerSpec", "figures", "final_figures", "flat"]

SWARM: Final = "swarm"
"""In the place of a peer's name: the row is about all peers together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRun:
    """The run whose rows a logger gets."""

    name: str
    """What to call it: the run's folder, or, where each peer writes its own rows, the swarm."""

    peer: str | None = None
    """The peer whose rows these are; None where one process writes those of all peers."""

    folder: Path | None = None
    """The run's folder, or the peer's; None where there is none."""

    config: Mapping[str, Any] = field(default_factory=dict)
    """Settings; mappings may be nested."""


@runtime_checkable
class Logger(Protocol):
    """Takes rows of metrics; anything with these methods will do.

    All are called on one background thread. What they raise costs a warning, never a step. Only
    what `open` raises ends the logger.
    """

    def open(self, run: LoggedRun) -> None:
        """Begin a run. Called once, before the other two."""

    def log(self, peer: str, x: int, row: Mapping[str, Any]) -> None:
        """Take one row.

        Args:
            peer: Whose; ``"swarm"`` for one about all peers together.
            x: Optimizer steps that all peers together had taken by then.
            row: As in metrics.jsonl: numbers, None where nothing was measured, a list or two.
        """

    def close(self, summary: Mapping[str, Any]) -> None:
        """End the run, and see that all rows are kept.

        Args:
            summary: What it came to, as JSON has it; empty where it failed.
        """


LoggerSpec = str | Logger
"""``NAME`` or ``NAME:WHERE``, such as ``tensorboard:runs/tb``, or a logger."""

# The clock is the x axis. What a peer's own steps are called, some tools use for their own.
_RENAMED: Final = {"step": "steps"}
_LEFT_OUT: Final = frozenset({"swarm_steps", "unix_s"})


def figures(row: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a row, by name.

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
    """The numbers of a summary, by name, without the settings that it repeats.

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
    """Nested values as one level: strings, booleans and finite numbers. A list becomes one string;
    None, numbers that are not finite and lists of mappings are left out.

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
