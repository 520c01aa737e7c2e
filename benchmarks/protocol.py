"""``protocol``: what deciding costs, without network and values, and what a message costs."""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import msgpack

from ..gossip import (
    ONE,
    Envelope,
    GoSGD,
    Member,
    Phase,
    Protocol,
    ProtocolConfig,
    Schema,
    TensorSpec,
    stream,
)
from ..gossip.effects.effects import Effect, Inspect, Send
from ..gossip.effects.events import Event
from ..gossip.membership.static import StaticMembership
from ..gossip.protocol.state import Neighbors
from ..gossip.wire.codec import decode, encode
from ..gossip.wire.messages import Ack, Body, Chunk, Hello, Offer
from ..sim.batched.schedule import paused, settled
from ..sim.models.topology import WorkerTopology
from ..topology import View, parse
from .results import Result, Row, medians

__all__ = ["GOSSIP_S", "SCHEMA", "Swarm", "measure_protocol"]


GOSSIP_S = 1.0
"""Between two exchanges of the roster, virtual seconds."""

SCHEMA = Schema((TensorSpec("x", (1024,), "float32"),))
"""4 KiB: a share fits one message."""

_ANCHOR = bytes(16)
_TOPOLOGY = "exponential"
_NEVER_S = 1e9


class Swarm:
    """Peers that know one another and train, on a clock that only moves when told to.

    Args:
        n: How many.
        p: Probability of a push at a step.
        crew: Whether all share one view of the swarm, as simulated workers do; else each keeps a
            roster of its own, as live peers do.
    """

    def __init__(self, n: int, *, p: float, crew: bool = False) -> None:
        self.now = 0.0
        self.events = 0
        """How often a protocol was told something."""
        self.watch: Callable[[Effect | Event], None] | None = None
        """Hears of every effect, if somebody is to."""
        self._queue: deque[Envelope] = deque()
        width = len(str(n - 1))
        ids = tuple(f"peer-{i:0{width}}" for i in range(n))
        if crew:
            config = ProtocolConfig(gossip_s=math.inf, dead_s=math.inf)
            neighbors, shared = WorkerTopology(parse(_TOPOLOGY, n), ids), StaticMembership(ids)
            self._peers = {id: _founder(id, p, config, neighbors, shared) for id in ids}
            for protocol in self._peers.values():
                protocol.join(self.now)
        else:
            config = ProtocolConfig(gossip_s=GOSSIP_S, dead_s=_NEVER_S)
            self._peers = {id: _founder(id, p, config, View(_TOPOLOGY, 0)) for id in ids}
            self._introduce()
        self.events = 0

    def steps(self, count: int) -> None:
        """Let every peer take so many steps in no time; messages arrive at once."""
        for _ in range(count):
            for protocol in self._peers.values():
                self._carry_out(protocol, protocol.step(self.now))
                self._deliver()

    def gossip(self, count: int) -> None:
        """Let everybody exchange rosters with somebody, so many times."""
        for _ in range(count):
            self.now += GOSSIP_S
            for protocol in self._peers.values():
                self._carry_out(protocol, protocol.wake(self.now))
            self._deliver()

    def _introduce(self) -> None:
        """Tell everybody of everybody at first hand: rosters that spread would take minutes."""
        for protocol in self._peers.values():
            protocol.join(self.now)
        for source, entry in [(peer, peer.live()[0]) for peer in self._peers.values()]:
            hello = Hello(members=(entry,), rooted=False, reply=False)
            for id, protocol in self._peers.items():
                if protocol is not source:
                    protocol.receive(_envelope(source.account.id, id, hello), self.now)

    def _deliver(self) -> None:
        while self._queue:
            envelope = self._queue.popleft()
            protocol = self._peers[envelope.destination]
            self._carry_out(protocol, protocol.receive(envelope, self.now))

    def _carry_out(self, protocol: Protocol, effects: Sequence[Effect | Event]) -> None:
        self.events += 1
        for effect in effects:
            if self.watch is not None:
                self.watch(effect)
            match effect:
                case Send(envelope):
                    self._queue.append(envelope)
                case Inspect(share):
                    self._carry_out(protocol, protocol.inspected(share, self.now, finite=True))
                case _:
                    pass


def _founder(
    id: str,
    p: float,
    config: ProtocolConfig,
    neighbors: Neighbors,
    crew: StaticMembership | None = None,
) -> Protocol:
    return Protocol(
        id=id,
        incarnation=1,
        schema=SCHEMA,
        anchor=_ANCHOR,
        rule=GoSGD(p),
        neighbors=neighbors,
        rng=partial(stream, 0, id),
        config=config,
        addresses=(f"tcp://{id}:7700",),
        membership=crew,
    )


_log = logging.getLogger("rumor.benchmarks")

# Magic, version and checksum stand before a header.
_PREFIX_BYTES = 8


def measure_protocol(
    swarm_sizes: Sequence[int] = (10, 100, 1000),
    crew_sizes: Sequence[int] = (100, 1000, 10_000),
    events_per_round: int = 6000,
    rounds: int = 5,
    messages_per_round: int = 300,
) -> Result:
    """Measure the core's events per second, and the codec's microseconds per message.

    Args:
        swarm_sizes: Numbers of peers, each with a roster of its own; the others are held against
            the first.
        crew_sizes: Numbers of simulated workers, who share one view; likewise.
        events_per_round: About how many events of each swarm are timed together.
        rounds: How often each way takes its turn.
        messages_per_round: How many messages are timed together.
    """
    rows = [
        *_measure_crews(crew_sizes, events_per_round, rounds),
        *_measure_swarms(swarm_sizes, events_per_round, rounds),
        *_measure_codec(messages_per_round, rounds),
    ]
    return Result(
        name="protocol",
        title="The protocol core in one process: no network, no values, no faults",
        rows=tuple(rows),
    )


def _measure_swarms(sizes: Sequence[int], events: int, rounds: int) -> list[Row]:
    ways: dict[str, Callable[[], Sequence[float]]] = {}
    for n in sizes:
        _log.info("introducing %d peers to one another", n)
        swarm = Swarm(n, p=1.0)
        steps = max(1, events // (4 * n))
        ways[f"{n} peers, pushing"] = partial(_event_rate, swarm, swarm.steps, steps)
        # One round of the roster is N messages of N entries each: the largest swarm has one.
        times = max(1, sizes[-1] // (10 * n))
        ways[f"{n} peers, gossiping"] = partial(_event_rate, swarm, swarm.gossip, times)
    return _held_against_first(ways, rounds, sizes[0])


def _measure_crews(sizes: Sequence[int], events: int, rounds: int) -> list[Row]:
    ways: dict[str, Callable[[], Sequence[float]]] = {}
    for n in sizes:
        _log.info("making %d workers", n)
        swarm = Swarm(n, p=1.0, crew=True)
        # Until credit is used up for the first time, a worker has more to do than ever after.
        swarm.steps(2)
        steps = max(1, events // (4 * n))
        ways[f"{n} workers, pushing"] = partial(_event_rate, swarm, swarm.steps, steps)
    with settled(), paused():
        return _held_against_first(ways, rounds, sizes[0])


def _held_against_first(
    ways: dict[str, Callable[[], Sequence[float]]], rounds: int, first: int
) -> list[Row]:
    _log.info("timing")
    found = medians(ways, rounds)
    return [
        Row(
            name=name,
            ours=rate,
            reference=found[f"{first} {name.partition(' ')[2]}"],
            unit="events/s",
            note=f"the same with {first}",
        )
        for name, rate in found.items()
    ]


def _event_rate(swarm: Swarm, act: Callable[[int], None], times: int) -> list[float]:
    before, start_s = swarm.events, time.perf_counter()
    act(times)
    return [(swarm.events - before) / (time.perf_counter() - start_s)]


def _measure_codec(count: int, rounds: int) -> list[Row]:
    frame = memoryview(bytes(1 << 20))
    messages: dict[str, tuple[Body, memoryview, int]] = {
        "ACK": (Ack(1, ONE // 2, 8 << 20), memoryview(b""), count),
        "OFFER": (_offer(), memoryview(b""), count),
        "HELLO of 100 peers": (_hello(100), memoryview(b""), max(1, count // 30)),
        "CHUNK of 1 MiB": (Chunk(1, 7, 7 << 20), frame, max(1, count // 10)),
    }
    rows = []
    for name, (body, payload, repeats) in messages.items():
        _log.info("timing codec: %s", name)
        rows.append(_codec_row(name, body, payload, repeats, rounds))
    return rows


def _codec_row(name: str, body: Body, frame: memoryview, count: int, rounds: int) -> Row:
    envelope = _envelope("peer-0", "peer-1", body, len(frame))
    header = encode(envelope, frame)[0][_PREFIX_BYTES:]
    plain = msgpack.unpackb(header)

    def plainly() -> None:
        msgpack.unpackb(msgpack.packb(plain))
        bytes(frame)

    ways = {
        "ours": lambda: [_each_us(lambda: decode(encode(envelope, frame)), count)],
        "plain": lambda: [_each_us(plainly, count)],
    }
    found = medians(ways, rounds)
    copying = ", and a copy of the frame" if frame else ""
    return Row(
        name=f"{name}, encode and decode",
        ours=found["ours"],
        reference=found["plain"],
        unit="us",
        note="msgpack of the header, nothing checked" + copying,
    )


def _each_us(action: Callable[[], object], count: int) -> float:
    """Seconds of so many times together, for each in microseconds."""
    start_s = time.perf_counter()
    for _ in range(count):
        action()
    return (time.perf_counter() - start_s) / count * 1e6


def _envelope(source: str, destination: str, body: Body, frame_bytes: int = 0) -> Envelope:
    return Envelope(
        swarm=_ANCHOR,
        schema=SCHEMA.hash,
        source=source,
        source_incarnation=1,
        destination=destination,
        destination_incarnation=1,
        body=body,
        frame_bytes=frame_bytes,
    )


def _offer() -> Offer:
    return Offer(
        seq=1,
        escrow=ONE // 2,
        size_bytes=4 << 20,
        frame_bytes=1 << 20,
        epoch=0,
        round=1,
        note=0,
        step=1000,
    )


def _hello(n: int) -> Hello:
    members = tuple(
        Member(
            id=f"peer-{index:03}",
            incarnation=1,
            heartbeat=index,
            phase=Phase.TRAINING,
            step=1000,
            addresses=("tcp://10.0.0.5:7700",),
        )
        for index in range(n)
    )
    return Hello(members=members, rooted=True, reply=True)
