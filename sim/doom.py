"""A crash at a boundary between two effects of what a worker does."""

from collections.abc import Sequence

from ..gossip.effects import Effect, Record
from ..gossip.events import Event
from ..gossip.ledger import Kind
from .carrier import Carrier
from .worker import Worker

__all__ = ["strikes"]


def strikes(
    worker: Worker, effects: Sequence[Effect | Event], now: float, carrier: Carrier
) -> bool:
    """Carry out what a worker decides that is about to crash, as far as it comes.

    Args:
        worker: One with a doom.
        effects: What its protocol has asked for.
        now: On the worker's clock, seconds.
        carrier: Carries it out.

    Returns:
        Whether its end has come.
    """
    doom = worker.doom
    if doom is None or not effects or not worker.running:
        return False
    for effect in effects if doom.after is None else effects[: doom.after]:
        carrier.carry_out(worker, (effect,), now)
        if not worker.running:
            return False
        if doom.after is None and _accepts(effect):
            return True
    return doom.after is not None


def _accepts(effect: Effect | Event) -> bool:
    """Whether weight of another's escrow is taken with it."""
    if type(effect) is not Record:
        return False
    return effect.entry.kind is Kind.ACCEPTED and effect.entry.weight > 0
