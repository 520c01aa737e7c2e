"""Who decides: protocols, or the fast path in one of its two ways."""

from ....gossip.errors import ConfigError
from ..plan import FleetPlan
from .compiler import INTERPRETED, Decider, can_compile, compiled
from .fleet import why_not

__all__ = ["choose_decider", "computes_in_machine_code"]

# Python takes some 40 us for a step where compiled code takes 2, and loading that takes seconds.
_STEPS_COMPILED_MIN = 200_000

# The same for steps of the optimizer, each of which takes longer than deciding on it.
_STEPS_COMPUTED_MIN = 20_000


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


def computes_in_machine_code(decider: Decider | None, steps: int | None) -> bool:
    """Whether it pays to load machine code for steps of the optimizer; it changes no bit.

    Args:
        decider: Who decides.
        steps: Of all workers, None where that is not known.
    """
    if decider is not None and decider.is_compiled:
        return True
    return can_compile() and steps is not None and steps >= _STEPS_COMPUTED_MIN
