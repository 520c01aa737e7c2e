"""Evidence, in each run, that the fast path emits what the protocols emit."""

from dataclasses import replace

from ..fleet import Fleet
from ..plan import FleetPlan
from ..program import Level
from .compiler import Decider
from .fleet import FastFleet, TakeOver
from .levels import ColumnLevel, levels_of

__all__ = ["OtherProgramError", "prove"]

STEPS_PROVEN = 2_000
"""Optimizer steps of all workers that are decided both ways, at most."""


class OtherProgramError(AssertionError):
    """The fast path has decided otherwise than the protocols: a defect of this program."""


def prove(plan: FleetPlan, decider: Decider, until_s: float, steps_max: int) -> None:
    """Decide the first window both ways, and compare them operation by operation.

    Args:
        plan: What the fleet is made of.
        decider: What runs the fast path.
        until_s: Where that window ends at the latest, virtual seconds.
        steps_max: After how many steps at the latest.

    Raises:
        OtherProgramError: They differ; says in what.
    """
    fast, slow = FastFleet(plan, decider), Fleet(plan)
    steps_max = min(steps_max, STEPS_PROVEN)
    try:
        came = fast.run(until_s, steps_max)
    except TakeOver:
        return
    if slow.run(until_s, steps_max) != came or slow.now != fast.now:
        raise OtherProgramError(f"at {fast.now} s, the protocols are at {slow.now} s")
    for number, (ours, theirs) in enumerate(
        zip(levels_of(fast.take()), slow.program.take(), strict=True)
    ):
        _compare(number, ours, theirs)
    traffic = replace(slow.traffic)
    if fast.traffic != traffic:
        raise OtherProgramError(f"{fast.traffic}, and by the protocols {traffic}")
    if fast.audit() != slow.audit():
        raise OtherProgramError(f"{fast.audit()}, and by the protocols {slow.audit()}")


def _compare(number: int, ours: ColumnLevel, theirs: Level) -> None:
    for name in ("workers", "steps", "orders", "operations"):
        for at, (one, other) in enumerate(
            zip(getattr(ours, name), getattr(theirs, name), strict=False)
        ):
            if one != other:
                raise OtherProgramError(
                    f"{name} of level {number} differ at place {at}: {one}, and by the protocols "
                    f"{other}"
                )
        counts = len(getattr(ours, name)), len(getattr(theirs, name))
        if counts[0] != counts[1]:
            raise OtherProgramError(
                f"level {number} has {counts[0]} {name}, and by the protocols {counts[1]}"
            )
