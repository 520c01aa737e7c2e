"""How far a simulation has come, as it is told while it runs."""

from dataclasses import dataclass

__all__ = ["Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a simulation is now."""

    steps: int
    """Optimizer steps that all workers together have taken."""

    steps_total: int | None
    """How many it will be; None where virtual time ends the run."""

    time_s: float
    """Virtual time, seconds."""

    wall_s: float
    """Time since the start on a clock on the wall, seconds."""

    loss: float | None
    """Of the merged model at the last measurement; None before it, or where there is none."""

    accuracy: float | None
    """Likewise."""
