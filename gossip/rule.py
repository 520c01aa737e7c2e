"""What an algorithm is, to the protocol: it says when to push, to whom, and how to combine.

A rule is called at every step boundary with a `Turn`, which it reads and acts on. It never sees a
value and never a socket, so the same rule drives a live peer, a simulated one and a replay.
docs/design.md shows how synchronous, two-sided, register-keeping and tree rules fit.
"""

from typing import Protocol, runtime_checkable

from .effects import Halt, Wait
from .frozen import frozen_keywords
from .turn import Turn

__all__ = ["Demands", "Rule", "demands_of"]


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

    def step(self, turn: Turn) -> Wait | Halt | None:
        """Take one turn.

        Returns:
            None where the optimizer may go on; a `Wait` where shares are missing, in which case
            the rule is called again as soon as something has arrived, with ``turn.trained``
            false; a `Halt` where they will never come.
        """


@frozen_keywords
class Demands:
    """What a rule needs of the protocol beyond the ordinary; it says so by ``rule.demands``."""

    fixed_members: bool = False
    """Whether those who found together stay the only members, so that nobody can join."""
    staged_max: int = 0
    """Shares that must find room at a peer, where that is more than the configuration allows."""


@runtime_checkable
class _Demanding(Protocol):
    @property
    def demands(self) -> Demands: ...


def demands_of(rule: Rule) -> Demands:
    """What *rule* demands; nothing, unless it says so."""
    return rule.demands if isinstance(rule, _Demanding) else Demands()
