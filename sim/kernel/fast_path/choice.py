"""Choice between the protocols and the fast path, and a check that both decide alike."""

from ....gossip.errors import ConfigError
from ..fleet import Fleet
from ..plan import FleetPlan
from ..program import Level
from .fleet import FastFleet, FastPathUnsupported, unsupported_reason

__all__ = [
    "STEPS_VERIFIED",
    "ScheduleMismatchError",
    "must_compile",
    "takes_fast_path",
    "verify_against_protocol",
]

# The protocols take some 60 us for a step where machine code takes 2, and loading that takes a
# second.
_STEPS_FAST_MIN = 20_000


def takes_fast_path(decide: str, plan: FleetPlan, steps: int) -> bool:
    """Choose whether the fast path decides, and not the protocols.

    Args:
        steps: Of all workers, as far as that is known.

    Raises:
        ConfigError: It was asked for, and the run is of another kind.
    """
    if decide == "protocol" or (decide == "auto" and steps < _STEPS_FAST_MIN):
        return False
    reason = unsupported_reason(plan)
    if reason and decide == "compiled":
        raise ConfigError(f"decide compiled cannot take this run: {reason}. Take auto")
    return not reason


def must_compile() -> bool:
    """Whether the fast path has to be compiled first, as no earlier run has left it on disk."""
    # Numba takes long to import.
    from .compiler import is_kept
    from .decisions.exchanges import advance

    return not is_kept(advance)


STEPS_VERIFIED = 2_000
"""Optimizer steps of all workers that are decided both ways, at most."""


class ScheduleMismatchError(AssertionError):
    """The fast path has decided otherwise than the protocols: a defect of this program."""


def verify_against_protocol(plan: FleetPlan, until_s: float, steps_max: int) -> None:
    """Decide the first window both ways, and compare them operation by operation.

    Raises:
        ScheduleMismatchError: They differ; says in what.
    """
    fast, slow = FastFleet(plan), Fleet(plan)
    steps_max = min(steps_max, STEPS_VERIFIED)
    try:
        came = fast.run(until_s, steps_max)
    except FastPathUnsupported:
        return
    if slow.run(until_s, steps_max) != came or slow.now != fast.now:
        raise ScheduleMismatchError(f"at {fast.now} s, the protocols are at {slow.now} s")
    for number, (ours, theirs) in enumerate(zip(fast.take(), slow.program.take(), strict=True)):
        _compare(number, ours, theirs)
    if fast.traffic != slow.traffic:
        raise ScheduleMismatchError(f"{fast.traffic}, and by the protocols {slow.traffic}")
    if fast.audit() != slow.audit():
        raise ScheduleMismatchError(f"{fast.audit()}, and by the protocols {slow.audit()}")


def _compare(number: int, ours: Level, theirs: Level) -> None:
    for name in ("workers", "steps", "orders", "operations"):
        left, right = getattr(ours, name), getattr(theirs, name)
        for at, (one, other) in enumerate(zip(left, right, strict=False)):
            if one != other:
                raise ScheduleMismatchError(
                    f"{name} of level {number} differ at place {at}: {one}, and by the protocols "
                    f"{other}"
                )
        if len(left) != len(right):
            raise ScheduleMismatchError(
                f"level {number} has {len(left)} {name}, and by the protocols {len(right)}"
            )
