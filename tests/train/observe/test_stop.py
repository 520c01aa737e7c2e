"""A whole swarm is told to stop, and followed to its end: real peers on the loopback interface."""

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rumor.gossip import TransportError
from rumor.gossip.effects.ledger import Account
from rumor.gossip.transport.keys.keyring import read_keyring
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Phase, Stopping
from rumor.train.observe import stop as stopping
from rumor.train.observe.observer import Observer
from rumor.train.observe.stop import End, SwarmStop
from rumor.train.observe.view import PeerView, State, SwarmView

from ...gossip.transport.keyrings import Swarm
from ...waiting import LIMIT_S, until
from .members import Member

pytestmark = pytest.mark.live


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Member]]:
    """Members are put in here, and are ended with the test."""
    members: list[Member] = []
    yield members
    for member in members:
        member.end()


def inside(*members: Member) -> None:
    for member in members:
        assert member.inside.wait(LIMIT_S)


def run(request: SwarmStop, timeout_s: float = LIMIT_S) -> list[dict[str, End]]:
    return [{id: peer.end for id, peer in seen.items()} for seen in request.run(timeout_s)]


def test_one_address_is_enough_to_end_all(started: list[Member], tmp_path: Path) -> None:
    started += [Member(tmp_path, "p0", 3), Member(tmp_path, "p1", 3)]
    started += [Member(tmp_path, "p2", 3, bind=None)]
    inside(*started)
    with Observer(started[1].address) as observer:
        request = SwarmStop(observer, timeout_s=LIMIT_S)
        rounds = run(request)
        assert request.is_clean and set(rounds[-1].values()) == {End.GONE}
        assert request.swarm and request.shards == 1
        told = {id: peer.weight for id, peer in request.peers.items()}
        for member in started:
            member.thread.join(LIMIT_S)
            assert member.peer.merged is not None and member.peer.merged.complete
        held = {m.peer.id: sum(account.weight for account in _accounts(m)) for m in started}
        assert sum(held.values()) == 3 * ONE
        # One that only dials out is not heard itself.
        assert told == held | {"p2": None}
        for member in started:
            assert list((tmp_path / member.peer.id / "checkpoints").glob("*.safetensors"))


def _accounts(member: Member) -> list[Account]:
    return [*member.peer._running().protocol.accounts]


@pytest.mark.extended
def test_one_that_does_not_obey_trains_on_with_all_weight(
    started: list[Member], tmp_path: Path
) -> None:
    started += [Member(tmp_path, "p0", 2, linger_s=1.0)]
    started += [Member(tmp_path, "p1", 2, remote_stop=False)]
    inside(*started)
    with Observer(started[0].address) as observer:
        request = SwarmStop(observer, timeout_s=LIMIT_S)
        run(request)
        assert not request.is_clean
        assert {id: peer.end for id, peer in request.peers.items()} == {
            "p0": End.GONE,
            "p1": End.REFUSED,
        }
        assert "remote_stop=False" in request.peers["p1"].why
    steps = started[1].peer.steps
    until(lambda: started[1].peer.steps > steps + 5, "it trains on")
    until(lambda: started[1].peer.weight == 2.0, "the weight was handed on")


@pytest.mark.extended
def test_a_loop_that_does_not_end_is_said_to_be_late(started: list[Member], tmp_path: Path) -> None:
    started += [Member(tmp_path, "p0", 1, obeys=False)]
    inside(*started)
    with Observer(started[0].address) as observer:
        request = SwarmStop(observer, timeout_s=LIMIT_S)

        def is_asked() -> bool:
            assert run(request, 1.0)[-1] == {"p0": End.ASKED}
            return request.peers["p0"].weight is not None

        until(is_asked)
        assert not request.is_clean and request.peers["p0"].weight == ONE
    assert started[0].peer.ended_by == "rumor stop"


@pytest.mark.extended
def test_with_signals_the_process_ends_whatever_the_loop_does(
    started: list[Member], tmp_path: Path
) -> None:
    started += [
        Member(tmp_path, "p0", 2, obeys=False, signals=True),
        Member(tmp_path, "p1", 2, obeys=False, signals=True, rule="gosgd:p=0.5"),
    ]
    inside(*started)
    with Observer(started[0].address) as observer:
        request = SwarmStop(observer, timeout_s=LIMIT_S)
        run(request)
        assert request.is_clean
    for member in started:
        member.thread.join(LIMIT_S)
        assert isinstance(member.failure, SystemExit) and member.failure.code == 0
        assert member.peer.merged is not None and member.peer.merged.complete


@pytest.mark.extended
@pytest.mark.parametrize("signals", [False, True])
def test_where_everybody_waits_all_leave(
    started: list[Member], tmp_path: Path, signals: bool
) -> None:
    # Without signals the loop merges: nobody waits for a round that never comes.
    for name in ("p0", "p1"):
        config = {"rule": "allreduce", "signals": signals, "linger_s": 1.0}
        started.append(Member(tmp_path, name, 2, obeys=not signals, **config))  # type: ignore[arg-type]
    inside(*started)
    with Observer(started[0].address) as observer:
        request = SwarmStop(observer, timeout_s=LIMIT_S)
        run(request)
        assert request.is_clean
    for member in started:
        member.thread.join(LIMIT_S)
        assert not member.thread.is_alive()
        assert isinstance(member.failure, SystemExit) is signals


def test_with_keys_the_owner_alone_is_obeyed(started: list[Member], tmp_path: Path) -> None:
    swarm = Swarm(tmp_path)
    for name in ("m1", "m2", "m3"):
        swarm.machine(name)
    key, roster = tmp_path / "m1.key", swarm.file("m1.roster")
    started += [Member(tmp_path, "m1", 1, rendezvous=None, key=key, roster=roster)]
    started += [
        Member(
            tmp_path,
            *("m2", 1),
            rendezvous=None,
            join=started[0].address if started[0].inside.wait(LIMIT_S) else "",
            key=tmp_path / "m2.key",
            roster=swarm.file("m2.roster"),
        )
    ]
    inside(*started)
    address = f"tcp://{started[0].address.rpartition('@')[2]}"
    with Observer(address, keyring=swarm.keyring("m3")) as observer:
        request = SwarmStop(observer, keyring=swarm.keyring("m3"), timeout_s=LIMIT_S)
        run(request)
        assert {peer.end for peer in request.peers.values()} == {End.REFUSED}
        assert "only the roster's owner can stop it" in request.peers["m1"].why
    assert all(not member.peer.ended_by for member in started)
    owner = read_keyring(swarm.owner_key(), swarm.file())
    with Observer(address, keyring=owner) as observer:
        request = SwarmStop(observer, keyring=owner, timeout_s=LIMIT_S)
        run(request)
        assert request.is_clean and sorted(request.peers) == ["m1", "m2"]


def test_a_peer_that_seeks_a_swarm_is_told_of_as_such(
    started: list[Member], tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    started += [Member(tmp_path, "p0", 2, bind=address)]
    with (
        Observer(address) as observer,
        pytest.raises(TransportError, match="belongs to no swarm yet"),
    ):
        SwarmStop(observer, timeout_s=LIMIT_S)


def request_of(*peers: PeerView) -> SwarmStop:
    """A request to a swarm that looks like this, of which nobody can be asked."""
    view = SwarmView(time_s=0.0, swarm="ab" * 16, peers=peers)
    asked: Any = SimpleNamespace(
        poll=lambda timeout_s: view, post=lambda *_: False, take_answers=list
    )
    return SwarmStop(asked)


def seen(id: str, state: State = "training", incarnation: int = 1, step: int = 0) -> PeerView:
    return PeerView(id=id, state=state, source="others", incarnation=incarnation, step=step)


def test_what_others_tell_counts_of_those_who_cannot_be_asked() -> None:
    request = request_of(*(seen("x", step=1), seen("y"), seen("z"), seen("o", "left")))
    assert sorted(request.peers) == ["x", "y", "z"]

    def follow(*peers: PeerView) -> list[End]:
        request._follow(SwarmView(time_s=0.0, peers=peers))
        return [request.peers[id].end for id in ("x", "y", "z")]

    told = follow(seen("x", step=7), seen("y", "quiet"), seen("z", "leaving"))
    assert told == [End.ASKED, End.MERGING, End.LEAVING] and request.peers["x"].step == 7
    told = follow(seen("z", "left"), seen("x", incarnation=2))
    assert told == [End.BACK, End.MERGING, End.GONE]
    # What it says itself is not corrected by others; nor is what is over.
    request.peers["y"].end, request.peers["y"].weight = End.DONE, 5
    assert follow(seen("y"), seen("z")) == [End.BACK, End.DONE, End.GONE]


def test_one_of_whom_nobody_tells_any_more_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "_SILENT_ROUNDS", 1)
    request = request_of(seen("p0"), seen("x"))
    asks = request._request()
    peer = request.peers["x"]
    request._ask(peer, asks)
    request._ask(peer, asks)
    told = peer.end
    assert told is End.ASKED and peer.silent_rounds == 2  # p0 may still tell
    request.peers["p0"].end = End.GONE
    request._ask(peer, asks)
    assert peer.end is End.LOST


@pytest.mark.parametrize(
    ("told", "end"),
    [
        (Stopping("no", 1, Phase.TRAINING, 1, False), End.REFUSED),
        (Stopping("", 1, Phase.TRAINING, 1, False), End.ASKED),
        (Stopping("", 1, Phase.FINISHED, 1, False), End.MERGING),
        (Stopping("", 1, Phase.LEAVING, 1, False), End.LEAVING),
        (Stopping("", 0, Phase.LEFT, 1, True), End.DONE),
    ],
)
def test_how_far_a_peer_is_by_its_own_words(told: Stopping, end: End) -> None:
    assert stopping._end_of(told) is end
