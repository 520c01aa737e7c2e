"""A few protocol cores in one process; each message waits until a test delivers or drops it."""

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from typing import Any, Self, TypeVar

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Effect, Greet, Inspect, Send, TakeSketch, Wait
from rumor.gossip.effects.events import Event
from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.membership.static import StaticMembership
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.protocol import Protocol
from rumor.gossip.protocol.rule import Requirements, Rule
from rumor.gossip.protocol.state import Neighbors
from rumor.gossip.types import Incarnation, PeerId, ShareId, SnapshotId, stream
from rumor.gossip.wire.messages import Body, ClockRow, Envelope, Hello, Member, Offer, Phase, Push
from rumor.gossip.wire.schema import Schema
from rumor.sim.fuzz.peers import complete
from rumor.sim.fuzz.vector import SCHEMA, schema_of

from .transcript import line_of

__all__ = [
    "ANCHOR",
    "BRIEF",
    "OTHER_ANCHOR",
    "SMALL",
    "WIDE",
    "Effects",
    "Scene",
    "Scripted",
    "a_push",
    "an_offer",
    "destinations",
    "hello",
    "letters",
    "member",
    "only",
    "settled",
]

Effects = list[Effect | Event]

_T = TypeVar("_T")

ANCHOR = b"the-first-anchor"
OTHER_ANCHOR = b"the-other-anchor"

SMALL = ProtocolConfig()
"""Shares of 64 bytes go out in one message."""

WIDE = ProtocolConfig(
    inline_bytes_max=1, frame_bytes=16, frame_bytes_min=16, frame_bytes_max=16, window_bytes=32
)
"""Shares of 64 bytes go out in four frames, two of which may be in flight."""


BRIEF = ProtocolConfig(suspect_s=4.0, dead_s=10.0, redial_s_max=8.0)

_BY_WEIGHT = Requirements(whole=False)


def member(
    id: PeerId,
    phase: Phase = Phase.TRAINING,
    *,
    incarnation: Incarnation = 1,
    heartbeat: int = 1,
    step: int = 0,
    addresses: tuple[str, ...] | None = None,
    host: bytes = b"",
) -> Member:
    """A peer's entry in the member table; the address defaults to the id."""
    return Member(
        id=id,
        incarnation=incarnation,
        heartbeat=heartbeat,
        phase=phase,
        step=step,
        addresses=(id,) if addresses is None else addresses,
        host=host,
    )


def hello(
    *members: Member, rooted: bool = True, reply: bool = False, clock: tuple[ClockRow, ...] = ()
) -> Hello:
    """A hello that lists members, its sender first."""
    return Hello(members=members, clock=clock, rooted=rooted, reply=reply)


_SHARE: dict[str, Any] = {
    "seq": 1,
    "escrow": 9,
    "size_bytes": 64,
    "epoch": 0,
    "round": 0,
    "note": 0,
    "step": 0,
}


def an_offer(**fields: Any) -> Offer:
    """Offer a share of 64 bytes in frames of 16; *fields* override the defaults."""
    return Offer(**_SHARE | {"frame_bytes": 16} | fields)


def a_push(**fields: Any) -> Push:
    """Push a share of 64 bytes in one message; *fields* override the defaults."""
    return Push(**_SHARE | fields)


def only(effects: Iterable[Effect | Event], kind: type[_T]) -> list[_T]:
    return [effect for effect in effects if isinstance(effect, kind)]


def letters(effects: Iterable[Effect | Event], kind: Any = object) -> list[Any]:
    return [e.envelope for e in only(effects, Send) if isinstance(e.envelope.body, kind)]


def destinations(effects: Iterable[Effect | Event], kind: Any = object) -> list[PeerId]:
    return [envelope.destination for envelope in letters(effects, kind)]


def settled(weight: int) -> Entry:
    """Return the entry in a's ledger after b accepts *weight* of a's first share."""
    return Entry(Kind.SETTLED, weight, "b", 1, 1)


class Scripted:
    """A rule that runs the next action of the test once, and otherwise does nothing."""

    name = "scripted"
    registers: tuple[str, ...] = ()

    def __init__(self, outstanding_max: int = 2, requirements: Requirements = _BY_WEIGHT) -> None:
        self.outstanding_max = outstanding_max
        self.requirements = requirements
        self.next: Callable[[RuleContext], Wait | None] | None = None

    def step(self, context: RuleContext) -> Wait | None:
        act, self.next = self.next, None
        return act(context) if act else None


class Scene:
    """Protocols that exchange messages through a mailbox; records a transcript of all events."""

    def __init__(
        self, config: ProtocolConfig = SMALL, requirements: Requirements = _BY_WEIGHT
    ) -> None:
        self.now = 0.0
        self.config = config
        self.requirements = requirements
        self.peers: dict[PeerId, Protocol] = {}
        self.rules: dict[PeerId, Scripted] = {}
        self.mail: deque[Envelope] = deque()
        self.lines: list[str] = []
        self._addresses: dict[PeerId, tuple[str, ...]] = {}
        self._schemas: dict[PeerId, Schema] = {}
        self.sketches: dict[PeerId, tuple[float, ...]] = {}
        """Sketches of the models, by peer; default: the same for all."""

    def enter(
        self,
        id: PeerId,
        *,
        incarnation: int = 1,
        schema: Schema = SCHEMA,
        anchor: bytes | Callable[[], bytes] = ANCHOR,
        rule: Rule | None = None,
        addresses: tuple[str, ...] | None = None,
        neighbors: Neighbors = complete,
        config: ProtocolConfig | None = None,
        keeps_anchor: bool = False,
        host: bytes = b"",
        clock: Mapping[PeerId, int] | None = None,
        membership: StaticMembership | None = None,
    ) -> Protocol:
        """Create a peer that does not join yet; its address is its id."""
        self.rules[id] = Scripted(requirements=self.requirements)
        self._addresses[id] = addresses = (id,) if addresses is None else addresses
        self._schemas[id] = schema
        self.peers[id] = Protocol(
            id=id,
            incarnation=incarnation,
            schema=schema,
            anchor=anchor,
            rule=rule or self.rules[id],
            neighbors=neighbors,
            rng=lambda purpose: stream(0, f"{id}/{incarnation}", purpose),
            config=config or self.config,
            addresses=addresses,
            keeps_anchor=keeps_anchor,
            host=host,
            clock=clock,
            membership=membership,
        )
        return self.peers[id]

    def founded(
        self,
        *ids: PeerId,
        neighbors: Neighbors = complete,
        rules: Mapping[PeerId, Rule] | None = None,
        shards: int = 1,
        keeps_anchor: bool = False,
        host: bytes = b"",
        outward: Container[PeerId] = (),
    ) -> Self:
        """Let these peers (default: a and b) found a swarm together; no mail is left."""
        ids = ids or ("a", "b")
        schema = schema_of(8 * shards, shards) if shards > 1 else SCHEMA
        for id in ids:
            self.enter(
                id,
                schema=schema,
                neighbors=neighbors,
                rule=rules[id] if rules else None,
                addresses=() if id in outward else (id,),
                keeps_anchor=keeps_anchor,
                host=host,
            )
        self.found(*ids)
        return self

    def found(self, *ids: PeerId) -> None:
        """Let peers that have entered found a swarm together and meet one another."""
        listening = [address for id in ids for address in self._addresses[id]]
        for id in ids:
            self.join(id, *(other for other in listening if other != id), founders=len(ids))
        for _ in range(4):
            self.deliver()
            self.wait(1.0)
            for id in ids:
                self.wake(id)
        self.deliver()
        self.lines.clear()

    def join(self, id: PeerId, *seeds: str, founders: int = 1, returning: bool = False) -> Effects:
        if id not in self.peers:
            self.enter(id)
        return self._do(
            id, "joins", lambda p, now: p.join(now, seeds, founders, returning=returning)
        )

    def ask(self, id: PeerId, donor: PeerId) -> None:
        """Let a newcomer enter, unless it has entered already, and ask a donor for a copy."""
        if id not in self.peers:
            self.enter(id, schema=self._schemas[donor])
        self.join(id, donor)
        self.deliver()
        self.wait(0.2)
        self.wake(id)

    def wake(self, id: PeerId) -> Effects:
        return self._do(id, "wakes", lambda p, now: p.wake(now))

    def wake_for(self, id: PeerId, seconds: float, step_s: float = 1.0) -> Effects:
        effects: Effects = []
        for _ in range(round(seconds / step_s)):
            self.wait(step_s)
            effects += self.wake(id)
        return effects

    def run_for(
        self, seconds: float, *ids: PeerId, step_s: float = 1.0, turns: bool = False
    ) -> Effects:
        """Let time pass while these peers (default: all) exchange mail; return their effects."""
        effects: Effects = []
        for _ in range(round(seconds / step_s)):
            self.wait(step_s)
            for id in ids or tuple(self.peers):
                effects += self.wake(id)
                if turns:
                    trains = self.peers[id].phase is Phase.TRAINING
                    effects += self.step(id, trained=trains)
            effects += self.deliver()
        return effects

    def strand(self, source: PeerId, peer: PeerId) -> Effects:
        """Let *source* consider *peer* dead after a push to it; return the last effects."""
        last: Effects = []
        while not self.peers[source].account.outstanding[peer, 1].stranded:
            self.wait(1.0)
            last = self.wake(source)
            self.mail.clear()
        return last

    def fill(self, id: PeerId, *, is_full: bool = True) -> Effects:
        what = "is full" if is_full else "has room again"
        return self._do(id, what, lambda p, now: p.filled(now, is_full=is_full))

    def step(self, id: PeerId, *, trained: bool = True, samples: int | None = None) -> Effects:
        effects = self._do(
            id, "takes a turn", lambda p, now: p.step(now, trained=trained, samples=samples)
        )
        if any(isinstance(effect, TakeSketch) for effect in effects):
            sketch = self.sketches.get(id, (1.0,))
            effects += self._do(id, "takes a sketch", lambda p, now: p.sketched(sketch, now))
        return effects

    def act(
        self, id: PeerId, act: Callable[[RuleContext], object], *, trained: bool = True
    ) -> Effects:
        def once(context: RuleContext) -> None:
            act(context)

        self.rules[id].next = once
        return self.step(id, trained=trained)

    def push(self, source: PeerId, to: Iterable[PeerId], weight: int = 5) -> Effects:
        def push_all(context: RuleContext) -> None:
            for peer in to:
                context.push(peer, weight)

        return self.act(source, push_all)

    def mix_all(self, id: PeerId, *, trained: bool = True) -> Effects:
        return self.act(id, lambda c: [*map(c.mix, c.shares())], trained=trained)

    def refuse_all(self, id: PeerId) -> Effects:
        def refuse(context: RuleContext) -> None:
            for share in context.shares():
                context.refuse(share, "no")

        return self.act(id, refuse)

    def finish(self, id: PeerId) -> Effects:
        return self._do(id, "finishes", lambda p, now: p.finish(now))

    def merge(self, *ids: PeerId, turns: int = 4) -> None:
        """Let finished peers with scripted rules stop pushing and compare their models."""
        for _ in range(turns):
            for id in ids:
                self.act(id, lambda context: context.may_close(True), trained=False)
            self.deliver()

    def leave(self, id: PeerId, *, burn: bool = False) -> Effects:
        return self._do(id, "leaves", lambda p, now: p.leave(now, burn=burn))

    def attached(self, id: PeerId, share: ShareId, *, usable: bool) -> Effects:
        effects = self._do(
            id,
            "can read it" if usable else "cannot read it",
            lambda p, now: p.attached(share, now, usable=usable),
        )
        return effects + self._inspect(id, effects, finite=True)

    def measured(self, id: PeerId, distances: Mapping[ShareId, float]) -> Effects:
        return self._do(id, "has measured", lambda p, now: p.measured(distances, now))

    def unsent(self, envelope: Envelope) -> Effects:
        return self._do(envelope.source, "hears", lambda p, now: p.unsent(envelope, now))

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def receive(self, envelope: Envelope, *, finite: bool = True) -> Effects:
        to, what = envelope.destination, line_of(envelope)
        effects = self._do(to, f"gets {what}", lambda p, now: p.receive(envelope, now))
        return effects + self._inspect(to, effects, finite=finite)

    def tell(self, source: PeerId, to: PeerId, body: Body, **how: Any) -> Effects:
        """Deliver a message as if *source* had sent it; see `letter`."""
        return self.receive(self.letter(source, to, body, **how))

    def send_hello(
        self, to: PeerId, *members: Member, swarm: bytes = ANCHOR, **what: Any
    ) -> Effects:
        """Send a hello of the first of *members* to a peer; it also lists the other members."""
        own = members[0].incarnation
        return self.tell(members[0].id, to, hello(*members, **what), incarnation=own, swarm=swarm)

    def deliver(self, *kinds: type[Body], lose: tuple[type[Body], ...] = ()) -> Effects:
        """Deliver mail until none is left, and return the effects."""
        kept: list[Envelope] = []
        effects: Effects = []
        while self.mail:
            envelope = self.mail.popleft()
            if isinstance(envelope.body, lose):
                self.lines.append(f"      ({line_of(envelope)} is lost)")
            elif kinds and not isinstance(envelope.body, kinds):
                kept.append(envelope)
            elif envelope.destination in self.peers:
                effects += self.receive(envelope)
        self.mail.extend(kept)
        return effects

    def letter(
        self,
        source: PeerId,
        to: PeerId,
        body: Body,
        *,
        incarnation: int = 1,
        to_incarnation: int = 1,
        swarm: bytes = ANCHOR,
        schema: bytes = SCHEMA.hash,
        frame_bytes: int = 0,
        shard: int = 0,
    ) -> Envelope:
        """Return a message as if *source* had sent it."""
        return Envelope(
            swarm=swarm,
            schema=schema,
            source=source,
            source_incarnation=incarnation,
            destination=to,
            destination_incarnation=to_incarnation,
            body=body,
            frame_bytes=frame_bytes,
            shard=shard,
        )

    def introduce(
        self,
        source: PeerId,
        to: PeerId,
        *,
        incarnation: int = 1,
        schema: Schema = SCHEMA,
        phase: Phase = Phase.TRAINING,
    ) -> None:
        """Let *to* receive a hello from a peer that is not part of the scene."""
        entry = member(source, phase, incarnation=incarnation, addresses=())
        body = hello(entry, rooted=False)
        self.tell(source, to, body, incarnation=incarnation, schema=schema.hash)

    def live(self) -> list[PeerId]:
        """The peers that a considers live."""
        return [member.id for member in self.peers["a"].table.live()]

    def sent(self, effects: Iterable[Effect | Event], kind: type[Any]) -> list[Any]:
        return [letter.body for letter in letters(effects, kind)]

    def _inspect(self, id: PeerId, effects: Effects, *, finite: bool) -> Effects:
        what = f"finds it {'' if finite else 'not '}finite"

        def inspected(share: ShareId) -> Effects:
            return self._do(id, what, lambda p, now: p.inspected(share, now, finite=finite))

        return [e for inspect in only(effects, Inspect) for e in inspected(inspect.share)]

    def _do(self, id: PeerId, what: str, event: Callable[[Protocol, float], Effects]) -> Effects:
        effects = event(self.peers[id], self.now)
        self.lines.append(f"{self.now:5.2f} {id} {what}")
        for effect in effects:
            match effect:
                case Send(envelope, snapshot, shown=shown):
                    self.mail.append(_shown(envelope, snapshot) if shown else envelope)
                case Greet(address, envelope):
                    body = envelope.body
                    assert isinstance(body, Hello)
                    self.mail.append(replace(envelope, destination=address))
            self.lines.append(f"      {line_of(effect)}")
        return effects


def _shown(offer: Envelope, snapshot: SnapshotId | None) -> Envelope:
    """Fill in the segment of a snapshot, as the driver does."""
    assert isinstance(offer.body, Offer) and snapshot is not None
    return replace(offer, body=replace(offer.body, segment=f"segment {snapshot}"))
