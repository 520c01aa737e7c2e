"""``protocol``: the cost of decisions, without network and values, and of a message."""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

import msgpack

from rumor.gossip import GoSGD, ProtocolConfig
from rumor.gossip.effects.effects import Effect, Inspect, Send
from rumor.gossip.effects.events import Event
from rumor.gossip.membership.static import StaticMembership
from rumor.gossip.protocol.protocol import Protocol
from rumor.gossip.types import stream
from rumor.gossip.weight import ONE
from rumor.gossip.wire.codec import decode, encode
from rumor.gossip.wire.messages import Ack, Body, Chunk, Envelope, Hello, Member, Offer, Phase
from rumor.gossip.wire.schema import Schema, TensorSpec
from rumor.sim.kernel.gc import paused
from rumor.sim.models.topology import WorkerTopology
from rumor.topology import parse

from .harness import Result, Row, alternate, medians, timed

__all__ = ["measure_protocol"]

_log = logging.getLogger(__name__)

# A share of 4 KiB fits one message.
_SCHEMA = Schema((TensorSpec("x", (1024,), "float32"),))
_ANCHOR = bytes(16)
_TOPOLOGY = "exponential"
# Magic, version and checksum precede a header.
_PREFIX_BYTES = 8


def measure_protocol(
    workers: tuple[int, ...] = (100, 1000, 10_000),
    events: int = 6000,
    messages: int = 300,
    rounds: int = 5,
) -> Result:
    """Measure the core's events per second, and the codec's microseconds per message."""
    with paused():
        rows = list(_deciding(workers, events, rounds))
    return Result(
        name="protocol",
        title="The protocol core in one process: no network, no values, no faults",
        rows=(*rows, *_codec(messages, rounds)),
    )


class _Swarm:
    """Peers with one view of all, as in simulations, that push at every step, in no time."""

    def __init__(self, n: int) -> None:
        self.events = 0
        """Number of calls of a protocol."""
        self._queue: deque[Envelope] = deque()
        ids = tuple(f"peer-{i:0{len(str(n - 1))}}" for i in range(n))
        topology, table = WorkerTopology(parse(_TOPOLOGY, n), ids), StaticMembership(ids)
        self._peers = {
            id: Protocol(
                id=id,
                incarnation=1,
                schema=_SCHEMA,
                anchor=_ANCHOR,
                rule=GoSGD(1.0),
                neighbors=topology,
                rng=partial(stream, 0, id),
                config=ProtocolConfig(gossip_s=math.inf, dead_s=math.inf),
                addresses=(f"tcp://{id}:7700",),
                membership=table,
            )
            for id in ids
        }
        for protocol in self._peers.values():
            protocol.join(0.0)

    def step(self) -> None:
        """Let every peer take a step; messages arrive at once."""
        for protocol in self._peers.values():
            self._carry_out(protocol, protocol.step(0.0))
            self._deliver()

    def rate(self, steps: int) -> list[float]:
        """Return events per second."""
        before = self.events
        taken_s = sum(timed(self.step, steps))
        return [(self.events - before) / taken_s]

    def _deliver(self) -> None:
        while self._queue:
            envelope = self._queue.popleft()
            protocol = self._peers[envelope.destination]
            self._carry_out(protocol, protocol.receive(envelope, 0.0))

    def _carry_out(self, protocol: Protocol, effects: Sequence[Effect | Event]) -> None:
        self.events += 1
        for effect in effects:
            match effect:
                case Send(envelope):
                    self._queue.append(envelope)
                case Inspect(share):
                    self._carry_out(protocol, protocol.inspected(share, 0.0, finite=True))
                case _:
                    pass


def _deciding(sizes: Sequence[int], events: int, rounds: int) -> Iterator[Row]:
    ways: dict[int, Callable[[], list[float]]] = {}
    for n in sizes:
        _log.info("making %d workers", n)
        swarm = _Swarm(n)
        # Until credit is used up for the first time, a peer has more work than ever after.
        swarm.step()
        swarm.step()
        ways[n] = partial(swarm.rate, max(1, events // (4 * n)))
    found = {n: median(rates) for n, rates in alternate(ways, rounds).items()}
    first = min(sizes)
    for n in sizes:
        yield Row(
            name=f"{n:,} workers, pushing",
            ours=found[n],
            reference=found[first],
            unit="events/s",
            note=f"the same with {first}",
        )


def _codec(count: int, rounds: int) -> Iterator[Row]:
    entry = partial(Member, incarnation=1, phase=Phase.TRAINING, step=1000)
    hello = Hello(
        members=tuple(
            entry(id=f"peer-{index:03}", heartbeat=index, addresses=("tcp://10.0.0.5:7700",))
            for index in range(100)
        ),
        rooted=True,
        reply=True,
    )
    offer = Offer(
        seq=1,
        escrow=ONE // 2,
        size_bytes=4 << 20,
        frame_bytes=1 << 20,
        epoch=0,
        round=1,
        note=0,
        step=1000,
    )
    messages: dict[str, tuple[Body, int, int]] = {
        "ACK": (Ack(1, ONE // 2, 8 << 20), 0, count),
        "OFFER": (offer, 0, count),
        "HELLO of 100 peers": (hello, 0, max(1, count // 30)),
        "CHUNK of 1 MiB": (Chunk(1, 7, 7 << 20), 1 << 20, max(1, count // 10)),
    }
    for name, (body, frame_bytes, times) in messages.items():
        frame = memoryview(bytes(frame_bytes))
        envelope = _envelope("peer-0", "peer-1", body, frame_bytes)
        ways: dict[str, Callable[[], object]] = {
            "ours": partial(_through, envelope, frame),
            "plain": partial(
                _plainly, msgpack.unpackb(encode(envelope, frame)[0][_PREFIX_BYTES:]), frame
            ),
        }
        found = medians({way: partial(_each_us, ways[way], times) for way in ways}, rounds)
        yield Row(
            name=f"{name}, encode and decode",
            ours=found["ours"],
            reference=found["plain"],
            unit="us",
            note="msgpack of the header, nothing checked"
            + (", and a copy of the frame" if frame_bytes else ""),
        )


def _through(envelope: Envelope, frame: memoryview) -> None:
    decode(encode(envelope, frame))


def _plainly(header: object, frame: memoryview) -> None:
    msgpack.unpackb(msgpack.packb(header))
    bytes(frame)


def _each_us(action: Callable[[], object], times: int) -> list[float]:
    start_s = time.perf_counter()
    for _ in range(times):
        action()
    return [(time.perf_counter() - start_s) / times * 1e6]


def _envelope(source: str, destination: str, body: Body, frame_bytes: int = 0) -> Envelope:
    return Envelope(
        swarm=_ANCHOR,
        schema=_SCHEMA.hash,
        source=source,
        source_incarnation=1,
        destination=destination,
        destination_incarnation=1,
        body=body,
        frame_bytes=frame_bytes,
    )
