"""No answer of a peer stops an observer, and no peer can answer for another."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from rumor.gossip import TransportError
from rumor.gossip.wire.messages import (
    Envelope,
    EventNote,
    Hello,
    Member,
    Phase,
    Sighting,
    Standing,
    Status,
)
from rumor.train.observe import observer as observer_module
from rumor.train.observe.observer import ASKED_MAX, Observer
from rumor.train.observe.view import PeerView, SwarmView

from ...gossip.wire.test_codec import LINK
from .fake_network import FakeNetwork, FakePeer, a_member, answer, sighting

Open = Callable[..., tuple[Observer, FakeNetwork]]


def status(id: str, *others: Sighting, **changes: object) -> Status:
    made = Status(me=a_member(id, step=10), uptime_s=5.0, swarm_steps=20, members=others)
    return replace(made, **changes)  # type: ignore[arg-type]


def address(id: str) -> str:
    return a_member(id).addresses[0]


@pytest.fixture
def open_observer(monkeypatch: pytest.MonkeyPatch) -> Open:
    def make(*peers: FakePeer) -> tuple[Observer, FakeNetwork]:
        places = {address(p.status.me.id): p for p in peers if p.status is not None}
        network = FakeNetwork(places)
        monkeypatch.setattr(observer_module, "Transport", network)
        seed = next(iter(places), address("a"))
        return Observer(seed, clock=network.clock), network

    monkeypatch.setattr(observer_module, "_NAP_S", 0.1)  # only naps advance the clock
    return make


def peer_named(view: SwarmView, id: str) -> PeerView:
    (found,) = [peer for peer in view.peers if peer.id == id]
    return found


def ids(view: SwarmView) -> list[str]:
    return [peer.id for peer in view.peers]


def test_members_are_found_through_other_members(open_observer: Open) -> None:
    b = FakePeer(status("b", sighting("a"), sighting("c"), sample=(1.0, 0.0)))
    c = FakePeer(status("c", sighting("b"), sample=(3.0, 0.0)))
    observer, network = open_observer(FakePeer(status("a", sighting("b"))), b, c)
    view = observer.poll()
    assert ids(view) == ["a", "b", "c"] and view.answered == 3
    assert view.swarm_step == 20 and view.swarm == (b"s" * 16).hex()
    assert [peer.distance for peer in view.peers] == [None, 0.5, 0.5]
    assert view.consensus_distance == view.to_json()["consensus_distance"] == 0.5
    with observer:
        pass
    assert network.closed == ["all"]


def test_waiting_hidden_and_left_peers_are_shown_with_their_state(open_observer: Open) -> None:
    hidden = sighting("nat", step=77, addresses=())
    gone = Sighting(Member("old", 1, 0, Phase.LEFT, 123), Standing.LEFT)
    observer, _ = open_observer(FakePeer(status("a", hidden, gone, awaits=("b",))))
    a, nat, old = observer.poll().peers
    assert (a.state, a.awaits) == ("waiting", ("b",))
    assert (nat.state, nat.source, nat.step, nat.address) == ("training", "others", 77, "")
    assert not nat.figures and nat.steps_s is None
    assert (old.state, old.step, old.incarnation) == ("left", 123, None)


@pytest.mark.parametrize(
    ("standings", "state"),
    [
        ([Standing.LIVE, Standing.LIVE, Standing.DEAD], "training"),
        ([Standing.DEAD, Standing.DEAD, Standing.LIVE], "dead"),
        ([Standing.SUSPECTED, Standing.DEAD, Standing.LIVE], "suspected"),
        ([Standing.LEFT, Standing.LEFT, Standing.LIVE], "left"),
    ],
)
def test_the_majority_of_reports_decides_the_state_of_a_silent_peer(
    open_observer: Open, standings: Sequence[Standing], state: str
) -> None:
    names = ["a", "b", "c"]
    reports = [sighting("gone", standing, addresses=()) for standing in standings]
    known = [*map(sighting, names)]
    peers = [FakePeer(status(n, *known, gone)) for n, gone in zip(names, reports, strict=True)]
    observer, _ = open_observer(*peers)
    view = observer.poll()
    peer = peer_named(view, "gone")
    assert view.answered == 3 and peer.state == state


def test_a_peer_that_answers_is_cut_off_while_most_others_doubt_this_incarnation(
    open_observer: Open,
) -> None:
    others = [FakePeer(status(n, sighting("a", Standing.SUSPECTED))) for n in ("b", "c")]
    known = [sighting("b"), sighting("c")]
    cut_off = FakePeer(status("a", *known))
    observer, _ = open_observer(cut_off, *others)
    peer = peer_named(observer.poll(), "a")
    assert (peer.state, peer.source, peer.suspected_by) == ("cut off", "self", 2)
    # Others have not heard of a restarted peer yet.
    cut_off.status = status("a", *known, me=a_member("a", incarnation=2))
    assert peer_named(observer.poll(), "a").state == "training"


def test_rates_are_differences_over_the_time_of_the_peer(open_observer: Open) -> None:
    link = replace(LINK, bytes_received=10)
    peer = FakePeer(status("a", figures=(("bytes_sent", 100.0), ("mixed", 0.0)), links=(link,)))
    observer, _ = open_observer(peer)
    first = observer.poll()
    assert first.peers[0].steps_s is None and first.links[0].bytes_out_s is None
    peer.status = status(
        "a",
        me=a_member("a", step=30),
        uptime_s=7.0,
        figures=(("bytes_sent", 500.0), ("mixed", 4.0), ("staleness_steps_sum", 8.0)),
        links=(replace(link, bytes_sent=200),),
    )
    view = observer.poll()
    seen = view.peers[0]
    assert (seen.steps_s, seen.bytes_out_s, seen.bytes_in_s) == (10.0, 200.0, None)
    assert seen.staleness_mean == 2.0
    assert (view.links[0].bytes_out_s, view.links[0].bytes_in_s) == (50.0, 0.0)
    # Decreasing counts give a rate of 0, not a negative rate.
    peer.status = status("a", uptime_s=8.0, figures=(("bytes_sent", 0.0),))
    seen = observer.poll().peers[0]
    assert seen.steps_s == 0.0 and seen.bytes_out_s == 0.0


def test_a_later_incarnation_resets_rates_and_an_earlier_one_is_ignored(
    open_observer: Open,
) -> None:
    peer = FakePeer(status("a", me=a_member("a", step=10, incarnation=2)))
    observer, _ = open_observer(peer)
    assert observer.poll().peers[0].incarnation == 2
    peer.status = status("a", me=a_member("a", step=1, incarnation=3), uptime_s=1.0)
    seen = observer.poll().peers[0]
    assert (seen.incarnation, seen.step, seen.steps_s) == (3, 1, None)
    peer.status = status("a", me=a_member("a", step=99, incarnation=2), uptime_s=9.0)
    assert observer.poll().peers[0].step == 1


def test_answers_to_other_questions_are_ignored(open_observer: Open) -> None:
    peer = FakePeer(status("a"))
    observer, _ = open_observer(peer)
    assert observer.poll().answered == 1

    def answers_for_others(question: Envelope) -> list[tuple[Envelope, bytes]]:
        others = replace(question, source="observer-1.made-up")
        hello = Hello(members=(), rooted=False, reply=False)
        answers = [answer(others, status("a"))]
        answers += [answer(question, hello, source=source) for source in ("a", "b")]
        return [(each, b"") for each in answers]

    peer.override = answers_for_others
    view = observer.poll()
    assert view.answered == 0
    # Answers to a post are kept, except those of peers that are not known.
    assert [each.source for each in observer.answers] == ["a"]


def test_the_number_of_queried_peers_is_limited(open_observer: Open) -> None:
    names = [f"n{number:03}" for number in range(256)]
    places = [(f"tcp://10.0.1.1:{5000 + n}",) for n in range(256)]
    rows = [sighting(name, addresses=at) for name, at in zip(names, places, strict=True)]
    others = [Sighting(replace(r.member, id=f"o{r.member.id}"), r.standing) for r in rows]
    b = FakePeer(status("b", *others))
    observer, network = open_observer(FakePeer(status("a", sighting("b"), *rows[1:])), b)
    view = observer.poll(0.5)
    assert len(view.peers) == 513
    assert len(set(network.dialled)) == ASKED_MAX


def test_impossible_figures_are_not_shown(open_observer: Open) -> None:
    odd = (
        ("pushes", -1.0),
        ("mixed", float("inf")),
        ("loss", float("inf")),
        ("weight", 1e300),
        ("made up", 1.0),
        ("memory_bytes", 4.0),
    )
    observer, _ = open_observer(FakePeer(status("a", figures=odd)))
    view = observer.poll()
    seen = view.peers[0]
    assert seen.figures == {"loss": float("inf"), "weight": 1e300, "memory_bytes": 4.0}
    row = view.to_json()
    assert row["peers"][0]["loss"] == "inf" and row["weight"] == 1e300
    assert row["peers"][0]["pushes"] is None


def test_figures_without_a_finite_sum_do_not_stop_the_observer(open_observer: Open) -> None:
    much = (("weight", math.inf),)
    a = FakePeer(status("a", sighting("b"), figures=much, sample=(1.0, 0.0)))
    b = FakePeer(status("b", figures=(("weight", -math.inf),), sample=(-1.0, 1e-155)))
    observer, _ = open_observer(a, b)
    row = observer.poll().to_json()
    assert row["weight"] == "nan"
    assert row["consensus_distance"] == pytest.approx(2e155)


def test_a_peer_is_silent_until_others_report_it_dead(open_observer: Open) -> None:
    a, b = FakePeer(status("a", sighting("b", step=50))), FakePeer(status("b", sighting("a")))
    observer, network = open_observer(a, b)
    assert observer.poll().answered == 2
    b.status, a.status = None, status("a", sighting("b", step=50), uptime_s=6.0)
    for _ in range(2):
        view = observer.poll(0.2)
        network.now += 1
    seen = peer_named(view, "b")
    assert (seen.state, seen.source, seen.step) == ("silent", "others", 50)
    dead = sighting("b", Standing.DEAD)
    a.status = status("a", dead, uptime_s=7.0)
    view = observer.poll(0.2)
    seen = peer_named(view, "b")
    assert (seen.state, seen.dead_by) == ("dead", 1)
    assert view.alive == 1
    for number in range(40):
        a.status = status("a", dead, uptime_s=8.0 + number)
        observer.poll(0.2)
    dials = network.dialled.count(address("b"))
    assert address("b") in network.closed
    a.status = status("a", uptime_s=60.0)
    network.now += 100
    assert ids(observer.poll(0.2)) == ["a"]
    assert network.dialled.count(address("b")) == dials


def test_a_silent_peer_that_others_report_live_is_queried_forever(open_observer: Open) -> None:
    a, b = FakePeer(status("a", sighting("b"))), FakePeer(status("b", sighting("a")))
    observer, network = open_observer(b, a)  # the observer is given the address of b
    observer.poll()
    b.status = None
    for number in range(40):
        a.status = status("a", sighting("b", step=60 + number), uptime_s=6.0 + number)
        view = observer.poll(0.2)
    seen = peer_named(view, "b")
    assert (seen.state, seen.step) == ("silent", 99)
    assert network.closed == [] and network.dialled.count(address("b")) >= 40


def test_a_lone_peer_that_stops_answering_is_silent(open_observer: Open) -> None:
    a = FakePeer(status("a", events=(EventNote(number=1, event="founded", peer="", ago_s=0.0),)))
    observer, _ = open_observer(a)
    observer.poll()
    # A repeated report is not a second event.
    assert a.status is not None
    a.status = replace(a.status, uptime_s=6.0)
    assert len(observer.poll().events) == 1
    a.status = None
    for _ in range(3):
        view = observer.poll(0.2)
    assert [(peer.state, peer.step) for peer in view.peers] == [("silent", 10)]
    assert view.weight is None and view.answered == 0


def test_a_peer_that_moves_is_found_at_its_new_address(open_observer: Open) -> None:
    a, b = FakePeer(status("a", sighting("b"))), FakePeer(status("b"))
    observer, network = open_observer(a, b)
    assert observer.poll().answered == 2
    moved = "tcp://10.0.0.9:9999"
    network.peers[moved] = network.peers.pop(address("b"))
    b.status = status("b", uptime_s=9.0)
    for number in range(8):
        a.status = status("a", sighting("b", addresses=(moved,)), uptime_s=6.0 + number)
        view = observer.poll(0.2)
    assert view.answered == 2


def test_two_addresses_may_belong_to_one_peer(
    open_observer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = FakePeer(status("a"))
    network = FakeNetwork({address("a"): a, "tcp://10.0.0.7:1": a})
    monkeypatch.setattr(observer_module, "Transport", network)
    observer = Observer([address("a"), "10.0.0.7:1"], clock=network.clock)
    view = observer.poll()
    assert ids(view) == ["a"] and observer.poll(0.1).answered == 1
    assert network.closed == 2 * ["tcp://10.0.0.7:1"]


def test_a_given_address_is_used_if_the_peers_own_is_unreachable(
    open_observer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, network = open_observer()
    a, b = FakePeer(status("a", sighting("b"))), FakePeer(status("b", sighting("a")))
    network.peers = {"tcp://gate:1": a, "tcp://gate:2": b}
    network.resolved = {"tcp://gate:1": "tcp://10.9.9.9:1"}
    made: list[str] = []
    monkeypatch.setattr(observer_module, "Probe", lambda place, keyring: made.append(place))
    observer = Observer(["gate:1", "gate:2"], clock=network.clock)
    assert observer.poll(0.2).answered == 2
    network.peers = {"tcp://gate:2": b}
    for _ in range(3):
        observer.poll(0.2)
    network.peers = {"tcp://gate:1": a, "tcp://10.9.9.9:1": a, "tcp://gate:2": b}
    observer.poll(0.2)
    view = observer.poll(0.2)
    assert view.answered == 2
    observer.probe(peer_named(view, "a"))
    assert made == ["tcp://10.9.9.9:1"]


def test_a_silent_peer_that_most_report_dead_is_not_awaited(open_observer: Open) -> None:
    reporters = [FakePeer(status("a", sighting("b"), sighting("c"), sighting("z", Standing.DEAD)))]
    reporters += [FakePeer(status("b", sighting("z", Standing.DEAD))), FakePeer(status("c"))]
    z = FakePeer(status("z"))
    observer, network = open_observer(*reporters, z)
    assert reporters[2].status is not None
    reporters[2].status = replace(reporters[2].status, members=(sighting("z"),))
    assert observer.poll().answered == 4
    z.status = None
    for _ in range(2):
        observer.poll(0.2)
    began_s = network.now
    for _ in range(40):
        view = observer.poll(0.2)
    assert network.now == began_s and peer_named(view, "z").state == "dead"


def test_a_flood_of_answers_is_kept_in_bounded_memory(open_observer: Open) -> None:
    peer = FakePeer(status("a"))
    flood = [status("a", uptime_s=5.0 + number / 1000) for number in range(1000)]
    peer.override = lambda question: [(answer(question, each), b"") for each in flood]
    observer, _ = open_observer(peer)
    assert observer.poll().peers[0].uptime_s == flood[-1].uptime_s
    assert len(observer._targets["a"].recent) == 256


def test_the_error_says_why_no_peer_answers(open_observer: Open) -> None:
    observer, network = open_observer()
    with pytest.raises(TransportError, match="does not answer: is a peer listening there"):
        observer.poll()
    network.why = "has no keys"
    with pytest.raises(TransportError, match="does not answer: has no keys"):
        observer.poll()


def test_a_member_answers_only_for_itself_and_under_a_name_of_its_key(open_observer: Open) -> None:
    a, b = FakePeer(status("a", sighting("b"))), FakePeer(status("b"))
    observer, network = open_observer(a, b)
    network.keys = {address("a"): b"a", address("b"): b"x"}
    assert observer.poll(0.2).answered == 1
    network.keys[address("b")] = b"b"
    assert observer.poll(0.2).answered == 2
    b.override = lambda question: [(answer(question, status("a"), source="b"), b"")]
    assert observer.poll(0.2).answered == 1


def test_the_observer_follows_the_swarm_of_most_answering_members(open_observer: Open) -> None:
    peers = [FakePeer(status(id, *map(sighting, "abcd"))) for id in "abcd"]
    swarms = {"a": b"", "b": b"s" * 16, "c": b"s" * 16, "d": b"t" * 16}

    def answers(peer: FakePeer) -> Callable[[Envelope], Sequence[tuple[Envelope, bytes]]]:
        assert peer.status is not None
        reported, swarm = peer.status, swarms[peer.status.me.id]
        return lambda question: [(replace(answer(question, reported), swarm=swarm), b"")]

    for peer in peers:
        peer.override = answers(peer)
    observer, _ = open_observer(*peers)
    assert observer.poll().swarm == (b"s" * 16).hex()
    for peer in peers[1:3]:
        peer.override = lambda question: []
    assert observer.poll(0.2).swarm == (b"t" * 16).hex()
    peers[3].override = lambda question: []
    assert observer.poll(0.2).swarm == (b"t" * 16).hex()
