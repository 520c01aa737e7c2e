"""A few protocols on a table: every message waits until the test lets it through, or loses it."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from rumor.gossip import ProtocolConfig, Rule, RuleContext
from rumor.gossip.effects.effects import Effect, Greet, Inspect, Send, TakeSketch, Wait
from rumor.gossip.effects.events import Event
from rumor.gossip.protocol.protocol import Protocol
from rumor.gossip.protocol.rule import Requirements
from rumor.gossip.protocol.state import Neighbors
from rumor.gossip.types import PeerId, ShareId, SnapshotId, stream
from rumor.gossip.wire.messages import Body, Envelope, Hello, Member, Offer, Phase
from rumor.gossip.wire.schema import Schema
from rumor.sim.fuzz.peers import complete
from rumor.sim.fuzz.vector import SCHEMA, schema_of

from .transcript import line_of

__all__ = ["ANCHOR", "OTHER_ANCHOR", "SMALL", "WIDE", "Scene", "Scripted"]

ANCHOR = b"the-first-anchor"
OTHER_ANCHOR = b"the-other-anchor"

SMALL = ProtocolConfig()
"""Shares of 64 bytes go out in one message."""

WIDE = ProtocolConfig(
    inline_bytes_max=1, frame_bytes=16, frame_bytes_min=16, frame_bytes_max=16, window_bytes=32
)
"""Shares of 64 bytes go out in four frames, two of which may be under way."""


_BY_WEIGHT = Requirements(whole=False)


class Scripted:
    """A rule that does what the test says, once, and else nothing."""

    name = "scripted"
    registers: tuple[str, ...] = ()

    def __init__(self, outstanding_max: int = 2, requirements: Requirements = _BY_WEIGHT) -> None:
        self.outstanding_max = outstanding_max
        self.requirements = requirements
        self.next: Callable[[RuleContext], Wait | None] | None = None

    def step(self, context: RuleContext) -> Wait | None:
        """Do what was last said."""
        act, self.next = self.next, None
        return act(context) if act else None


class Scene:
    """Protocols that talk through a mailbag; everything that happens is written down.

    Args:
        config: Of all peers.
        requirements: Of their rules.
    """

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
        self.sketches: dict[PeerId, tuple[float, ...]] = {}
        """Of models; alike unless given."""

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
    ) -> Protocol:
        """Make a peer, which does not join yet; its address is its id."""
        self.rules[id] = Scripted(requirements=self.requirements)
        self.peers[id] = Protocol(
            id=id,
            incarnation=incarnation,
            schema=schema,
            anchor=anchor,
            rule=rule or self.rules[id],
            neighbors=neighbors,
            rng=lambda purpose: stream(0, f"{id}/{incarnation}", purpose),
            config=config or self.config,
            addresses=(id,) if addresses is None else addresses,
            keeps_anchor=keeps_anchor,
            host=host,
            clock=clock,
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
    ) -> None:
        """Let these peers found together and know one another, each by its own rule if given."""
        schema = schema_of(8 * shards, shards) if shards > 1 else SCHEMA
        for id in ids:
            rule = rules[id] if rules else None
            self.enter(
                id,
                schema=schema,
                neighbors=neighbors,
                rule=rule,
                keeps_anchor=keeps_anchor,
                host=host,
            )
        for id in ids:
            self.join(id, *(other for other in ids if other != id), founders=len(ids))
        for _ in range(4):
            self.deliver()
            self.wait(1.0)
            for id in ids:
                self.wake(id)
        self.deliver()
        self.lines.clear()

    def join(
        self, id: PeerId, *seeds: str, founders: int = 1, returning: bool = False
    ) -> list[Effect | Event]:
        """Start a peer."""
        return self._do(
            id, "joins", lambda p, now: p.join(now, seeds, founders, returning=returning)
        )

    def wake(self, id: PeerId) -> list[Effect | Event]:
        """Let time do its work at a peer."""
        return self._do(id, "wakes", lambda p, now: p.wake(now))

    def fill(self, id: PeerId, *, is_full: bool = True) -> list[Effect | Event]:
        """Tell a peer whether it has memory for another share."""
        what = "is full" if is_full else "has room again"
        return self._do(id, what, lambda p, now: p.filled(now, is_full=is_full))

    def step(
        self, id: PeerId, *, trained: bool = True, samples: int | None = None
    ) -> list[Effect | Event]:
        """Let a peer take a turn."""
        effects = self._do(
            id, "takes a turn", lambda p, now: p.step(now, trained=trained, samples=samples)
        )
        if any(isinstance(effect, TakeSketch) for effect in effects):
            sketch = self.sketches.get(id, (1.0,))
            effects += self._do(id, "takes a sketch", lambda p, now: p.sketched(sketch, now))
        return effects

    def act(
        self, id: PeerId, act: Callable[[RuleContext], object], *, trained: bool = True
    ) -> list[Effect | Event]:
        """Let a peer take a turn in which its rule does this."""

        def once(context: RuleContext) -> None:
            act(context)

        self.rules[id].next = once
        return self.step(id, trained=trained)

    def push(self, source: PeerId, to: PeerId, weight: int) -> list[Effect | Event]:
        """Let a peer push so much weight."""
        return self.act(source, lambda context: context.push(to, weight))

    def mix_all(self, id: PeerId, *, trained: bool = True) -> list[Effect | Event]:
        """Let a peer mix whatever has come."""

        def mix(context: RuleContext) -> None:
            for share in context.shares():
                context.mix(share)

        return self.act(id, mix, trained=trained)

    def refuse_all(self, id: PeerId) -> list[Effect | Event]:
        """Let a peer send back whatever has come."""

        def refuse(context: RuleContext) -> None:
            for share in context.shares():
                context.refuse(share, "no")

        return self.act(id, refuse)

    def finish(self, id: PeerId) -> list[Effect | Event]:
        """Let a peer take no more steps."""
        return self._do(id, "finishes", lambda p, now: p.finish(now))

    def merge(self, *ids: PeerId, turns: int = 4) -> None:
        """Let finished peers with scripted rules push no more, and compare their models."""
        for _ in range(turns):
            for id in ids:
                self.act(id, lambda context: context.may_close(True), trained=False)
            self.deliver()

    def leave(self, id: PeerId, *, burn: bool = False) -> list[Effect | Event]:
        """Let a peer leave."""
        return self._do(id, "leaves", lambda p, now: p.leave(now, burn=burn))

    def attached(self, id: PeerId, share: ShareId, *, usable: bool) -> list[Effect | Event]:
        """Tell a peer whether it can read a share where it lies."""
        effects = self._do(
            id,
            "can read it" if usable else "cannot read it",
            lambda p, now: p.attached(share, now, usable=usable),
        )
        return effects + self._inspect(id, effects, finite=True)

    def measured(self, id: PeerId, distances: Mapping[ShareId, float]) -> list[Effect | Event]:
        """Tell a peer how far shares are from its model."""
        return self._do(id, "has measured", lambda p, now: p.measured(distances, now))

    def unsent(self, envelope: Envelope) -> list[Effect | Event]:
        """Tell the sender of a message that it can never arrive."""
        return self._do(envelope.source, "hears", lambda p, now: p.unsent(envelope, now))

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    def receive(self, envelope: Envelope, *, finite: bool = True) -> list[Effect | Event]:
        """Hand a message to its peer, whether it was ever sent or not."""
        to, what = envelope.destination, line_of(envelope)
        effects = self._do(to, f"gets {what}", lambda p, now: p.receive(envelope, now))
        return effects + self._inspect(to, effects, finite=finite)

    def deliver(self, *kinds: type[Body], lose: tuple[type[Body], ...] = ()) -> None:
        """Let mail through until there is none.

        Args:
            kinds: What is let through, everything unless given; the rest stays.
            lose: What is lost.
        """
        kept: list[Envelope] = []
        while self.mail:
            envelope = self.mail.popleft()
            if isinstance(envelope.body, lose):
                self.lines.append(f"      ({line_of(envelope)} is lost)")
            elif kinds and not isinstance(envelope.body, kinds):
                kept.append(envelope)
            elif envelope.destination in self.peers:
                self.receive(envelope)
        self.mail.extend(kept)

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
        """Write a message as *source* might have sent it."""
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
        """Let *to* hear hello of a peer that is not on the table."""
        member = Member(id=source, incarnation=incarnation, heartbeat=1, phase=phase, step=0)
        hello = Hello(members=(member,), rooted=False, reply=False)
        envelope = self.letter(source, to, hello, incarnation=incarnation, schema=schema.hash)
        self.receive(envelope)

    def sent(self, effects: Iterable[Effect | Event], kind: type[Any]) -> list[Any]:
        """Bodies of one kind among the messages that effects ask for."""
        bodies = [effect.envelope.body for effect in effects if isinstance(effect, Send)]
        return [body for body in bodies if isinstance(body, kind)]

    def _inspect(
        self, id: PeerId, effects: list[Effect | Event], *, finite: bool
    ) -> list[Effect | Event]:
        shares = [effect.share for effect in effects if isinstance(effect, Inspect)]
        return [e for share in shares for e in self._inspected(id, share, finite=finite)]

    def _inspected(self, id: PeerId, share: ShareId, *, finite: bool) -> list[Effect | Event]:
        return self._do(
            id,
            "finds it finite" if finite else "finds it not finite",
            lambda p, now: p.inspected(share, now, finite=finite),
        )

    def _do(
        self, id: PeerId, what: str, event: Callable[[Protocol, float], list[Effect | Event]]
    ) -> list[Effect | Event]:
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
    """Fill in where a snapshot lies, as the driver does."""
    assert isinstance(offer.body, Offer) and snapshot is not None
    return replace(offer, body=replace(offer.body, segment=f"segment {snapshot}"))
