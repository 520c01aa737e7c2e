"""Where a replay and its live run part ways."""

from dataclasses import dataclass

__all__ = ["Difference", "Differs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where a replay first differs from the live run."""

    peer: str
    """Whose replay."""
    record: int
    """After which record of its journal, counted from 1; 0 is the head."""
    step: int
    """After how many optimizer steps."""
    what: str
    """What differs, and how."""

    def __str__(self) -> str:
        return f"{self.peer}, record {self.record}, step {self.step}: {self.what}"


class Differs(Exception):
    """A replay is not what the journal says; carries what differs, in words."""
