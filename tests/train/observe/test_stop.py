"""Requests to stop a whole swarm, of real peers on the loopback interface."""

import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rumor.gossip import TransportError
from rumor.gossip.effects.ledger import Account
from rumor.gossip.transport.keys.keyring import Keyring, read_keyring
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Phase, Stopping
from rumor.train.observe import stop as stopping
from rumor.train.observe.observer import Observer
from rumor.train.observe.stop import End, SwarmStop
from rumor.train.observe.view import PeerView, State, SwarmView
from rumor.train.runtime import runner

from ...gossip.transport.keyrings import Swarm
from ...waiting import LIMIT_S, until
from ..members import Member, one_of

pytestmark = pytest.mark.live


@pytest.fixture
def members(tmp_path: Path) -> Iterator[list[Member]]:
    """Members that a test adds, and that end with it."""
    members: list[Member] = []
    yield members
    for member in members:
        member.end(at_once=True)


def request_stop(address: str, keyring: Keyring | None = None) -> SwarmStop:
    """Request the swarm of one member to stop, and follow it to its end."""
    with Observer(address, keyring=keyring) as observer:
        request = SwarmStop(observer, keyring=keyring, timeout_s=LIMIT_S)
        for _ in request.run(LIMIT_S):
            pass
        return request


def addresses(members: list[Member]) -> list[str]:
    """Wait until all members have joined; return their addresses, empty for dial-out members."""
    return [member.peer.address or "" for member in members if member.entered()]


def ends(request: SwarmStop) -> dict[str, End]:
    return {id: peer.end for id, peer in request.peers.items()}


@pytest.mark.extended
def test_one_address_is_enough_to_stop_a_swarm(members: list[Member], tmp_path: Path) -> None:
    members += [one_of(tmp_path, "p0", 3), one_of(tmp_path, "p1", 3)]
    members += [one_of(tmp_path, "p2", 3, bind=None)]
    request = request_stop(addresses(members)[1])
    assert request.is_clean and set(ends(request).values()) == {"gone"}
    assert request.swarm and request.shards == 1
    for member in members:
        member.thread.join(LIMIT_S)
        assert member.peer.merged is not None and member.peer.merged.complete
        assert list((tmp_path / member.peer.id / "checkpoints").glob("*.safetensors"))
    held = {m.peer.id: sum(account.weight for account in _accounts(m)) for m in members}
    assert sum(held.values()) == 3 * ONE
    # The weight of a peer that only dials out is unknown.
    assert {id: peer.weight for id, peer in request.peers.items()} == held | {"p2": None}


def test_peers_stay_until_the_requester_has_read_that_they_are_done(
    members: list[Member], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_LAST_WORD_S", LIMIT_S)
    members += [one_of(tmp_path, "p0", 2), one_of(tmp_path, "p1", 2)]
    with Observer(addresses(members)[0]) as observer:
        request = SwarmStop(observer, timeout_s=LIMIT_S)
        for _ in request.run(LIMIT_S):
            time.sleep(0.0 if request.is_clean else 1.5)
    assert set(ends(request).values()) == {"gone"}
    assert sum(peer.weight or 0 for peer in request.peers.values()) == 2 * ONE


def _accounts(member: Member) -> list[Account]:
    return [*member.peer._running().protocol.accounts]


@pytest.mark.extended
def test_a_stop_is_not_clean_while_a_loop_continues(members: list[Member], tmp_path: Path) -> None:
    members += [one_of(tmp_path, "p0", 1, obeys=False).entered()]
    with Observer(members[0].address) as observer:
        request = SwarmStop(observer, timeout_s=LIMIT_S)

        def has_answered() -> bool:
            *_, last = request.run(1.0)
            assert {id: peer.end for id, peer in last.items()} == {"p0": "asked"}
            return request.peers["p0"].weight is not None

        until(has_answered)
        assert not request.is_clean and request.peers["p0"].weight == ONE
    assert members[0].peer.ended_by == "rumor stop"


def test_only_the_roster_owner_can_stop_a_swarm_with_keys(
    members: list[Member], tmp_path: Path
) -> None:
    keys = Swarm(tmp_path)
    files = {name: keys.machine(name) for name in ("m1", "m2", "m3")}
    for name in ("m1", "m2"):
        given: dict[str, Any] = {"key": files[name], "roster": keys.file(f"{name}.roster")}
        join = (members[0].address,) if members else ()
        member = one_of(tmp_path, name, 1, rendezvous=None, join=join, **given)
        members += [member.entered()]
    address = f"tcp://{members[0].address.rpartition('@')[2]}"
    request = request_stop(address, keys.keyring("m3"))
    assert set(ends(request).values()) == {"refused"}
    assert "only the roster's owner can stop it" in request.peers["m1"].why
    assert all(not member.peer.ended_by for member in members)
    request = request_stop(address, read_keyring(keys.owner_key(), keys.file()))
    assert request.is_clean and sorted(request.peers) == ["m1", "m2"]


def request_of(*peers: PeerView) -> SwarmStop:
    """A request to a swarm of these peers, none of which can be reached."""
    view = SwarmView(time_s=0.0, swarm="ab" * 16, peers=peers)
    observer: Any = SimpleNamespace(poll=lambda _: view, post=lambda *_: False, answers=deque())
    return SwarmStop(observer)


def peer_view(id: str, state: State = "training", incarnation: int = 1, step: int = 0) -> PeerView:
    return PeerView(id=id, state=state, source="others", incarnation=incarnation, step=step)


def test_a_peer_without_a_swarm_cannot_be_stopped() -> None:
    seeking: Any = SimpleNamespace(poll=lambda _: SwarmView(time_s=0.0))
    with pytest.raises(TransportError, match="belongs to no swarm yet"):
        SwarmStop(seeking)


def test_reports_of_other_members_count_for_unreachable_peers() -> None:
    gone = peer_view("o", "left"), peer_view("d", "dead")
    request = request_of(
        peer_view("x", step=1), peer_view("y"), peer_view("z"), peer_view("k"), *gone
    )
    assert sorted(request.peers) == ["k", "x", "y", "z"]

    def follow(*peers: PeerView) -> list[End]:
        request._follow(SwarmView(time_s=0.0, peers=peers))
        return [request.peers[id].end for id in ("x", "y", "z")]

    reported = follow(peer_view("x", step=7), peer_view("y", "quiet"), peer_view("z", "leaving"))
    assert reported == ["asked", "merging", "leaving"] and request.peers["x"].step == 7
    reported = follow(peer_view("z", "left"), peer_view("x", incarnation=2), peer_view("k", "dead"))
    assert reported == ["back", "merging", "gone"] and request.peers["k"].end == "lost"
    # Reports of others correct neither a peer's own answer nor its end.
    request.peers["y"].end, request.peers["y"].weight = "done", 5
    assert follow(peer_view("y"), peer_view("z")) == ["back", "done", "gone"]


def test_a_silent_peer_that_no_member_reports_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "_SILENT_ROUNDS", 1)
    request = request_of(peer_view("p0"), peer_view("x"))
    message, peer = request._request(), request.peers["x"]
    for _ in range(2):
        request._ask(peer, message)
    end = peer.end
    assert end == "asked" and peer.silent_rounds == 2  # p0 may still report it
    request.peers["p0"].end = "gone"
    request._ask(peer, message)
    assert peer.end == "lost"


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (Stopping("no", 1, Phase.TRAINING, 1, False), "refused"),
        (Stopping("", 1, Phase.TRAINING, 1, False), "asked"),
        (Stopping("", 1, Phase.FINISHED, 1, False), "merging"),
        (Stopping("", 1, Phase.LEAVING, 1, False), "leaving"),
        (Stopping("", 0, Phase.LEFT, 1, True), "done"),
    ],
)
def test_an_answer_maps_to_the_progress_of_the_peer(answer: Stopping, end: End) -> None:
    assert stopping._end_of(answer) == end


@pytest.mark.extended
def test_a_peer_that_refuses_to_stop_trains_on_with_all_weight(
    members: list[Member], tmp_path: Path
) -> None:
    members += [one_of(tmp_path, "p0", 2, linger_s=1.0)]
    members += [one_of(tmp_path, "p1", 2, remote_stop=False)]
    request = request_stop(addresses(members)[0])
    assert not request.is_clean and ends(request) == {"p0": "gone", "p1": "refused"}
    assert "remote_stop=False" in request.peers["p1"].why
    steps = members[1].peer.steps
    until(lambda: members[1].peer.steps > steps + 5, "more steps of p1")
    until(lambda: members[1].peer.weight == 2.0, "all weight at p1")


# Without signals the loop merges; under a synchronous rule no peer waits for an absent one.
@pytest.mark.extended
@pytest.mark.parametrize(
    ("rules", "signals"),
    [(("gosgd", "gosgd:p=0.5"), True), (("allreduce",) * 2, True), (("allreduce",) * 2, False)],
)
def test_with_signals_a_stop_request_ends_the_process(
    members: list[Member], tmp_path: Path, rules: tuple[str, str], signals: bool
) -> None:
    for number, rule in enumerate(rules):
        given: dict[str, Any] = {"rule": rule, "signals": signals}
        given |= {"linger_s": 1.0} if rule == "allreduce" else {}
        members += [one_of(tmp_path, f"p{number}", 2, obeys=not signals, **given)]
    assert request_stop(addresses(members)[0]).is_clean
    for member in members:
        member.thread.join(LIMIT_S)
        assert not member.thread.is_alive()
        assert (isinstance(member.error, SystemExit) and member.error.code == 0) is signals
        if rules[0] == "gosgd":
            assert member.peer.merged is not None and member.peer.merged.complete
