"""Who decides, the protocols or the fast path, and evidence that it makes no difference."""

from ....gossip.errors import ConfigError
from ..fleet import Fleet
from ..plan import FleetPlan
from ..program import Level
from .compiler import INTERPRETED, SPECIALIZED, Decider, can_compile, compiled
from .fleet import FastFleet, TakeOver, why_not
from .levels import levels_of

__all__ = [
    "STEPS_PROVEN",
    "OtherProgramError",
    "choose_decider",
    "computes_in_machine_code",
    "prove",
]

# Python takes some 20 us for a step where compiled code takes 2, and loading that takes seconds.
_STEPS_COMPILED_MIN = 200_000

# As it stands the text takes some 30 us, and making it special to a run takes a tenth of a second.
_STEPS_SPECIALIZED_MIN = 20_000

# The same for steps of the optimizer, each of which takes longer than deciding on it.
_STEPS_COMPUTED_MIN = 5_000


def choose_decider(decide: str, plan: FleetPlan, steps: int | None) -> Decider | None:
    """Choose what runs the fast path; None where the protocols decide.

    Args:
        steps: Optimizer steps of all workers, None where that is not known.

    Raises:
        ConfigError: Compiled code was asked for, and numba is missing or the run is of another
            kind.
    """
    if decide == "protocol":
        return None
    why = why_not(plan)
    if decide == "compiled":
        if why:
            raise ConfigError(f"decide compiled cannot take this run: {why}. Take auto")
        if not can_compile():
            raise ConfigError('decide compiled needs numba: pip install "rumor[compiled]"')
    if why:
        return None
    known = steps or 0
    if (decide == "compiled" or known >= _STEPS_COMPILED_MIN) and can_compile():
        return compiled()
    return SPECIALIZED if known >= _STEPS_SPECIALIZED_MIN else INTERPRETED


def computes_in_machine_code(decider: Decider | None, steps: int | None) -> bool:
    """Whether machine code for so many steps, all in all, pays to load; it changes no bit."""
    if decider is not None and decider.is_compiled:
        return True
    return steps is not None and steps >= _STEPS_COMPUTED_MIN and can_compile()


STEPS_PROVEN = 2_000
"""Optimizer steps of all workers that are decided both ways, at most."""


class OtherProgramError(AssertionError):
    """The fast path has decided otherwise than the protocols: a defect of this program."""


def prove(plan: FleetPlan, decider: Decider, until_s: float, steps_max: int) -> None:
    """Decide the first window both ways, and compare them operation by operation.

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
    if fast.traffic != slow.traffic:
        raise OtherProgramError(f"{fast.traffic}, and by the protocols {slow.traffic}")
    if fast.audit() != slow.audit():
        raise OtherProgramError(f"{fast.audit()}, and by the protocols {slow.audit()}")


def _compare(number: int, ours: Level, theirs: Level) -> None:
    for name in ("workers", "steps", "orders", "operations"):
        left, right = getattr(ours, name), getattr(theirs, name)
        for at, (one, other) in enumerate(zip(left, right, strict=False)):
            if one != other:
                raise OtherProgramError(
                    f"{name} of level {number} differ at place {at}: {one}, and by the protocols "
                    f"{other}"
                )
        if len(left) != len(right):
            raise OtherProgramError(
                f"level {number} has {len(left)} {name}, and by the protocols {len(right)}"
            )
