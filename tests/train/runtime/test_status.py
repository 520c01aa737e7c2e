"""Status replies of a peer to observers: their contents and their bounds."""

import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

from rumor.gossip.effects.events import (
    PeerDied,
    PeerLeft,
    PeerMet,
    PeerRecovered,
    PeerSuspected,
    ShareMixed,
)
from rumor.gossip.effects.ledger import Entry, Kind, Outstanding
from rumor.gossip.protocol.protocol import Protocol
from rumor.gossip.weight import ONE
from rumor.gossip.wire.codec import HEADER_BYTES_MAX, decode, encode
from rumor.gossip.wire.messages import (
    EVENTS_TOLD_MAX,
    LINKS_TOLD_MAX,
    MEMBERS_TOLD_MAX,
    Hello,
    Inquire,
    Member,
    Phase,
    Standing,
    Status,
)
from rumor.train.runtime.telling.events import Events
from rumor.train.runtime.telling.stats import Counters, PeerStats, protocol_stats
from rumor.train.runtime.telling.status import StatusDesk

from ..letters import letter

HELLO = Hello(members=(), rooted=False, reply=False)


def training_member(id: str, addresses: tuple[str, ...] = ()) -> Member:
    return Member(id, 1, 1, Phase.TRAINING, 5, addresses)


class World:
    """Everything that a `StatusDesk` reads."""

    def __init__(self, measured: Callable[[], Mapping[str, float]] = dict) -> None:
        self.now = 0.0
        self.counters, self.events = Counters(), Events(None)
        self.me = Member("me", 3, 1, Phase.TRAINING, 12)
        self.live: list[Member] = []
        self.dead: list[Member] = []
        self.departed: tuple[str, ...] = ()
        account = SimpleNamespace(
            life=("me", 3),
            id="me",
            weight=ONE // 2,
            outstanding={("p0", 1): Outstanding(1, ONE // 4)},
        )
        self.protocol = SimpleNamespace(
            account=account,
            accounts=(account,),
            swarm=b"s" * 16,
            staged=2,
            state=SimpleNamespace(swarm_steps=99, shares_memory=lambda peer: peer == "p0"),
            table=SimpleNamespace(
                clock=SimpleNamespace(rows=lambda: {"old": 7}), live=lambda: (*self.live, self.me)
            ),
            known=lambda: (*self.live, *self.dead),
            last_heard=lambda: (*self.live, *self.dead),
            departed=lambda: self.departed,
        )
        settings = {"rule": "gosgd", "odd": "a\nb" + "x" * 300}
        self.desk = StatusDesk(settings, self.events, self.stats, clock=lambda: self.now)
        self.measured = measured

    def stats(self) -> PeerStats:
        return PeerStats(
            id="me",
            counters=self.counters,
            model_bytes=40,
            memory_bytes=8,
            measured=self.measured(),
            **protocol_stats(cast(Protocol, self.protocol)),
        )

    def look(self, glance: Callable[[Protocol], Status]) -> Status:
        return glance(cast(Protocol, self.protocol))

    def answer(self, **question: Any) -> Status:
        """Ask the desk, and decode its reply from the wire."""
        found = self.desk.answer(Inquire(**question), self.look)
        parts = encode(letter(found, source="watcher"))
        assert sum(map(len, parts)) < HEADER_BYTES_MAX
        body = decode(parts).body
        assert isinstance(body, Status)
        return body


def test_a_status_reports_weights_counters_and_measurements() -> None:
    world = World(lambda: {"loss": math.nan, "accuracy": 0.5})
    world.counters.count(ShareMixed("p0", ONE, 4))
    world.counters.count(ShareMixed("p0", ONE, 2))
    world.now = 8.0
    status = world.answer()
    figures = dict(status.figures)
    assert (status.me.id, status.uptime_s, status.swarm_steps) == ("me", 8.0, 99)
    assert figures["weight"] == 0.5 and figures["escrow"] == 0.25
    assert (figures["mixed"], figures["staleness_steps_sum"]) == (2, 6)
    assert figures["staleness_steps_max"] == 4 and figures["queue"] == 2
    # The NaN loss of a diverged model becomes infinity.
    assert figures["loss"] == math.inf and figures["accuracy"] == 0.5
    assert (figures["model_bytes"], figures["memory_bytes"]) == (40, 8)
    assert dict(status.settings) == {"rule": "gosgd", "odd": "a?b" + "x" * 253}
    assert status.members == ()
    assert world.desk.answer(Inquire(), world.look, ("p1",)).awaits == ("p1",)


def test_links_report_their_traffic() -> None:
    world = World()
    world.live = [training_member("p0"), training_member("p1")]
    counters = world.counters
    counters.count(Entry(Kind.PUSHED, ONE // 4, "p0", 1, 1))
    counters.count(Entry(Kind.PUSHED, ONE // 4, "p1", 1, 2))
    counters.count(Entry(Kind.SETTLED, 0, "p1", 1, 2))
    counters.link("p0").bytes_sent += 100
    counters.link("stranger").bytes_sent += 999
    link = counters.link("p1")
    counters.note_received(letter(HELLO, source="p1"), 10)
    assert link.roundtrip_s == 0.0
    link.asked_s = 0.0
    counters.note_received(letter(HELLO, source="p1"), 10)
    links = {link.peer: link for link in world.answer().links}
    assert list(links) == ["p0", "p1"]
    assert (links["p0"].pushes, links["p0"].in_flight, links["p0"].shares_memory) == (1, 1, True)
    assert (links["p1"].refusals, links["p1"].in_flight) == (1, 0)
    assert links["p1"].roundtrip_s > 0 and links["p0"].roundtrip_s == 0


def test_only_the_busiest_of_many_links_are_reported() -> None:
    world = World()
    world.live = [training_member(f"p{n}") for n in range(200)]
    for n in range(200):
        world.counters.link(f"p{n}").bytes_sent = n
    links = world.answer().links
    assert len(links) == LINKS_TOLD_MAX
    assert min(link.bytes_sent for link in links) == 200 - LINKS_TOLD_MAX


def test_a_status_reports_events_after_a_given_number() -> None:
    world = World()
    for number in range(300):
        world.events.tell(PeerDied(f"p{number}"))
    latest = world.answer().events
    assert len(latest) == EVENTS_TOLD_MAX and latest[-1].number == 300
    later = world.answer(events_after=290).events
    assert [(e.number, e.event, e.peer) for e in later][:1] == [(291, "died", "p290")]
    assert world.answer(events_after=100).events[0].number == 101
    assert world.answer(events_after=300).events == ()


def test_members_are_reported_with_their_standing() -> None:
    world = World()
    world.live = [training_member("a", ("tcp://a:1",)), training_member("b"), training_member("c")]
    world.dead, world.departed = [training_member("d")], ("old",)
    for event in (PeerSuspected("b"), PeerSuspected("c"), PeerRecovered("c")):
        world.events.tell(event)
    status = world.answer(members=True)
    assert [(s.member.id, s.standing) for s in status.members] == [
        ("a", Standing.LIVE),
        ("b", Standing.SUSPECTED),
        ("c", Standing.LIVE),
        ("d", Standing.DEAD),
        ("old", Standing.LEFT),
    ]
    assert status.members[-1].member.step == 7
    # The launcher has seen the process of this peer end.
    world.events.mark_dead("old")
    world.events.tell(PeerLeft("old"))
    assert world.answer(members=True).members[-1].standing is Standing.DEAD
    assert world.answer().events[-1].event == "died"
    world.events.tell(PeerMet("old"))
    assert not world.events.doubted()[1]


def test_members_that_follow_a_peer_come_first_in_a_bounded_list() -> None:
    world = World()
    before, after = ([f"{letter}{n:03}" for n in range(200)] for letter in "az")
    world.live, world.departed = [*map(training_member, [*before, *after])], ("old",)
    listed = [sighting.member.id for sighting in world.answer(members=True).members]
    assert listed == [*after, *before[: MEMBERS_TOLD_MAX - 200]]


def test_a_list_of_members_fits_a_header_however_long_names_and_addresses_are() -> None:
    world = World()
    long = tuple(f"tcp://{'h' * 240}:{n}" for n in range(16))
    world.live = [training_member(f"{n:04}" + "n" * 60, long) for n in range(256)]
    status = world.answer(members=True)
    assert 100 < len(status.members) < 256
    assert all(len(sighting.member.addresses) == 4 for sighting in status.members)
