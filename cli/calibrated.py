"""A simulation that starts from what was measured on real peers."""

import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..sim import SimulationConfig

__all__ = ["start_from"]

# What is measured says nothing any more once another of its kind is typed: all of these end a run,
# how fast workers are is said by speeds or by slow, and the rest belongs to a rule or to a task.
_DISPLACED: Final = {
    "steps": ("total_steps",),
    "total_steps": ("steps",),
    "time_s": ("steps", "total_steps"),
    "speeds": ("slow",),
    "rule": ("p", "emission"),
    "task": ("lr", "batch_size"),
}


def start_from(
    path: Path, config: "SimulationConfig", typed: Collection[str]
) -> "SimulationConfig":
    """Take all that was not typed from a file of `rumor calibrate`.

    Its notes go to stderr.

    Args:
        path: The file.
        config: What was typed, and defaults.
        typed: Names of the options that were typed.

    Raises:
        ConfigError: The file cannot be read, or what it says does not go with what was typed.
    """
    from ..sim.calibration import read_calibration

    found = read_calibration(path)
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    kept = {*typed, *(name for option in typed for name in _DISPLACED.get(option, ()))}
    measured = found.simulation(config.workers if "workers" in typed else None)
    return replace(config, **{name: measured[name] for name in measured if name not in kept})
