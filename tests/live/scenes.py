"""Faults of a swarm over real sockets, each with its outcome.

In every scene shares go over TCP, as between machines. A scene returns counts and durations for a
reader, and asserts what must hold in every run.
"""

import math
import signal
import socket as sockets
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rumor.gossip import Audit
from rumor.gossip.weight import ONE

from ..hosts import hosts
from ..waiting import until
from .relay import Network
from .swarm import Pause, Swarm, Trainee

__all__ = [
    "Outcome",
    "dial_out_only",
    "half_killed",
    "one_way_cut",
    "receiver_killed",
    "resets",
    "slow_link",
    "stopped",
]

_RESET_S = 0.2


@dataclass(slots=True)
class Outcome:
    """The outcome of a scene."""

    audit: Audit
    pauses: dict[str, Pause]
    """The longest pause of each survivor during the scene."""
    duration_s: float
    """Time for which the survivors were watched."""
    found: dict[str, float] = field(default_factory=dict)
    """Other figures by name."""

    def __str__(self) -> str:
        worst = max(self.pauses.values(), key=lambda pause: pause.own_steps)
        figures = "".join(f"; {name}: {figure:.4g}" for name, figure in self.found.items())
        units = self.audit
        return (
            f"longest pause {worst.gossip_s * 1e3:.0f} ms, {worst.own_steps:.2f} of its own steps "
            f"({worst.cpu_s * 1e3:.0f} ms of it computing), in {self.duration_s:.1f} s{figures}; "
            f"weight in founders: founded {units.founded / ONE:g}, held {units.held / ONE:.6g}, "
            f"burned {units.burned / ONE:.6g}, gone with the dead {units.died / ONE:.6g}, "
            f"in flight {units.in_flight}, stranded {units.stranded}"
        )


class _Watch:
    """Times a scene from the survivors' folders."""

    def __init__(self, survivors: Sequence[Trainee]) -> None:
        self._survivors = survivors
        self._start_s = time.monotonic()

    def outcome(self, swarm: Swarm, found: dict[str, float]) -> Outcome:
        """End the scene, let all peers leave, and audit their ledgers."""
        end_s = time.monotonic()
        for survivor in self._survivors:
            assert survivor.steps(self._start_s, end_s) > 0, f"{survivor.id} took no step"
        totals = swarm.end()
        assert totals.balanced, totals
        pauses = {each.id: each.pause(self._start_s, end_s) for each in self._survivors}
        return Outcome(totals, pauses, end_s - self._start_s, found)


def receiver_killed(folder: Path, size_bytes: int, step_s: float) -> Outcome:
    """SIGKILL a peer in the middle of a share, and start its next incarnation on the same port."""
    with _relayed(folder, "abc", size_bytes=size_bytes, step_s=step_s, p=0.5) as (swarm, network):
        a, b, c = _start(swarm, network, "abc")
        _warm_up([a, b, c])
        # A share takes two seconds now, so that its middle can be hit.
        network.limit("b", size_bytes / 2)
        watch = _Watch([a, c])
        passed = _bytes_to(network, "b")
        until(
            lambda: _bytes_to(network, "b") - passed > 2 * size_bytes,
            "shares toward the victim",
        )
        swarm.kill([b])
        first = b.incarnation
        network.limit("b", math.inf)
        b.start()
        back_s = until(lambda: b.has_joined, "the next incarnation joins")
        _exchange([a, b], 1)
        interrupted = sum(len(x.pushed_to(first) - b.decided(first, x.incarnation)) for x in (a, c))
        assert interrupted > 0, "no share was interrupted"
        assert b.incarnation[1] > first[1]
        outcome = watch.outcome(
            swarm, {"shares interrupted": interrupted, "next incarnation joined after, s": back_s}
        )
        assert outcome.audit.died > 0
        return outcome


def resets(
    folder: Path,
    size_bytes: int,
    step_s: float,
    *,
    for_s: float,
    resets_min: int = 0,
    shards: int = 1,
) -> Outcome:
    """Reset all connections repeatedly while a newcomer waits for its copy."""
    with _relayed(folder, "abc", size_bytes=size_bytes, step_s=step_s, p=0.5, shards=shards) as (
        swarm,
        network,
    ):
        a, b = _start(swarm, network, "ab")
        _warm_up([a, b])
        watch = _Watch([a, b])
        mixed = a.rows[-1]["mixed"] + b.rows[-1]["mixed"]
        c = _join(swarm, network, "c", a)
        joined_s, start_s, count = 0.0, time.monotonic(), 0
        while time.monotonic() - start_s < for_s or count < resets_min:
            time.sleep(_RESET_S)
            count += network.reset()
            if not joined_s and c.has_joined:
                joined_s = time.monotonic() - start_s
        mixed_during_resets = a.rows[-1]["mixed"] + b.rows[-1]["mixed"] - mixed
        after_last_s = until(lambda: c.has_joined, "the newcomer joins")
        until(lambda: c.rows[-1]["mixed"] > shards, "the newcomer mixes")
        return watch.outcome(
            swarm,
            {
                "connections reset": count,
                "newcomer joined during the resets after, s (0: it did not)": joined_s,
                "newcomer joined after the last reset, s": 0.0 if joined_s else after_last_s,
                "shares mixed by the others during the resets": mixed_during_resets,
            },
        )


def stopped(
    folder: Path, size_bytes: int, step_s: float, *, for_s: float, preset: str = "lan"
) -> Outcome:
    """SIGSTOP a peer until it is considered dead, and resume it."""
    with _relayed(folder, "abcd", size_bytes=size_bytes, step_s=step_s, p=0.5, preset=preset) as (
        swarm,
        network,
    ):
        a, b, c, d = _start(swarm, network, "abcd")
        _warm_up([a, b, c, d])
        watch = _Watch([a, b, c])
        d.signal(signal.SIGSTOP)
        stopped_s = time.monotonic()
        dead_s = until(
            lambda: all(x.sees(*"abc") for x in (a, b, c)), "the stopped peer is considered dead"
        )
        time.sleep(max(0.0, stopped_s + for_s - time.monotonic()))
        d.signal(signal.SIGCONT)
        steps = len(d.rows)
        back_s = until(
            lambda: all(x.sees(*"abcd") for x in (a, b, c)), "the stopped peer is live again"
        )
        _exchange([d], 1)
        # The stopped peer itself was absent, so it must not consider another peer dead.
        assert all(row["live"] == list("abcd") for row in d.rows[steps:]), d.log_text()
        return watch.outcome(
            swarm, {"considered dead after, s": dead_s, "live again after, s": back_s}
        )


def slow_link(folder: Path, size_bytes: int, step_s: float, *, link_bytes_s: float) -> Outcome:
    """Join over a link that needs a long time for a copy, with heartbeats enabled."""
    least_s = size_bytes / link_bytes_s
    settings = {"size_bytes": size_bytes, "step_s": step_s, "leave_s": 2 * least_s + 20}
    with hosts(2, link_bytes_s) as links, Swarm(folder, p=0.0, preset="lan", **settings) as swarm:
        near, far = (f"tcp://{address}:7700" for address in links.addresses)
        a = swarm.start("a", host=links.command(0), bind=near)
        until(lambda: a.has_joined, "the founder starts")
        watch = _Watch([a])
        b = swarm.start("b", host=links.command(1), bind=far, join=(near,))
        joined_s = until(lambda: b.has_joined, "the newcomer joins")
        until(lambda: a.sees("a", "b") and b.sees("a", "b"), "both peers see each other")
        assert "silent" not in a.log_text() + b.log_text(), a.log_text() + b.log_text()
        assert a.rows[-1]["pushes"] == 1, "the copy was not sent once"
        assert joined_s > least_s
        return watch.outcome(
            swarm, {"joined after, s": joined_s, "transfer time at the link's rate, s": least_s}
        )


def one_way_cut(
    folder: Path, size_bytes: int, step_s: float, *, for_s: float, preset: str = "local"
) -> Outcome:
    """Cut the link from one peer to another for a while; the reverse direction stays open."""
    with _relayed(folder, "abc", size_bytes=size_bytes, step_s=step_s, p=0.5, preset=preset) as (
        swarm,
        network,
    ):
        peers = a, b, _ = _start(swarm, network, "abc")
        _warm_up(peers)
        watch = _Watch(peers)
        network.cut("a", "b")
        time.sleep(for_s)
        network.heal()
        all_ids = [each.id for each in peers]
        back_s = until(lambda: all(each.sees(*all_ids) for each in peers), "all are live")
        pushed = len(a.pushed_to(b.incarnation))
        until(lambda: len(a.pushed_to(b.incarnation)) > pushed, "a pushes to b again")
        _exchange([b], 3)
        suspecting = sum("silent" in each.log_text() for each in peers)
        return watch.outcome(
            swarm,
            {
                "all live again after healing, s": back_s,
                "peers that considered another dead": suspecting,
            },
        )


def dial_out_only(folder: Path, size_bytes: int, step_s: float, *, pushes: int = 5) -> Outcome:
    """Three peers that only dial out, and one that can be dialled."""
    with Swarm(folder, size_bytes=size_bytes, step_s=step_s, p=0.5) as swarm:
        a = swarm.start("a")
        until(lambda: a.has_joined, "the founder starts")
        hidden = [swarm.start(id, bind=None, join=(a.address,)) for id in "bcd"]
        until(lambda: all(each.has_joined for each in hidden), "the others join")
        peers = [a, *hidden]
        until(lambda: all(x.sees(*"abcd") for x in peers), "all peers see one another")
        _warm_up(peers)
        watch = _Watch(peers)
        _exchange(peers, pushes)
        incarnations = [each.incarnation for each in hidden]
        between = sum(
            len(one.pushed_to(incarnation)) for one in hidden for incarnation in incarnations
        )
        assert between == 0, "two peers that only dial out were paired"
        counts = {f"shares mixed by {x.id}": float(x.rows[-1]["mixed"]) for x in peers}
        return watch.outcome(swarm, counts)


def half_killed(
    folder: Path, size_bytes: int, step_s: float, *, peers: int = 16, preset: str = "local"
) -> Outcome:
    """SIGKILL half of the peers at the same moment."""
    ids = [f"p{number:02}" for number in range(peers)]
    with Swarm(
        folder,
        size_bytes=size_bytes,
        step_s=step_s,
        p=0.2,
        rendezvous=str(folder / "meeting"),
        founders=peers,
        topology="exponential",
        preset=preset,
    ) as swarm:
        trainees = [swarm.start(id) for id in ids]
        until(lambda: all(each.sees(*ids) for each in trainees), "all have founded")
        _warm_up(trainees)
        victims, survivors = trainees[::2], trainees[1::2]
        watch = _Watch(survivors)
        swarm.kill(victims)
        left = [each.id for each in survivors]
        seen_s = until(
            lambda: all(x.sees(*left) for x in survivors), "all survivors know all deaths"
        )
        _exchange(survivors, 1)
        return watch.outcome(swarm, {"all deaths known to all survivors after, s": seen_s})


@contextmanager
def _relayed(folder: Path, ids: str, **settings: Any) -> Iterator[tuple[Swarm, Network]]:
    """An empty swarm and a network whose faults a scene controls."""
    # The relays outlive the peers that dial them.
    with closing(Network()) as network, Swarm(folder, **settings) as swarm:
        network.addresses |= {id: f"tcp://127.0.0.1:{_free_port()}" for id in ids}
        yield swarm, network


def _start(swarm: Swarm, network: Network, ids: str) -> list[Trainee]:
    """Let peers found and join one after another until each sees all others."""
    founder = _join(swarm, network, ids[0], None)
    until(lambda: founder.has_joined, "the founder starts")
    others = [_join(swarm, network, id, founder) for id in ids[1:]]
    peers = [founder, *others]
    until(lambda: all(each.has_joined for each in others), "the others join")
    until(lambda: all(each.sees(*ids) for each in peers), "all peers see one another")
    return peers


def _join(swarm: Swarm, network: Network, id: str, member: Trainee | None) -> Trainee:
    """Start one peer that dials all others through relays."""
    others = {other: at for other, at in network.addresses.items() if other != id}
    relays = {at: network.toward(id, other) for other, at in others.items()}
    join = (member.address,) if member is not None else ()
    return swarm.start(id, bind=network.addresses[id], join=join, relays=relays)


def _warm_up(trainees: Sequence[Trainee]) -> None:
    """Wait until all have pushed and mixed, so that their memory is allocated.

    The first snapshot of a large model takes ten times as long as the next: its pages are new.
    """
    _exchange(trainees, 3)


def _exchange(trainees: Sequence[Trainee], count: int) -> None:
    """Wait until each has pushed and mixed *count* more shares."""
    goals = [
        (each, {w: each.rows[-1][w] + count for w in ("mixed", "pushes")}) for each in trainees
    ]

    def reached() -> bool:
        return all(each.rows[-1][what] >= n for each, goal in goals for what, n in goal.items())

    until(reached, f"{count} more shares of each peer")


def _free_port() -> int:
    with sockets.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _bytes_to(network: Network, id: str) -> int:
    return sum(way.passed_bytes for way in network.ways(to=id))
