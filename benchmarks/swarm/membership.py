"""``membership``: how soon peers know who is there, and what knowing it costs."""

import logging
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from ...gossip import GoSGD, ProtocolConfig
from ...gossip.config import TIMINGS, timing
from ...gossip.transport.zmq_transport import Transport
from ...gossip.wire.codec import Buffer
from ...train import Peer, PeerConfig
from ..exchange.processes import Flat, Partner, Pipe, partner, partners
from ..results import Result, Row

__all__ = ["measure_membership"]

_log = logging.getLogger("rumor.benchmarks")

_N_PARAMS: Final = 1000
_STEP_S: Final = 0.01
_WATCHED_ROUNDS: Final = 20
_PATIENCE_S: Final = 300.0


def measure_membership(
    peers: int = 8,
    timings: Sequence[str] = ("local", "lan"),
    rounds: int = 3,
    held_s: float = 20.0,
) -> Result:
    """Kill, join, cut and heal in swarms of live peers whose shares are next to nothing.

    Args:
        peers: How many found the swarm, at least 4.
        timings: Presets of times, one swarm of each after the other.
        rounds: How often a swarm is made and all that done to it; figures are medians.
        held_s: How long a cut stays after each half has taken the other for dead, seconds.
    """
    rows: list[Row] = []
    for name in timings:
        found = []
        for number in range(rounds):
            _log.info("membership: %d peers, timing %s, round %d", peers, name, number + 1)
            found.append(_watch_swarm(peers, name, held_s))
        rows.extend(_rows(found, peers, name, held_s))
    return Result(
        name="membership",
        title=f"How soon {peers} live peers know who is there; less is better",
        rows=tuple(rows),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """Times of one swarm, seconds, and bytes."""

    bytes_s: float
    """Sent by a peer in a second while nothing happens."""
    first_to_miss_s: float
    last_to_miss_s: float
    joined_s: float
    known_s: float
    split_s: float
    healed_s: float


def _rows(found: Sequence[_Found], peers: int, name: str, held_s: float) -> Iterator[Row]:
    settings = {
        "first_to_miss_s": ("one is killed: the first holds it for dead", "dead_s"),
        "last_to_miss_s": ("one is killed: all hold it for dead", "dead_s"),
        "joined_s": ("a newcomer starts: it has its copy", "gossip_s"),
        "known_s": ("a newcomer starts: all see it", "gossip_s"),
        "split_s": ("cut in halves: each holds the other for dead", "dead_s"),
        "healed_s": (f"healed {held_s:g} s later: all see all", "redial_s_max"),
    }
    for field, (what, setting) in settings.items():
        figures = [getattr(one, field) for one in found]
        yield Row(
            name=f"{name}: {what}",
            ours=median(figures),
            reference=getattr(TIMINGS[name], setting),
            unit="s",
            note=f"{setting} of the preset; from {min(figures):.2f} to {max(figures):.2f} s in "
            f"{len(figures)} rounds",
        )
    yield Row(
        name=f"{name}: sent by each peer while nothing happens",
        ours=median(one.bytes_s for one in found),
        reference=peers / TIMINGS[name].gossip_s,
        unit="bytes/s",
        note="entries of the roster per second, so that the ratio is bytes per entry",
    )


def _watch_swarm(peers: int, name: str, held_s: float) -> _Found:
    """All that happens to one swarm."""
    ids = [f"peer-{number}" for number in range(peers)]
    with TemporaryDirectory() as folder:
        given = [(id, name, {"rendezvous": Path(folder), "founders": peers}) for id in ids]
        with partners(_serve, given) as started:
            swarm = dict(zip(ids, started, strict=True))
            addresses = {id: str(one.hear(_PATIENCE_S)) for id, one in swarm.items()}
            _until(swarm, ids)
            bytes_s = _sent(swarm, _WATCHED_ROUNDS * TIMINGS[name].gossip_s)
            victim = swarm.pop(ids[-1])
            killed_s = time.monotonic()
            victim.kill()
            missed_s = [at_s - killed_s for at_s in _until(swarm, ids[:-1])]
            join = {"join": (addresses[ids[0]],)}
            with partner(_serve, "newcomer", name, join, True) as newcomer:
                newcomer.hear(_PATIENCE_S)
                started_s = time.monotonic()
                newcomer.say("start")
                addresses["newcomer"] = newcomer.hear(_PATIENCE_S)
                joined_s = newcomer.hear(_PATIENCE_S) - started_s
                swarm["newcomer"] = newcomer
                known_s = max(_until(swarm, swarm)) - started_s
                split_s, healed_s = _split(swarm, addresses, held_s)
    return _Found(bytes_s, min(missed_s), max(missed_s), joined_s, known_s, split_s, healed_s)


def _split(
    swarm: dict[str, Partner], addresses: dict[str, str], held_s: float
) -> tuple[float, float]:
    """Cut a swarm in halves, until each takes the other for dead, and heal it; how long each."""
    everybody = sorted(swarm)
    halves = everybody[::2], everybody[1::2]
    cut_s = time.monotonic()
    for half, other in (halves, halves[::-1]):
        for id in half:
            swarm[id].ask(("block", other, [addresses[id] for id in other]))
    for half in halves:
        for id in half:
            swarm[id].say(("until", half))
    split_s = max(one.hear(_PATIENCE_S) for one in swarm.values()) - cut_s
    time.sleep(held_s)
    for one in swarm.values():
        one.ask(("block", (), ()))
    healed_s = time.monotonic()
    return split_s, max(_until(swarm, everybody)) - healed_s


def _until(swarm: dict[str, Partner], ids: Collection[str]) -> list[float]:
    """Wait until each of them sees just these; when each did."""
    for one in swarm.values():
        one.say(("until", sorted(ids)))
    return [float(one.hear(_PATIENCE_S)) for one in swarm.values()]


def _sent(swarm: dict[str, Partner], seconds: float) -> float:
    """Bytes that a peer has sent in a second, the mean over all."""
    before = sum(one.ask(("sent",)) for one in swarm.values())
    start_s = time.monotonic()
    time.sleep(seconds)
    after = sum(one.ask(("sent",)) for one in swarm.values())
    return float((after - before) / len(swarm) / (time.monotonic() - start_s))


class _Firewall:
    """Stands before the transport of this process's peer, which must not have been made yet.

    A message that it drops counts as sent, as one that a network swallows does. A link is cut where
    both ends drop.
    """

    def __init__(self) -> None:
        self._peers: frozenset[str] = frozenset()
        self._addresses: frozenset[str] = frozenset()
        # A peer makes its transport itself; what goes out of it can be seen here only.
        send, greet = Transport.send, Transport.greet

        def guarded_send(
            transport: Transport, peer: str, parts: Sequence[Buffer], *, bulk: bool
        ) -> bool:
            return peer in self._peers or send(transport, peer, parts, bulk=bulk)

        def guarded_greet(transport: Transport, address: str, parts: Sequence[Buffer]) -> bool:
            return address in self._addresses or greet(transport, address, parts)

        Transport.send = guarded_send  # type: ignore[assignment,method-assign]
        Transport.greet = guarded_greet  # type: ignore[assignment,method-assign]

    def block(self, peers: Collection[str], addresses: Collection[str]) -> None:
        """Drop what goes to these peers from now on, and to nobody else.

        A stranger's greeting goes to an address.
        """
        self._peers, self._addresses = frozenset(peers), frozenset(addresses)


def _serve(pipe: Pipe, id: str, name: str, given: dict[str, Any], waits: bool = False) -> None:
    firewall = _Firewall()
    protocol: dict[str, Any] = {"shared_memory": False, **timing(name)}
    config = PeerConfig(
        id=id,
        rule=GoSGD(0.0),
        linger_s=0,
        leave_s=1,
        protocol=ProtocolConfig(**protocol),
        **given,
    )
    made = Peer(Flat(_N_PARAMS), config)
    if waits:
        pipe.send("made")
        pipe.recv()
    with made as peer:
        joined_s = time.monotonic()
        pipe.send(peer.address)
        if waits:
            pipe.send(joined_s)
        while (asked := _hear(pipe, peer)) is not None:
            match asked:
                case "until", ids:
                    while list(peer.live) != list(ids):
                        time.sleep(_STEP_S)
                        peer.step()
                    pipe.send(time.monotonic())
                case ("sent",):
                    pipe.send(peer.counters.bytes_sent)
                case "block", peers, addresses:
                    firewall.block(peers, addresses)
                    pipe.send("done")


def _hear(pipe: Pipe, peer: Peer) -> Any:
    """Step until something is asked."""
    while not pipe.poll(_STEP_S):
        peer.step()
    return pipe.recv()
