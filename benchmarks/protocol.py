"""``protocol``: what deciding costs, without network and values, and what a message costs."""

import logging
import time
from collections.abc import Callable, Sequence
from statistics import median

import msgpack

from ..gossip import ONE, Envelope, Member, Phase
from ..gossip.codec import decode, encode
from ..gossip.messages import Ack, Body, Chunk, Hello, Offer
from ..sim.collector import paused, settled
from .machine import machine
from .result import Result, Row
from .swarm import SCHEMA, Swarm
from .timing import alternate

__all__ = ["measure_protocol"]

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
    start_s = time.perf_counter()
    rows = [
        *_measure_crews(crew_sizes, events_per_round, rounds),
        *_measure_swarms(swarm_sizes, events_per_round, rounds),
        *_measure_codec(messages_per_round, rounds),
    ]
    return Result(
        name="protocol",
        title="The protocol core in one process: no network, no values, no faults",
        columns=("what", "rumor", "reference", "ratio", "unit", "reference and notes"),
        rows=tuple(rows),
        machine=machine(),
        wall_s=time.perf_counter() - start_s,
    )


def _measure_swarms(sizes: Sequence[int], events: int, rounds: int) -> list[Row]:
    ways: dict[str, Callable[[], Sequence[float]]] = {}
    for n in sizes:
        _log.info("introducing %d peers to one another", n)
        swarm = Swarm(n, p=1.0)
        ways[f"{n} peers, pushing"] = _pushing(swarm, max(1, events // (4 * n)))
        # One round of the roster is N messages of N entries each: the largest swarm has one.
        ways[f"{n} peers, gossiping"] = _gossiping(swarm, max(1, sizes[-1] // (10 * n)))
    return _held_against_first(ways, rounds, sizes[0])


def _measure_crews(sizes: Sequence[int], events: int, rounds: int) -> list[Row]:
    ways: dict[str, Callable[[], Sequence[float]]] = {}
    for n in sizes:
        _log.info("making %d workers", n)
        swarm = Swarm(n, p=1.0, crew=True)
        # Until credit is used up for the first time, a worker has more to do than ever after.
        swarm.steps(2)
        ways[f"{n} workers, pushing"] = _pushing(swarm, max(1, events // (4 * n)))
    with settled(), paused():
        return _held_against_first(ways, rounds, sizes[0])


def _held_against_first(
    ways: dict[str, Callable[[], Sequence[float]]], rounds: int, first: int
) -> list[Row]:
    _log.info("timing")
    found = {name: median(rates) for name, rates in alternate(ways, rounds).items()}
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


def _pushing(swarm: Swarm, steps: int) -> Callable[[], list[float]]:
    return lambda: [_event_rate(swarm, lambda: swarm.steps(steps))]


def _gossiping(swarm: Swarm, times: int) -> Callable[[], list[float]]:
    def gossip() -> None:
        for _ in range(times):
            swarm.gossip()

    return lambda: [_event_rate(swarm, gossip)]


def _event_rate(swarm: Swarm, action: Callable[[], None]) -> float:
    before, start_s = swarm.events, time.perf_counter()
    action()
    return (swarm.events - before) / (time.perf_counter() - start_s)


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
    envelope = _envelope(body, len(frame))
    header = encode(envelope, frame)[0][_PREFIX_BYTES:]
    plain = msgpack.unpackb(header)

    def plainly() -> None:
        msgpack.unpackb(msgpack.packb(plain))
        bytes(frame)

    ways = {
        "ours": _per_message_us(lambda: decode(encode(envelope, frame)), count),
        "plain": _per_message_us(plainly, count),
    }
    found = {way: median(taken) for way, taken in alternate(ways, rounds).items()}
    copying = ", and a copy of the frame" if frame else ""
    return Row(
        name=f"{name}, encode and decode",
        ours=found["ours"],
        reference=found["plain"],
        unit="us",
        note="msgpack of the header, nothing checked" + copying,
    )


def _per_message_us(action: Callable[[], object], count: int) -> Callable[[], list[float]]:
    def measure() -> list[float]:
        start_s = time.perf_counter()
        for _ in range(count):
            action()
        return [(time.perf_counter() - start_s) / count * 1e6]

    return measure


def _envelope(body: Body, frame_bytes: int) -> Envelope:
    return Envelope(
        swarm=bytes(16),
        schema=SCHEMA.hash,
        source="peer-0",
        source_incarnation=1,
        destination="peer-1",
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
