"""What an algorithm is, to the protocol: it says when to push, to whom, and how to combine.

A rule is called at every step boundary with a `Turn`, which it reads and acts on. It never sees a
value and never a socket, so the same rule drives a live peer, a simulated one and a replay.
docs/design.md shows how synchronous, two-sided, register-keeping and tree rules fit.
"""

from typing import Protocol, runtime_checkable

from .effects import Wait
from .turn import Turn

__all__ = ["Rule"]


@runtime_checkable
class Rule(Protocol):
    """One algorithm, for one peer. It may keep state of its own between turns."""

    @property
    def name(self) -> str:
        """What users type."""

    @property
    def registers(self) -> tuple[str, ...]:
        """Vectors it keeps beside ``x``, each as large as the model, all zeros at first."""

    @property
    def outstanding_max(self) -> int:
        """Shares that may be outstanding at once, over all neighbors."""

    def step(self, turn: Turn) -> Wait | None:
        """Take one turn.

        Returns:
            None where the optimizer may go on; a `Wait` where shares are missing, in which case
            the rule is called again as soon as something has arrived, with ``turn.trained``
            false.
        """
