"""Two live peers train while strangers throw thousands of messages at them.

What is protected without keys: nothing that was damaged, replayed, addressed to somebody else or
of another model moves any weight; and no single message, whoever forged it, ends a thread.

What is not protected: whoever writes a valid message is believed. A PUSH brings in weight and
values; a QUERY of a number yet to come, in a member's name, fences its shares; a HELLO can say for
a member that it left, and fill the roster with names; OFFERs without chunks keep the places for
staged shares taken until they stall. Only keys keep such people out.
"""

import os
import random
import resource
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import zmq

from rumor.gossip import ONE, Envelope, GoSGD, Member, Phase, ProtocolConfig, audit
from rumor.gossip.transport.zmq_transport import Transport
from rumor.gossip.wire.codec import FRAME_BYTES_MAX, Buffer, decode, encode
from rumor.gossip.wire.formats import Form
from rumor.gossip.wire.messages import (
    Ack,
    Ask,
    Body,
    Chunk,
    Describe,
    Grant,
    Hello,
    Leave,
    Offer,
    Pending,
    Push,
    Query,
    Read,
)
from rumor.gossip.wire.schema import Schema, TensorSpec
from rumor.train import PeerConfig
from rumor.train.storage.ledger_file import read_ledger

from ...hostile.victims import Victim
from ...waiting import LIMIT_S, until

pytestmark = pytest.mark.live

# What grows by a kilobyte with each message shows in the long one.
COUNTS = [8_000, pytest.param(50_000, marks=pytest.mark.slow)]
BURST = 500
GROWTH_BYTES_MAX = 40e6
U63 = 2**63 - 1

QUICK = ProtocolConfig(gossip_s=0.1, seek_s=0.05, found_s=0.3, stall_s=1.0)

Message = list[bytes]


class Wire:
    """What the peers said to one another, and what a stranger learns from it."""

    def __init__(self) -> None:
        self._seen: deque[Message] = deque(maxlen=400)

    def listen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        send = Transport.send

        def overheard(
            transport: Transport, peer: str, parts: Sequence[Buffer], *, bulk: bool
        ) -> bool:
            sent = send(transport, peer, parts, bulk=bulk)
            if sent and peer in ("a", "b"):
                self._seen.append([bytes(part) for part in parts])
            return sent

        monkeypatch.setattr(Transport, "send", overheard)

    def any(self, chance: random.Random) -> Message:
        """A message that was said before."""
        return list(self._seen[chance.randrange(len(self._seen))])

    def push_to(self, peer: str) -> Envelope:
        """A real PUSH toward a peer."""
        for parts in reversed(tuple(self._seen)):
            envelope = decode(parts)
            if isinstance(envelope.body, Push) and envelope.destination == peer:
                return envelope
        raise AssertionError("nothing was pushed")


class Pair:
    """Two peers that found a swarm together."""

    def __init__(self, folder: Path, wire: Wire) -> None:
        self.folder, self.wire = folder, wire
        self.trainees = [
            Victim(
                PeerConfig(
                    id=id,
                    founders=2,
                    rendezvous=folder / "meeting",
                    rule=GoSGD(p=0.5),
                    out=folder / id,
                    protocol=QUICK,
                    linger_s=20.0,
                    leave_s=LIMIT_S,
                )
            )
            for id in ("a", "b")
        ]
        self.await_exchange()

    def await_exchange(self, more: int = 20) -> None:
        """Wait until each has mixed some more shares of the other."""
        before = [trainee.peer.counters.mixed for trainee in self.trainees]

        def is_over() -> bool:
            self.assert_well()
            found = (trainee.peer.counters.mixed for trainee in self.trainees)
            return all(now >= then + more for now, then in zip(found, before, strict=True))

        until(is_over, "the exchange goes on")

    def assert_well(self) -> None:
        for trainee in self.trainees:
            assert trainee.is_well, trainee.error

    def end(self) -> None:
        for trainee in self.trainees:
            trainee.halt()
        for trainee in self.trainees:
            trainee.end()


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    wire = Wire()
    wire.listen(monkeypatch)
    pair = Pair(tmp_path, wire)
    yield pair
    pair.end()


@contextmanager
def strangers(address: str, count: int = 4) -> Iterator[list["zmq.Socket[bytes]"]]:
    with ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        sockets = []
        for _ in range(count):
            socket = stack.enter_context(context.socket(zmq.DEALER))
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.SNDTIMEO, int(LIMIT_S * 1000))
            socket.connect(address)
            sockets.append(socket)
        yield sockets


def attack(pair: Pair, forge: Callable[[random.Random, str], Message], n_messages: int) -> float:
    """Throw messages at both peers in turn, from several connections each.

    Returns:
        By how many bytes the process grew after the first fifth.
    """
    chance = random.Random(7)
    grown_from = 0
    with ExitStack() as stack:
        doors = []
        for trainee in pair.trainees:
            assert trainee.peer.address is not None
            doors.append((trainee.peer.id, stack.enter_context(strangers(trainee.peer.address))))
        for sent in range(n_messages):
            name, sockets = doors[sent % len(doors)]
            socket = chance.choice(sockets)
            socket.send_multipart(forge(chance, name))
            # One whose answers pile up would not notice that it was disconnected.
            while socket.poll(0):
                socket.recv_multipart()
            if sent % BURST == 0:
                pair.assert_well()
            if sent == n_messages // 5:
                grown_from = resident_bytes()
        pair.await_exchange()
        return resident_bytes() - grown_from


def resident_bytes() -> int:
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 0
    return int(statm.read_text().split()[1]) * resource.getpagesize()


def damaged(chance: random.Random, wire: Wire) -> Message:
    """Random bytes, or a real message that is no longer one."""
    parts = wire.any(chance)
    match chance.randrange(7):
        case 0:
            return [chance.randbytes(chance.randrange(200)) for _ in range(chance.randrange(1, 9))]
        case 1:
            return [b"RMR\x01" + chance.randbytes(chance.randrange(200))]
        case 2:
            index = chance.randrange(len(parts))
            flipped = bytearray(parts[index])
            for _ in range(chance.randrange(1, 4)):
                flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
            # Two flips of one bit would be none.
            flipped[0] ^= flipped == parts[index]
            parts[index] = bytes(flipped)
        case 3:
            index = chance.randrange(len(parts))
            parts[index] = parts[index][: chance.randrange(len(parts[index]))]
        case 4:
            parts[0] += chance.randbytes(1)
        case 5:
            parts.append(chance.randbytes(chance.randrange(5)))
        case 6:
            parts *= chance.randrange(2, 9)
    return parts


def share(seq: int, escrow: int, size_bytes: int) -> dict[str, Any]:
    numbers = {"epoch": U63, "round": U63, "note": U63, "step": U63}
    return {"seq": seq, "escrow": escrow, "size_bytes": size_bytes} | numbers


def any_offer(chance: random.Random, seq: int, number: int) -> Offer:
    """What a stranger may say of a share: forms, frames and memory that nobody agreed on."""
    form = Form(
        chance.choice(["float32", "int8", f"topk:{chance.random() + 1e-9:.9f}"]),
        copy=chance.random() < 0.2,
        anchor=chance.random() < 0.2,
    )
    segment = chance.choice(["", f"{os.getpid()}:0:{bytes(16).hex()}", "1:2:3", "../../etc"])
    frames = {"frame_bytes": chance.choice([0, 1, 4096, 1 << 20]), "eager_bytes": number}
    return Offer(**share(seq, number, number), **frames, form=form, segment=segment)


def any_body(chance: random.Random, size_bytes: int) -> Body:
    """Something that was never agreed on, with values as far off as the wire allows."""
    seq = chance.choice([10**6, 2**32, 2**62, U63])
    number = chance.choice([0, 1, 2**31, 2**62, U63])
    bodies: list[Body] = [
        Push(**share(seq, number, size_bytes)),
        any_offer(chance, seq, number),
        *(Grant(seq, number), Ack(seq, number, number), Query(seq), Pending(seq)),
        Chunk(seq, chance.choice([0, 1, 2**32 - 1]), number),
        *(Ask(), Leave(False), Leave(True), Read()),
        Describe(Schema((TensorSpec("w", (2**48,) * 4, "float64"),))),
    ]
    return chance.choice(bodies)


def name(chance: random.Random) -> str:
    return chance.choice(["", "peer ", "\u2603"]) + chance.randbytes(8).hex()


def message(envelope: Envelope, frame: bytes = b"") -> Message:
    parts = encode(replace(envelope, frame_bytes=len(frame)), frame)
    return [bytes(part) for part in parts]


def stray(chance: random.Random, real: Envelope) -> Message:
    """A message of a stranger with a checksum that is right and an address that is not."""
    wrong = chance.choice(
        [
            {"destination": name(chance)},
            {"destination_incarnation": chance.choice([0, 1, real.destination_incarnation - 1])},
            {"schema": chance.randbytes(16)},
        ]
    )
    body = any_body(chance, real.frame_bytes)
    forged = replace(real, source=name(chance), source_incarnation=U63, body=body)
    frame = bytes(real.frame_bytes) if isinstance(body, Push) else b""
    return message(replace(forged, **wrong), frame)  # type: ignore[arg-type]


def harmless(chance: random.Random, real: Envelope) -> Message:
    """A message of a stranger, rightly addressed, that brings no weight: or none that counts."""
    forged = replace(real, source=name(chance), source_incarnation=chance.choice([1, U63]))
    body = any_body(chance, real.frame_bytes)
    frame = b""
    if isinstance(body, Push):
        frame = b"\xff" * real.frame_bytes  # not a number, all of it
    elif isinstance(body, Offer):
        body = replace(body, size_bytes=real.frame_bytes + 1, form=Form())
    elif isinstance(body, Chunk):
        frame = chance.randbytes(100)
    return message(replace(forged, body=body), frame)


@pytest.mark.parametrize("n_messages", COUNTS)
def test_what_is_damaged_replayed_or_astray_moves_no_weight(pair: Pair, n_messages: int) -> None:
    reals = {id: pair.wire.push_to(id) for id in ("a", "b")}

    def forge(chance: random.Random, to: str) -> Message:
        kind = chance.random()
        if kind < 0.5:
            return damaged(chance, pair.wire)
        if kind < 0.7:
            return pair.wire.any(chance)
        if kind < 0.85:
            return stray(chance, reals[to])
        return harmless(chance, reals[to])

    assert attack(pair, forge, n_messages) < GROWTH_BYTES_MAX
    pair.end()
    assert [trainee.error for trainee in pair.trainees] == [None, None]
    books = audit(
        account for id in ("a", "b") for account in read_ledger(pair.folder / id / "ledger.jsonl")
    )
    assert books.balanced and books.held == books.founded == 2 * ONE


def introduction(chance: random.Random, real: Envelope) -> Message:
    """A stranger says hello, and tells of another and of addresses that are none."""
    addresses = ("tcp://*:7700", "ipc:///tmp/x", "tcp://127.0.0.1:9", "tcp://-:1", "junk")
    # A stranger who says that he trains is believed, and would be pushed to.
    phases = [chance.choice([Phase.SEEKING, Phase.QUIET, Phase.LEFT]), chance.choice(list(Phase))]
    members = tuple(
        Member(
            id=name(chance),
            incarnation=chance.choice([1, U63]),
            heartbeat=chance.choice([0, U63]),
            phase=phase,
            step=U63,
            addresses=addresses if chance.random() < 0.1 else (),
        )
        for phase in phases
    )
    return message(
        replace(
            real,
            source=members[0].id,
            source_incarnation=members[0].incarnation,
            body=Hello(members=members, rooted=True, reply=chance.random() < 0.5),
        )
    )


def hostile(chance: random.Random, real: Envelope) -> Message:
    """A valid message of somebody who is no member, or speaks for one, and means harm."""
    # Everybody who says hello is remembered, and told of in every hello from then on.
    match chance.randrange(500):
        case 0 | 1:
            return introduction(chance, real)
        case 2:
            return [b""] * 500
        case 3 if chance.random() < 0.1:
            return [bytes(FRAME_BYTES_MAX + 2 * 4096)]
    body = any_body(chance, real.frame_bytes)
    if isinstance(body, Ack | Grant | Chunk | Pending) and chance.random() < 0.5:
        # In a member's own name, about shares that there never were.
        return message(replace(real, body=body), b"x" if isinstance(body, Chunk) else b"")
    if isinstance(body, Push | Offer):
        body = replace(body, escrow=chance.choice([0, 1, ONE]))
    stranger = replace(real, source=name(chance), source_incarnation=chance.choice([1, U63]))
    frame = bytes(real.frame_bytes) if isinstance(body, Push) else b""
    return message(replace(stranger, body=body), frame)


@pytest.mark.parametrize("n_messages", COUNTS)
def test_nothing_that_a_stranger_says_stops_a_peer_or_makes_it_grow(
    pair: Pair, n_messages: int
) -> None:
    reals = {id: pair.wire.push_to(id) for id in ("a", "b")}
    growth = attack(pair, lambda chance, to: hostile(chance, reals[to]), n_messages)
    assert growth < GROWTH_BYTES_MAX
    for trainee in pair.trainees:
        assert all(torch.isfinite(flat).all() for flat in trainee.peer.vector.flats)
