"""A swarm of real peers, seen by an observer that is not a member."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rumor.gossip import ConfigError, TransportError
from rumor.train.observe.observer import Observer
from rumor.train.observe.view import SwarmView
from rumor.train.runtime.search import bare_address

from ...gossip.transport.keyrings import Swarm as Keys
from ...waiting import until
from ..members import Member, one_of, swarm

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Member]]:
    folder = tmp_path_factory.mktemp("swarm")
    with swarm(*(one_of(folder, f"p{n}", 3) for n in range(3)), at_once=True) as members:
        yield members


def poll_until(observer: Observer, condition: Callable[[SwarmView], bool]) -> SwarmView:
    """Poll until a view meets the condition."""
    views: list[SwarmView] = []

    def holds() -> bool:
        with suppress(TransportError):
            views[:] = [observer.poll()]
        return bool(views) and condition(views[0])

    until(holds, lambda: views)
    return views[0]


def test_an_observer_sees_all_members_and_leaves_no_trace(trio: list[Member]) -> None:
    with Observer(trio[1].address.removeprefix("tcp://")) as observer:
        view = poll_until(
            observer,
            lambda view: (
                view.answered == 3
                and all(peer.steps_s for peer in view.peers)
                and any(link.status.roundtrip_s and link.bytes_out_s for link in view.links)
            ),
        )
        # A peer reports a running step before the swarm's total includes it.
        first = max(peer.step for peer in view.peers)
        later = poll_until(observer, lambda view: view.swarm_step >= first)
    assert [peer.id for peer in view.peers] == ["p0", "p1", "p2"]
    assert view.swarm == trio[0].peer.stats().swarm and view.alive == later.alive == 3
    for peer, member in zip(view.peers, trio, strict=True):
        assert (peer.state, peer.source) == ("training", "self")
        assert peer.address == member.address.removeprefix("tcp://")
        assert peer.settings["rule"] == "gosgd" and peer.settings["topology"] == "exponential"
        # A running step is reported at once, and counted when it ends.
        assert 0 < peer.step <= member.peer.steps + 1
        assert peer.figures["loss"] == 0.5
        assert peer.figures["model_bytes"] and "memory_bytes" in peer.figures
        assert peer.figures["pushes"] <= member.peer.stats().counters.pushes
    # The members never train, so all models equal the one they founded with.
    assert [peer.distance for peer in view.peers] == [0.0] * 3 and not view.consensus_distance
    assert {link.source for link in view.links} == {"p0", "p1", "p2"}
    assert {link.status.peer for link in view.links if link.source == "p0"} <= {"p1", "p2"}
    assert sum(link.status.pushes for link in view.links) > 0
    assert view.steps_s is not None and view.steps_s > 0
    assert view.weight is not None and 0 < view.weight < 6
    assert view.uptime_s is not None
    for member in trio:
        assert member.peer.members == ("p0", "p1", "p2")
        assert member.peer.stats().counters.errors == 0
        assert set(member.peer.stats().counters.links) <= {"p0", "p1", "p2"}
        for name in ("events.jsonl", "ledger.jsonl"):
            text = (member.peer.config.out or Path()) / name
            rows = map(json.loads, text.read_text().splitlines())
            assert {row.get("peer") for row in rows} <= {None, "p0", "p1", "p2"}


def test_a_missing_or_invalid_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs the address of a member"):
        Observer(())
    with pytest.raises(ConfigError):
        Observer("no address")


@pytest.mark.extended
def test_an_observer_survives_the_death_of_its_seed_and_of_all_peers(tmp_path: Path) -> None:
    members = [one_of(tmp_path, f"p{n}", 3, times={"dead_s": 2.0}) for n in range(3)]
    with swarm(*members, at_once=True), Observer(members[0].address) as observer:
        poll_until(observer, lambda view: view.answered == 3)
        members[0].die()
        poll_until(observer, lambda view: view.answered == 2)
        view = poll_until(observer, lambda view: view.alive == 2)
        (gone,) = [peer for peer in view.peers if peer.id == "p0"]
        assert (gone.state, gone.source) == ("dead", "others")
        assert gone.dead_by == 2 and gone.step > 0
        view = poll_until(observer, lambda view: ("died", "p0") in events_of(view))
        assert events_of(view).count(("died", "p0")) == 1
        for member in members[1:]:
            member.die()
        poll_until(observer, lambda view: view.answered == 0)
        ends = {"dead", "silent"}
        view = poll_until(observer, lambda view: {peer.state for peer in view.peers} == ends)
        assert len(view.peers) == 3


@pytest.mark.extended
def test_a_swarm_with_keys_answers_only_holders_of_a_key(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    files = {name: keys.machine(name) for name in ("p0", "p1", "o")}
    roster = keys.file()
    members = [one_of(tmp_path, p, 2, key=files[p], roster=roster) for p in ("p0", "p1")]
    with swarm(*members, at_once=True):
        address = bare_address(members[0].address)
        with Observer(address, keyring=keys.keyring("o")) as observer:
            view = poll_until(observer, lambda view: view.answered == 2)
        assert [peer.id for peer in view.peers] == ["p0", "p1"]
        assert view.peers[0].address == address
        with Observer(address) as observer, pytest.raises(TransportError, match="does not answer"):
            observer.poll(0.1)


def events_of(view: SwarmView) -> list[tuple[str, str]]:
    return [(event.event, event.peer) for event in view.events]
