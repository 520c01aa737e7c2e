"""Limits on what one other peer can do here, member or not: nobody has to prove who it is.

They are so wide that honest peers do not meet them. What they stop is the message, or the hundred
messages, that would change everything: a share that outweighs all models, questions that each
write a line of the ledger for good, newcomers that are made up and take half of the weight each.

A message beyond a limit is passed over as if the network had lost it, which the protocol survives:
its sender asks, or says it again. So an honest peer that should meet one after all is slowed down.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..effects.ledger import NO_DECISION
from ..exchange.incoming import Inbox
from ..types import Incarnation, PeerId, ShareId
from ..weight import acceptable
from ..wire.messages import Ask, Chunk, Envelope, Offer, Push
from .state import State

__all__ = [
    *("ASKS_MAX", "COPIES_MAX", "FENCES_MAX", "FOUNDERS_MAX", "NAMES_MAX", "NEWCOMERS_MAX"),
    *("OFFERS_MAX", "WINDOWS_MAX", "Limits", "TokenBuckets", "acceptable_of"),
]

_T = TypeVar("_T")

FOUNDERS_MAX = 8
"""So many founders' weight is taken from one share, or of a leaver as much as all founders brought
of whom this peer knows: one share must not decide what everybody's model is."""

FENCES_MAX = 16
"""Questions about shares that never came, of each shard of the vector, that one peer gets answered
in a gossip interval. An honest one has one such share at a time, and asks every `query_s_min`."""

NEWCOMERS_MAX = 16
"""Newcomers that are being given a copy at a time: each has half of what is left."""

OFFERS_MAX = 1024
"""Shares of one sender, of each shard, that may come to nothing in a gossip interval: each writes a
line. An honest sender hears of one before it begins the next, so that as many would take steps and
round trips of less than a thousandth of the interval, and none that is accepted."""

WINDOWS_MAX = 4
"""Windows (`window_bytes`) of frames that belong to no share that one sender may send in a gossip
interval, before it is to offer nothing for a while. Of a share that was given up here an honest one
has at most one window on its way, and none is given up sooner than after a fifth of `stall_s`."""

ASKS_MAX = 16
"""Times that one newcomer is heard asking for a copy in a gossip interval. An honest one asks once
in each of its own, once more when it is referred to somebody, and when it has heard hello."""

COPIES_MAX = 8
"""Copies that one newcomer is given at once; from then on, one each `stall_s`. An honest one needs
one; the next only if that is lost, which it waits for as long."""

NAMES_MAX = 1024
"""Names that one peer may tell a member of for the first time at once; from then on a quarter of
that in each gossip interval. As many newcomers as that come to no honest swarm within one interval;
if they do, the rest is believed an interval later, since each hello tells of all."""

_KEPT_MAX = 4096
"""Peers for each of which there is a bucket. Only those spend whose name is known here, and who has
not spent for longest is forgotten first, when its bucket is as good as full."""


class TokenBuckets(Generic[_T]):
    """A bucket of tokens for each of many: it begins full, and is refilled at a constant rate.

    Args:
        most: What a bucket holds, and so the largest burst.
        refill_s: Tokens per second.

    >>> buckets = TokenBuckets(2, 0.5)
    >>> [buckets.take("a", 1, now) for now in (0.0, 0.0, 0.0, 2.0, 2.0)]
    [True, True, False, True, False]
    """

    def __init__(self, most: float, refill_s: float) -> None:
        self._most = most
        self._refill_s = refill_s
        self._levels: OrderedDict[_T, tuple[float, float]] = OrderedDict()

    def take(self, who: _T, amount: float, now: float) -> bool:
        """Take so many tokens, if they are there.

        Args:
            who: Whose.
            amount: How many.
            now: Seconds.

        Returns:
            Whether they were.
        """
        level = self.level(who, now)
        enough = level >= amount
        self._set(who, level - amount if enough else level, now)
        return enough

    def spend(self, who: _T, amount: float, now: float) -> None:
        """Take tokens that are used already: a bucket may owe some then."""
        self._set(who, self.level(who, now) - amount, now)

    def level(self, who: _T, now: float) -> float:
        """How many tokens are there; below 0 where some are owed."""
        level, since_s = self._levels.get(who, (self._most, now))
        return min(self._most, level + (now - since_s) * self._refill_s)

    def _set(self, who: _T, level: float, now: float) -> None:
        self._levels[who] = level, now
        self._levels.move_to_end(who)
        if len(self._levels) > _KEPT_MAX:
            self._levels.popitem(last=False)


def acceptable_of(state: State, sender: PeerId, own: int, offered: int) -> int:
    """How much to accept of a share that is not a newcomer's first; all, unless weight counts.

    Args:
        state: What the protocol remembers.
        sender: Whose share it is.
        own: Weight held of its shard, in grains; above 0.
        offered: What would be accepted of it, likewise.
    """
    table = state.table
    if not state.caps:
        return offered
    if offered <= own or not table.is_leaving(sender):
        return acceptable(own, offered, FOUNDERS_MAX)
    # What a leaver hands on may be more than all that is held here, and it has no time.
    founders_max = max(FOUNDERS_MAX, len(table.clock.rows()))
    return acceptable(own, offered, founders_max, outweighs=True)


@dataclass(slots=True)
class Limits:
    """What each peer may still have this one do, beside what it is let in to do."""

    state: State
    copies: TokenBuckets[tuple[PeerId, Incarnation]] = field(init=False)
    """Copies of the model, by newcomer."""
    names: TokenBuckets[PeerId] = field(init=False)
    """Names that were not known here, by who tells of them."""
    _offers: TokenBuckets[tuple[PeerId, int]] = field(init=False)
    _frames: TokenBuckets[PeerId] = field(init=False)
    _asks: TokenBuckets[PeerId] = field(init=False)
    _until_s: float = float("-inf")
    _counts: dict[PeerId, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config = self.state.config
        bytes_max = WINDOWS_MAX * config.window_bytes
        self._offers = TokenBuckets(OFFERS_MAX, OFFERS_MAX / config.gossip_s)
        self._frames = TokenBuckets(bytes_max, bytes_max / config.gossip_s)
        self._asks = TokenBuckets(ASKS_MAX, ASKS_MAX / config.gossip_s)
        self.names = TokenBuckets(NAMES_MAX, NAMES_MAX / 4 / config.gossip_s)
        self.copies = TokenBuckets(COPIES_MAX, 1 / config.stall_s)

    def admits(self, envelope: Envelope, inbox: Inbox, now: float) -> bool:
        """Whether a message is within what its sender may send; it counts from then on. Members of
        one process need not be asked about.

        Args:
            envelope: The message.
            inbox: That of its shard.
            now: Seconds.
        """
        kind, sender = type(envelope.body), envelope.source
        if kind is Ask:
            return self._asks.take(sender, 1, now)
        if kind is not Offer and kind is not Push and kind is not Chunk:
            return True
        transfer = inbox.transfers.get((sender, envelope.source_incarnation))
        seq: int = envelope.body.seq  # type: ignore[union-attr]
        if kind is Chunk:
            if transfer is None or transfer.id.seq != seq:
                self._frames.spend(sender, envelope.frame_bytes, now)
            return True
        if transfer is None:
            account = self.state.shard_states[envelope.shard].log.account
            life = sender, envelope.source_incarnation
            last, accepted = account.decided.get(life, NO_DECISION)
        else:
            # If this is another share, it ends that one.
            last, accepted = transfer.id.seq, 0
        if seq <= last:
            return True
        if self._frames.level(sender, now) <= 0:
            return False
        return not last or accepted > 0 or self._offers.take((sender, envelope.shard), 1, now)

    def query(self, inbox: Inbox, share: ShareId, now: float) -> None:
        """Answer what became of a share, unless its sender asks about too many that never came.

        Each such answer is a decision, and a line of the ledger.
        """
        if now >= self._until_s:
            self._until_s, self._counts = now + self.state.config.gossip_s, {}
        if self.state.table.only is None and not inbox.has(share):
            asked = self._counts.get(share.sender, 0)
            if asked >= FENCES_MAX * len(self.state.shard_states):
                return
            self._counts[share.sender] = asked + 1
        inbox.query(share, now)
