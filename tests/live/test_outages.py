"""What may happen to a swarm, over real sockets: shares go over TCP, as between machines.

In every scene the ledgers on disk account for every unit, and the survivors train on.
"""

import math
import signal
import socket as sockets
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rumor.gossip import Audit
from rumor.gossip.weight import ONE

from ..hosts import HostsError, hosts
from ..waiting import until
from .relay import Network
from .swarm import Swarm, Trainee

pytestmark = pytest.mark.live

STEP_S = 0.02
MB = 1_000_000


@contextmanager
def relayed(folder: Path, ids: str, **orders: Any) -> Iterator[tuple[Swarm, Network]]:
    """A swarm without peers yet, and a network in which faults can be made."""
    # The relays outlive the peers that dial them.
    given = {"step_s": STEP_S, "p": 0.5, **orders}
    with closing(Network()) as network, Swarm(folder, **given) as swarm:
        network.addresses |= {id: f"tcp://127.0.0.1:{free_port()}" for id in ids}
        yield swarm, network


def free_port() -> int:
    with sockets.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(swarm: Swarm, network: Network, ids: str) -> list[Trainee]:
    """Let peers found and join one after another, until all see all and exchange."""
    founder = join(swarm, network, ids[0], None)
    until(lambda: founder.is_in, "the founder starts")
    peers = [founder, *(join(swarm, network, id, founder) for id in ids[1:])]
    until(lambda: all(each.is_in for each in peers), "the others join")
    until(lambda: all(each.sees(*ids) for each in peers), "all see all")
    # The first snapshot of a large model takes ten times as long as the next: its pages are new.
    exchange(peers, 3)
    return peers


def join(swarm: Swarm, network: Network, id: str, member: Trainee | None) -> Trainee:
    """Start one peer that dials all others through relays."""
    others = {other: at for other, at in network.addresses.items() if other != id}
    relays = {at: network.toward(id, other) for other, at in others.items()}
    places = (member.address,) if member is not None else ()
    return swarm.start(id, bind=network.addresses[id], join=places, relays=relays)


def exchange(trainees: Sequence[Trainee], count: int) -> None:
    """Wait until each has pushed and mixed some more shares."""
    goals = [
        (each, {w: each.rows[-1][w] + count for w in ("mixed", "pushes")}) for each in trainees
    ]

    def reached() -> bool:
        return all(each.rows[-1][what] >= n for each, goal in goals for what, n in goal.items())

    until(reached, f"{count} shares more of all")


def mixes(trainee: Trainee, more: int = 1) -> None:
    """Wait until a peer has mixed some more shares."""
    goal = trainee.rows[-1]["mixed"] + more
    until(lambda: trainee.rows[-1]["mixed"] >= goal, f"{trainee.id} mixes")


def audited(swarm: Swarm) -> Audit:
    """Let all leave, and count; what was founded is held, or it is known where it went."""
    units = swarm.end()
    assert units.balanced, units
    return units


@pytest.mark.slow
def test_a_receiver_killed_in_mid_share_comes_back_on_its_port_and_joins(tmp_path: Path) -> None:
    size_bytes = 16 * MB
    with relayed(tmp_path, "abc", size_bytes=size_bytes) as (swarm, network):
        a, b, c = start(swarm, network, "abc")

        def toward_b() -> int:
            return sum(way.passed_bytes for way in network.ways(to="b"))

        # A share takes two seconds now, so that its middle can be hit.
        network.limit("b", size_bytes / 2)
        passed = toward_b()
        until(lambda: toward_b() - passed > 2 * size_bytes, "shares toward the victim")
        swarm.kill([b])
        first = b.life
        network.limit("b", math.inf)
        b.start()
        until(lambda: b.is_in, "the next life joins")
        mixes(b)
        mixes(a)
        broken = sum(len(x.pushed_to(first) - b.decided(first, x.life)) for x in (a, c))
        assert broken > 0, "no share was hit"
        assert b.life[1] > first[1]
        units = audited(swarm)
    assert units.died > 0 and units.founded == ONE
    # What was broken off is known to have been, since there is a later life.
    assert units.stranded == 0


@pytest.mark.slow
@pytest.mark.parametrize(("size_mb", "shards"), [(4, 1), (64, 32)])
def test_resets_in_mid_transfer_lose_no_weight_and_the_newcomer_joins_in_the_end(
    tmp_path: Path, size_mb: int, shards: int
) -> None:
    with relayed(tmp_path, "abc", size_bytes=size_mb * MB, shards=shards) as (swarm, network):
        a, _ = start(swarm, network, "ab")
        c = join(swarm, network, "c", a)
        start_s, count = time.monotonic(), 0
        while time.monotonic() - start_s < 5 or count < 20:
            time.sleep(0.2)
            count += network.reset()
        until(lambda: c.is_in, "the newcomer joins")
        mixes(c, shards + 1)
        units = audited(swarm)
    assert units.held == units.founded == shards * ONE


@pytest.mark.slow
def test_a_stopped_peer_is_missed_comes_back_and_holds_no_other_for_dead(tmp_path: Path) -> None:
    with relayed(tmp_path, "abcd", size_bytes=MB, timing="local") as (swarm, network):
        *others, d = start(swarm, network, "abcd")
        d.signal(signal.SIGSTOP)
        until(lambda: all(each.sees(*"abc") for each in others), "it is missed")
        d.signal(signal.SIGCONT)
        steps = len(d.rows)
        until(lambda: all(each.sees(*"abcd") for each in others), "it is back")
        mixes(d)
        # It was away itself.
        assert all(row["live"] == list("abcd") for row in d.rows[steps:]), d.said()
        units = audited(swarm)
    assert units.held == units.founded


@pytest.mark.slow
def test_a_newcomer_joins_over_a_link_that_is_slower_than_heartbeats(tmp_path: Path) -> None:
    link_bytes_s, size_bytes = 4e6, 24 * MB
    least_s = size_bytes / link_bytes_s
    given = {"size_bytes": size_bytes, "step_s": STEP_S, "leave_s": 2 * least_s + 20}
    try:
        network = hosts(2, link_bytes_s)
        laid = network.__enter__()
    except HostsError as error:
        pytest.skip(str(error))
    try:
        with Swarm(tmp_path, p=0.0, timing="lan", **given) as swarm:
            near, far = (f"tcp://{address}:7700" for address in laid.addresses)
            a = swarm.start("a", host=laid.command(0), bind=near)
            until(lambda: a.is_in, "the founder starts")
            b = swarm.start("b", host=laid.command(1), bind=far, join=(near,))
            assert until(lambda: b.is_in, "the newcomer joins") > least_s
            until(lambda: a.sees("a", "b") and b.sees("a", "b"), "they see each other")
            assert "silent" not in a.said() + b.said(), a.said() + b.said()
            assert a.rows[-1]["pushes"] == 1, "the copy was not sent once"
            units = audited(swarm)
    finally:
        network.__exit__(None, None, None)
    # Nor is what it hands on when it leaves given up because the link is slow.
    assert units.held == units.founded


@pytest.mark.slow
def test_a_one_way_cut_heals(tmp_path: Path) -> None:
    with relayed(tmp_path, "abc", size_bytes=MB, timing="local") as (swarm, network):
        peers = a, b, _ = start(swarm, network, "abc")
        network.cut("a", "b")
        time.sleep(12)
        network.heal()
        until(lambda: all(each.sees(*"abc") for each in peers), "all are live")
        pushed = len(a.pushed_to(b.life))
        until(lambda: len(a.pushed_to(b.life)) > pushed, "it pushes again")
        mixes(b, 3)
        units = audited(swarm)
    assert units.held + units.burned == units.founded


@pytest.mark.extended
def test_three_that_only_dial_out_exchange_through_the_one_that_does_not(tmp_path: Path) -> None:
    with Swarm(tmp_path, size_bytes=MB, step_s=STEP_S, p=0.5) as swarm:
        a = swarm.start("a")
        until(lambda: a.is_in, "the founder starts")
        hidden = [swarm.start(id, bind=None, join=(a.address,)) for id in "bcd"]
        until(lambda: all(each.is_in for each in hidden), "the others join")
        peers = [a, *hidden]
        until(lambda: all(each.sees(*"abcd") for each in peers), "they see one another")
        exchange(peers, 5)
        lives = [each.life for each in hidden]
        between = sum(len(one.pushed_to(life)) for one in hidden for life in lives)
        assert between == 0, "two that only dial out were paired"
        units = audited(swarm)
    assert units.held == units.founded


@pytest.mark.slow
def test_half_of_the_peers_die_at_once_and_the_others_train_on(tmp_path: Path) -> None:
    ids = [f"p{number:02}" for number in range(8)]
    together = {"rendezvous": str(tmp_path / "meeting"), "founders": len(ids)}
    given: dict[str, Any] = {"topology": "exponential", **together}
    with Swarm(tmp_path, size_bytes=MB // 10, step_s=0.1, p=0.2, **given) as swarm:
        peers = [swarm.start(id) for id in ids]
        until(lambda: all(each.sees(*ids) for each in peers), "all have founded")
        exchange(peers, 3)
        survivors = peers[1::2]
        swarm.kill(peers[::2])
        left = [each.id for each in survivors]
        until(lambda: all(each.sees(*left) for each in survivors), "all is known")
        for each in survivors:
            mixes(each)
        units = audited(swarm)
    assert units.founded == 8 * ONE
    assert units.held + units.in_flight + units.stranded + units.burned + units.died == 8 * ONE
