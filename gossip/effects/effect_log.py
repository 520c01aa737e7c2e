"""Effects that the protocol has requested so far."""

from collections.abc import Callable
from dataclasses import replace

from ..types import Incarnation, PeerId, SnapshotId
from ..wire.messages import Body, Envelope
from .effects import Effect, Send
from .events import Event
from .ledger import Account, Entry

__all__ = ["EffectLog"]


class EffectLog:
    """Collects effects, in the order in which they must happen, until the driver takes them."""

    def __init__(
        self,
        account: Account,
        schema: bytes,
        swarm: bytes,
        effects: list[Effect | Event],
    ) -> None:
        self.account = account
        self.swarm = swarm
        self._schema = schema
        self._shard = account.shard
        self.effects = effects
        """Effects not taken yet. The logs of all shards of a peer share this list."""
        self.emit: Callable[[Effect | Event], None] = effects.append

    def record(self, entry: Entry) -> None:
        """Apply *entry* to the account, and request that it is written to the ledger."""
        # Weight changes only here, so that the account and the ledger on disk cannot diverge, and
        # every entry precedes the messages that follow from it.
        if self._shard:
            entry = replace(entry, shard=self._shard)
        self.emit(self.account.apply(entry))

    def envelope(
        self, peer: PeerId, incarnation: Incarnation, body: Body, frame_bytes: int = 0
    ) -> Envelope:
        """Address *body* to one incarnation of a peer; empty and 0 if it is unknown."""
        account = self.account
        # Positional, since every message passes here.
        return Envelope(
            self.swarm,
            self._schema,
            account.id,
            account.incarnation,
            peer,
            incarnation,
            body,
            frame_bytes,
            self._shard,
        )

    def send(
        self,
        peer: PeerId,
        incarnation: Incarnation,
        body: Body,
        *,
        frame: tuple[SnapshotId | None, int, int] = (None, 0, 0),
        shown: bool = False,
    ) -> None:
        """Request that a message is sent, with a frame: a snapshot, and where in it."""
        snapshot, start_bytes, size_bytes = frame
        envelope = self.envelope(peer, incarnation, body, size_bytes)
        self.emit(Send(envelope, snapshot, start_bytes, shown))
