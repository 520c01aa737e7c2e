"""What a benchmark found: figures of ours beside a limit, or a plainer way, of the same run."""

from dataclasses import dataclass
from typing import Any

__all__ = ["Result", "Row"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One comparison."""

    name: str
    ours: float
    """Our figure, in `unit`."""
    reference: float
    """The figure that ours is held against, in `unit`."""
    unit: str
    note: str = ""
    """What the reference is where the column does not say, and what else was counted."""

    @property
    def ratio(self) -> float:
        """Ours over the reference; 0 where the reference is 0."""
        return self.ours / self.reference if self.reference else 0.0

    def as_json(self) -> dict[str, Any]:
        """The row under the names of its fields, ``ratio`` among them."""
        return {
            "name": self.name,
            "ours": self.ours,
            "reference": self.reference,
            "ratio": self.ratio,
            "unit": self.unit,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All comparisons of one benchmark."""

    name: str
    title: str
    """One line: what was measured, and which way is better."""
    columns: tuple[str, str, str, str, str, str]
    """Headings of the six fields of a row."""
    rows: tuple[Row, ...]
    machine: str
    """CPU, cores, versions."""
    wall_s: float
    """How long measuring took, seconds."""
    date: str = ""
    """ISO date, set by whoever asked for the measurement."""

    def as_json(self) -> dict[str, Any]:
        """Everything, as plain lists, numbers and texts."""
        return {
            "name": self.name,
            "title": self.title,
            "columns": list(self.columns),
            "rows": [row.as_json() for row in self.rows],
            "machine": self.machine,
            "wall_s": self.wall_s,
            "date": self.date,
        }
