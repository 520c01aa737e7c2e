"""Who decides: protocols, or the fast path in one of its two ways."""

from ....gossip.errors import ConfigError
from ..plan import FleetPlan
from .compiler import INTERPRETED, Decider, can_compile, compiled
from .fleet import why_not

__all__ = ["choose_decider"]

# Python takes some 40 us for a step where compiled code takes 2, and loading that takes seconds.
_STEPS_COMPILED_MIN = 200_000


def choose_decider(decide: str, plan: FleetPlan, steps: int | None) -> Decider | None:
    """Choose who decides.

    Args:
        decide: ``protocol``, ``compiled`` or ``auto``.
        plan: What the fleet is made of.
        steps: Optimizer steps of all workers, None where that is not known.

    Returns:
        What runs the fast path; None where the protocols decide.

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
    pays = steps is not None and steps >= _STEPS_COMPILED_MIN
    return compiled() if can_compile() and (decide == "compiled" or pays) else INTERPRETED
