"""How a study goes."""

from dataclasses import dataclass

from .study import Cell

__all__ = ["StudyProgress"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyProgress:
    """How far a study has come."""

    cells: int
    """In all."""

    finished: int
    """Before it was started or gone on with."""

    done: int
    """Finished since."""

    failed: int
    """Failed since."""

    wall_s: float
    """Since it was started or gone on with, seconds."""

    left_s: float | None
    """What is left to do, an estimate, seconds; None while that would be a guess."""

    cell: Cell | None = None
    """What was finished or failed last."""

    failure: str | None = None
    """Why that failed; None if it did not."""

    @property
    def to_do(self) -> int:
        """How many cells are still to be computed."""
        return self.cells - self.finished - self.done - self.failed
