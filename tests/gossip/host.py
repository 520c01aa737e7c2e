"""One process of the simulated network: a protocol, its values, its ledger and its training loop."""

from collections.abc import Callable, Sequence
from typing import Protocol as Structural

from rumor.gossip import (
    Account,
    Envelope,
    PeerId,
    Phase,
    Protocol,
    RemoteProtocolError,
    ShareId,
)
from rumor.gossip.effects import Effect, Greet, Inspect, Send, Wait

from .vector import Vector
from .watch import Watch

__all__ = ["Host", "Surroundings", "Train"]
