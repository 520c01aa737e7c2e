"""Byzantine peers: what they send is well formed, in their own names or made-up ones, and untrue.

Such a peer runs the protocol, corrupts some of the messages that leave it, and sends fabricated
ones besides. It sends none in another peer's name: with keys no peer can, and without keys its
receivers cannot tell the two apart.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ....gossip import Audit
from ....gossip.effects.ledger import Entry, Kind
from ....gossip.types import PeerId, stream
from ....gossip.weight import FOUNDERS_MAX, ONE, WEIGHT_MAX
from ....gossip.wire.formats import Form
from ....gossip.wire.messages import (
    HEARTBEAT_MAX,
    STEPS_MAX,
    Ack,
    Ask,
    Body,
    Chunk,
    Envelope,
    Grant,
    Hello,
    Leave,
    Member,
    Offer,
    Pending,
    Phase,
    Push,
    Query,
    Read,
    Refer,
)

__all__ = ["LIARS_MAX", "ByzantinePeer", "Outside"]

LIARS_MAX: Final = 0.3
"""Largest share of a swarm that lies: beyond a third, whoever decides by majority must fail."""

_CORRUPTED: Final = 0.4
_KEPT: Final = 64
_ALIASES: Final = 6
_WEIGHTS: Final = (1, ONE, 9 * ONE, 1000 * ONE, WEIGHT_MAX // 2)
_STEPS: Final = (0, 1, 1 << 20, STEPS_MAX)

Said = tuple[Envelope, bytes]
"""A message, and its frame."""


class ByzantinePeer:
    """Corrupts the messages of one peer, and fabricates others, about all peers by name."""

    def __init__(self, seed: int, peers: Sequence[PeerId], id: PeerId) -> None:
        self._rng = stream(seed, id, "lies")
        self._peers = [*peers, *(f"{id}.{number}" for number in range(_ALIASES))]
        self._others = [peer for peer in peers if peer != id]
        self._id = id
        self._said: list[Said] = []
        self._corruptions: Mapping[type, Callable[[Any], Body]] = {
            Hello: self._corrupt_hello,
            Offer: self._corrupt_offer,
            Push: self._corrupt_offer,
            Ack: lambda ack: replace(ack, accepted=self._any(0, ack.accepted // 2, *_WEIGHTS)),
            Grant: lambda grant: replace(grant, credit_bytes=self._any(0, 1 << 62)),
            Query: lambda query: Query(self._near(query.seq)),
            Pending: lambda pending: Query(pending.seq),
            Chunk: lambda chunk: replace(chunk, index=self._any(0, 1, 99), offset_bytes=0),
            Leave: lambda leave: Leave(not leave.gone),
            Refer: lambda refer: Refer(tuple(self._entry(1) for _ in range(3))),
        }

    def corrupt(self, envelope: Envelope, frame: bytes) -> list[Said]:
        """What is sent in place of a message: that, another, one more, or nothing."""
        if self._rng.random() >= _CORRUPTED:
            told = [(envelope, frame)]
        elif self._rng.random() < 0.15:
            return []
        else:
            corrupt = self._corruptions.get(type(envelope.body))
            body = envelope.body if corrupt is None else corrupt(envelope.body)
            told = [(replace(envelope, body=body), frame)]
            told += [(envelope, frame)] if self._rng.random() < 0.3 else []
        self._said = [*self._said, *told][-_KEPT:]
        return told

    def fabricate(self, envelope: Envelope) -> list[Said]:
        """Messages that answer none; of *envelope*, one of its own to somebody, the body does not
        count."""
        rng = self._rng
        if self._said and rng.random() < 0.3:
            return [self._said[int(rng.integers(len(self._said)))]]
        if rng.random() < 0.5:
            # Somebody who does not exist says hello before anything else.
            alias = f"{self._id}.{int(rng.integers(_ALIASES))}"
            phase = Phase(int(rng.integers(Phase.LEAVING)))
            me = replace(self._entry(1), id=alias, incarnation=1, phase=phase)
            envelope = replace(envelope, source=alias, source_incarnation=1)
            hello = Hello(members=(me,), rooted=True, reply=rng.random() < 0.5)
            bodies: list[Body] = [hello, self._unasked()]
        else:
            bodies = [self._unasked()]
        return [self._framed(replace(envelope, body=body)) for body in bodies]

    def _unasked(self) -> Body:
        rng, seq = self._rng, 1 + int(self._rng.integers(200))
        share: dict[str, Any] = {
            "seq": seq,
            "escrow": self._any(*_WEIGHTS),
            "size_bytes": 64,
            "form": Form(copy=rng.random() < 0.3),
            "epoch": 0,
            "round": 0,
            "note": self._any(*_STEPS),
            "step": self._any(*_STEPS),
        }
        bodies: list[Body] = [
            Push(**share),
            Offer(**share, frame_bytes=16),
            self._corrupt_hello(Hello(members=(self._entry(0),), rooted=True, reply=False)),
            *(Ack(seq, self._any(*_WEIGHTS)), Query(seq), Pending(seq), Grant(seq, 1 << 40)),
            *(Ask(), Read(), Leave(rng.random() < 0.5), Refer((self._entry(1),))),
        ]
        return bodies[int(rng.integers(len(bodies)))]

    def _framed(self, envelope: Envelope) -> Said:
        body = envelope.body
        if type(body) is not Push:
            return replace(envelope, frame_bytes=0), b""
        values = self._rng.normal(size=body.size_bytes // 4) * self._any(1, 10**6)
        frame = values.astype("<f4").tobytes()
        return replace(envelope, frame_bytes=len(frame)), frame

    def _corrupt_hello(self, hello: Hello) -> Hello:
        """Tell untruths of itself and of others, and of some who do not exist."""
        me = hello.members[0]
        if self._rng.random() < 0.5:
            me = replace(me, step=self._any(*_STEPS), phase=Phase(int(self._rng.integers(7))))
        others = [
            self._lie_of(member) if self._rng.random() < 0.5 else member
            for member in hello.members[1:]
        ]
        made_up = [self._entry(int(self._rng.integers(5))) for _ in range(2)]
        rows = tuple((peer, self._any(*_STEPS)) for peer in self._some(2))
        return replace(hello, members=(me, *others, *made_up), clock=rows)

    def _lie_of(self, member: Member) -> Member:
        lies: list[dict[str, Any]] = [
            {"phase": Phase.LEFT, "heartbeat": member.heartbeat + 1},
            {"incarnation": member.incarnation + 1 + int(self._rng.integers(5000))},
            {"step": STEPS_MAX, "heartbeat": member.heartbeat + 1},
            {"heartbeat": HEARTBEAT_MAX},
            {"addresses": (), "heartbeat": member.heartbeat + 1},
            {"phase": Phase(int(self._rng.integers(7))), "heartbeat": HEARTBEAT_MAX},
        ]
        return replace(member, **lies[int(self._rng.integers(len(lies)))])

    def _entry(self, heartbeat: int) -> Member:
        (peer,) = self._some(1)
        return Member(
            id=peer,
            incarnation=1 + int(self._rng.integers(30_000)),
            heartbeat=heartbeat,
            phase=Phase(int(self._rng.integers(7))),
            step=self._any(*_STEPS),
            addresses=(f"tcp://{peer}:1",) if self._rng.random() < 0.5 else (),
        )

    def _corrupt_offer(self, offer: Offer) -> Offer:
        corruptions: list[dict[str, Any]] = [
            {"escrow": self._any(*_WEIGHTS)},
            {"seq": self._near(offer.seq)},
            {"note": self._any(*_STEPS), "round": self._any(*_STEPS)},
            {"step": STEPS_MAX, "epoch": self._any(*_STEPS)},
            {"form": offer.form._replace(copy=not offer.form.copy)},
            {"eager_bytes": self._any(0, 1 << 40)},
        ]
        return replace(offer, **corruptions[int(self._rng.integers(len(corruptions)))])

    def _near(self, seq: int) -> int:
        return max(1, seq + int(self._rng.integers(-2, 5)))

    def _any(self, *numbers: int) -> int:
        return numbers[int(self._rng.integers(len(numbers)))]

    def _some(self, count: int) -> list[PeerId]:
        return [self._peers[int(self._rng.integers(len(self._peers)))] for _ in range(count)]

    def whom(self) -> PeerId:
        """To whom it speaks next."""
        return self._others[int(self._rng.integers(len(self._others)))]


class Outside:
    """What passes between liars and the others, whose weight must add up with it.

    A name that begins with a liar's and a dot is made up by it.
    """

    def __init__(self, liars: Collection[PeerId]) -> None:
        self._liars = liars
        self._brought: Counter[int] = Counter()

    def __bool__(self) -> bool:
        return bool(self._liars)

    def has(self, peer: PeerId) -> bool:
        """Whether a name is a liar's, or made up by one."""
        return bool(self._liars) and peer.partition(".")[0] in self._liars

    def passes(self, entry: Entry, held: int, founders: int) -> bool:
        """Count what another peer accepts of a liar, or has settled with it.

        Args:
            held: What it held of that shard before; a newcomer takes its copy as it comes.
            founders: Of how many peers it counts steps.

        Returns:
            Whether it accepts no more than one should of anybody.
        """
        if entry.kind is Kind.SETTLED:
            self._brought[entry.shard] -= entry.weight
        elif entry.kind is Kind.ACCEPTED:
            self._brought[entry.shard] += entry.weight
            return not held or entry.weight <= max(FOUNDERS_MAX, founders) * ONE
        return True

    def balance(self, total: Audit, shard: int) -> Audit:
        """All weight of the others, where what has come from liars counts as founded."""
        return replace(total, founded=total.founded + self._brought[shard])
