"""Every message round-trips through its bytes, and no other bytes decode."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from zlib import crc32

import msgpack
import pytest

from rumor.gossip.errors import DecodeError, IncompatiblePeer, LocalProtocolError
from rumor.gossip.weight import ONE, UNIT
from rumor.gossip.wire.codec import (
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
    VERSION,
    Buffer,
    decode,
    encode,
    encoded_bytes,
    is_version_notice,
    version_notice,
)
from rumor.gossip.wire.formats import Form
from rumor.gossip.wire.messages import (
    Ack,
    Ask,
    Body,
    Chunk,
    Describe,
    Envelope,
    EventNote,
    Excerpt,
    Fetch,
    Grant,
    Hello,
    Inquire,
    Leave,
    LinkStatus,
    Member,
    Offer,
    Pending,
    Phase,
    Push,
    Query,
    Refer,
    Sighting,
    Standing,
    Status,
    Stop,
    Stopping,
)
from rumor.gossip.wire.schema import SHARDS_MAX, Schema, TensorSpec

__all__ = ["LINK", "SAMPLES", "framed"]

U63 = 2**63 - 1


def framed(envelope: Envelope, frame: bytes) -> list[Buffer]:
    """Return the parts of a message with this frame."""
    return encode(replace(envelope, frame_bytes=len(frame)), frame)


def sample(body: Body) -> Envelope:
    return Envelope(
        swarm=bytes(range(16)),
        schema=bytes(range(16, 32)),
        source="peer-0",
        source_incarnation=1_700_000_000_000,
        destination="peer-1",
        destination_incarnation=7,
        body=body,
    )


NUMBERS: dict[str, Any] = {
    "size_bytes": 64,
    "frame_bytes": 32,
    "form": Form("int8", copy=True, anchor=True),
    "segment": "17:5:2a",
    "epoch": 1,
    "round": 2,
    "note": 0,
    "step": 300,
}


def offer(**changes: Any) -> Offer:
    """Return an offer; *changes* override the default fields."""
    return Offer(seq=1, escrow=ONE // 2, **NUMBERS | changes)


PEER = Member("peer-0", 1, 40, Phase.TRAINING, 9, addresses=("tcp://10.0.0.5:7700",))
MEMBERS = (
    PEER,
    replace(PEER, id="peer-1", incarnation=2, anchored=True, host=bytes(range(16))),
)
TENSORS = (TensorSpec("weight", (3, 4), "float32"), TensorSpec("count", (), "int64", shared=False))

COUNTS = {
    "bytes_sent": 100,
    "bytes_received": 50,
    "pushes": 1,
    "refusals": 0,
    "mixed": 2,
    "in_flight": 1,
}
LINK = LinkStatus(peer="b", shares_memory=False, roundtrip_s=0.001, **COUNTS)

STATUS = Status(
    me=MEMBERS[0],
    uptime_s=12.5,
    swarm_steps=40,
    figures=(("pushes", 3.0), ("loss", 0.25)),
    settings=(("rule", "gosgd"),),
    awaits=("b",),
    links=(LINK,),
    events=(EventNote(number=1, event="joined", peer="b", ago_s=3.0),),
    members=(Sighting(MEMBERS[0], Standing.SUSPECTED),),
    sample=(0.5, -2.0),
)


SAMPLES: dict[str, list[Buffer]] = {
    type(envelope.body).__name__.lower(): framed(envelope, frame)
    for envelope, frame in [
        (sample(Hello(members=MEMBERS, clock=(("gone", 7),), rooted=True, reply=False)), b""),
        (sample(Describe(Schema(TENSORS, shards=1))), b""),
        (sample(Ask()), b""),
        (sample(Push(seq=1, escrow=ONE // 2, **NUMBERS)), bytes(range(64))),
        (sample(Offer(seq=2, escrow=ONE // 2, **NUMBERS)), b""),
        (sample(Grant(3, 8 << 20)), b""),
        (sample(Chunk(4, 1, 1 << 20)), b"chunk"),
        (sample(Ack(6, ONE // 2, 8 << 20)), b""),
        (sample(Query(7)), b""),
        (sample(Pending(8)), b""),
        (sample(Leave(False)), b""),
        (sample(Refer(MEMBERS[:1])), b""),
        (sample(Stop((("peer-1", 7),), bytes(64))), b""),
        (sample(Stopping("", ONE // 2, Phase.QUIET, 40, True)), b""),
        (sample(Inquire(events_after=3, members=True)), b""),
        (sample(STATUS), b""),
        (sample(Fetch(snapshot=2, offset_bytes=64)), b""),
        (sample(Excerpt(snapshot=2, offset_bytes=64, held=ONE // 2, step=9)), bytes(64)),
    ]
}
"""One message of each kind."""


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_message_round_trips_and_its_length_is_predicted(kind: str) -> None:
    _, *frames = parts = SAMPLES[kind]
    envelope = decode(parts)
    assert encode(envelope, *frames) == parts
    assert encoded_bytes(envelope) == sum(map(len, parts))


@pytest.mark.parametrize("as_buffer", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("kind", SAMPLES)
def test_parts_may_be_any_kind_of_buffer(kind: str, as_buffer: Callable[[Buffer], Buffer]) -> None:
    assert decode([as_buffer(part) for part in SAMPLES[kind]]) == decode(SAMPLES[kind])


def test_the_encoding_matches_version_6() -> None:
    header = (
        "9b"
        "c410000102030405060708090a0b0c0d0e0f"  # swarm
        "c410101112131415161718191a1b1c1d1e1f"  # schema
        "a6706565722d30" "cf0000018bcfe56800"  # peer-0, its incarnation
        "a6706565722d31" "07"  # peer-1, its incarnation
        "00" "00" "00"  # no frame, shard 0, no checksum
        "07" "9306cf0000008000000000ce00800000"  # ACK of share 6: 2**39 units, 8 MiB of credit
    )  # fmt: skip
    (part,) = SAMPLES["ack"]
    assert bytes(part[:4]) == b"RMR\x06" and VERSION == 6
    assert bytes(part[8:]).hex() == header


def body_of(message: Envelope) -> Any:
    """Return the encoded fields of a message body."""
    return msgpack.unpackb(encode(message)[0][8:])[-1]


def forged(message: Envelope, index: int, value: Any) -> list[Buffer]:
    """Return the message with a changed field in its body and a valid checksum."""
    fields = msgpack.unpackb(encode(message)[0][8:])
    fields[-1][index] = value
    header = msgpack.packb(fields)
    return [b"RMR" + bytes([VERSION]) + crc32(header).to_bytes(4, "little") + header]


def test_a_weight_is_encoded_as_whole_units_or_as_bytes() -> None:
    encoded = [body_of(sample(Ack(6, weight)))[1] for weight in (3 * UNIT // 2, 3 * UNIT, 255)]
    assert encoded == [bytes([1, 128]) + bytes(119), 3, b"\xff"]


@pytest.mark.parametrize(
    ("encoded", "message_pattern"),
    [
        (-1, "accepted must be an integer in"),
        (U63 + 1, "accepted must be an integer in"),
        (True, "accepted must be an integer in"),
        (1.5, "accepted must be an integer in"),
        (b"", "without leading zeros"),
        (b"\0\1", "without leading zeros"),
        ((U63 * UNIT + 1).to_bytes(128), f"a weight of at most {U63} units"),
        (bytes([255]) * 128, f"a weight of at most {U63} units"),
        (bytes([1]) * 129, "the header is not msgpack"),
        (UNIT.to_bytes(121), "a number where its units are whole"),
    ],
)
def test_a_weight_has_one_encoding_and_all_others_are_refused(
    encoded: Any, message_pattern: str
) -> None:
    with pytest.raises(DecodeError, match=message_pattern):
        decode(forged(sample(Ack(6, 5)), 1, encoded))


def test_later_fields_of_a_form_are_omitted_at_their_defaults() -> None:
    for form, encoded in (
        (Form("int8", copy=True), ["int8", True, False]),
        (Form("int8", registers=2), ["int8", False, False, 2]),
        (Form("int8", bare=True), ["int8", False, False, 1, True]),
        (Form(registers=3, bare=True), ["float32", False, False, 3, True]),
    ):
        assert body_of(sample(offer(form=form)))[5] == encoded
        assert decode(encode(sample(offer(form=form)))).body == offer(form=form)


@pytest.mark.parametrize(
    "encoded",
    [
        ["int8", False, False, 1],
        ["int8", False],
        "int8",
        [],
        ["int8", False, False, 1, False],
        ["int8", False, False, 0, True],
    ],
)
def test_a_form_has_one_encoding_and_all_others_are_refused(encoded: Any) -> None:
    with pytest.raises(DecodeError, match="form must be "):
        decode(forged(sample(offer()), 5, encoded))


def test_the_numbers_of_message_kinds_never_change() -> None:
    order = ["hello", "describe", "ask", "push", "offer", "grant", "chunk", "ack"]
    order += ["query", "pending", "leave", "refer", "stop", "stopping"]
    order += ["inquire", "status", "fetch", "excerpt"]
    numbers = {kind: msgpack.unpackb(parts[0][8:])[-2] for kind, parts in SAMPLES.items()}
    assert numbers == {kind: number for number, kind in enumerate(order)}


def test_a_frame_must_have_the_length_in_its_envelope() -> None:
    envelope = decode(SAMPLES["push"])
    with pytest.raises(LocalProtocolError, match="a frame of 3 bytes, not 64"):
        encode(envelope, b"abc")


def test_a_frame_above_the_maximum_size_is_refused() -> None:
    envelope = decode(SAMPLES["chunk"])
    assert decode(framed(envelope, bytes(FRAME_BYTES_MAX))).frame_bytes == FRAME_BYTES_MAX
    with pytest.raises(DecodeError, match="frame_bytes must be an integer in"):
        decode(framed(envelope, bytes(FRAME_BYTES_MAX + 1)))


@pytest.mark.extended
def test_a_member_table_above_the_maximum_size_is_refused() -> None:
    members = tuple(
        Member(id=f"{i}", incarnation=1, heartbeat=1, phase=Phase.TRAINING, step=1)
        for i in range((1 << 14) + 1)
    )
    largest = sample(Hello(members=members[1:], rooted=True, reply=True))
    assert decode(encode(largest)) == largest
    with pytest.raises(DecodeError, match="members must be an array of at most 16384"):
        decode(encode(sample(Hello(members=members, rooted=True, reply=True))))


def test_an_oversized_header_is_not_parsed() -> None:
    with pytest.raises(DecodeError, match="a header of 1048577 bytes"):
        decode([bytes(HEADER_BYTES_MAX + 1)])


def test_a_notice_contains_only_the_version() -> None:
    (notice,) = version_notice()
    assert is_version_notice(notice) and not is_version_notice(SAMPLES["ack"][0])
    with pytest.raises(DecodeError, match="a header of no bytes"):
        decode([notice])
    other = bytearray(notice)
    other[3] = VERSION + 1
    with pytest.raises(IncompatiblePeer, match=f"it speaks version {VERSION + 1}, and this peer"):
        decode([other])


def test_a_vector_in_more_shards_than_it_has_cache_lines_is_refused() -> None:
    schema = Schema((TensorSpec("w", (32,), "float32"),), shards=2)
    assert decode(encode(sample(Describe(schema)))).body == Describe(schema)
    object.__setattr__(schema, "shards", 3)
    with pytest.raises(DecodeError, match="schema must be valid: shards is"):
        decode(encode(sample(Describe(schema))))


@pytest.mark.parametrize("n_parts", [0, 3, 4])
def test_a_message_has_one_part_or_two(n_parts: int) -> None:
    with pytest.raises(DecodeError, match=f"a message of {n_parts} parts"):
        decode((SAMPLES["push"] * 2)[:n_parts])


@pytest.mark.parametrize(
    ("kind", "frames", "reason"),
    [
        ("push", [], "not as long as the header says"),
        ("push", [b""], "not as long as the header says"),
        ("push", [bytes(63)], "not as long as the header says"),
        ("push", [bytes(65)], "not as long as the header says"),
        ("ack", [b""], "not as long as the header says"),
        ("ack", [b"x"], "not as long as the header says"),
        ("push", [bytes(64)], "the frame was damaged"),
    ],
)
def test_a_frame_that_does_not_match_the_header_is_refused(
    kind: str, frames: list[bytes], reason: str
) -> None:
    with pytest.raises(DecodeError, match=reason) as caught:
        decode([SAMPLES[kind][0], *frames])
    assert caught.value.sender == "peer-0"


def hello_with(**changes: Any) -> dict[str, Any]:
    """Return a hello whose only entry has *changes*."""
    members = (replace(MEMBERS[0], **changes),)
    return {"body": Hello(members=members, rooted=True, reply=True)}


def hello_with_clock(*clock: tuple[str, int]) -> dict[str, Any]:
    return {"body": Hello(members=(), clock=clock, rooted=True, reply=True)}


def offer_with(**changes: Any) -> dict[str, Any]:
    return {"body": offer(**changes)}


def status_with(**changes: Any) -> dict[str, Any]:
    return {"body": replace(STATUS, **changes)}


UNFIT: Any = Schema((TensorSpec("w", (1,), "complex64"),))
UNKNOWN: Any = Sighting(MEMBERS[0], 4)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message_pattern"),
    [
        ({"source": ""}, "source must be text of 1 to 64 characters"),
        ({"source": "a\nb"}, "source must be printable text"),
        ({"source_incarnation": 0}, "source_incarnation must be an integer in"),
        ({"destination": "x" * 65}, "destination must be text of 0 to 64 characters"),
        ({"schema": b""}, "schema must be bytes of length"),
        ({"shard": SHARDS_MAX}, "shard must be an integer in"),
        ({"body": Ack(0, 1)}, "seq must be an integer in"),
        ({"body": Leave(1)}, "gone must be true or false"),  # type: ignore[arg-type]
        ({"body": Refer(MEMBERS[:1] * 65)}, "donors must be an array of at most 64"),
        ({"body": Inquire(events_after=-1)}, "events_after must be an integer in"),
        ({"body": Describe(UNFIT)}, "schema must be tensors must be dtype must be a dtype that"),
        (
            hello_with(addresses=("",)),
            "members must be addresses must be text of 1 to 256 characters",
        ),
        (hello_with(host=b"me"), "members must be host must be bytes of length"),
        (hello_with(step=2**62 + 1), "members must be step must be an integer in"),
        (hello_with_clock(("", 1)), "clock must be peer must be text of 1 to 64 characters"),
        (hello_with_clock(("a", 2**62 + 1)), "clock must be steps must be an integer in"),
        (hello_with_clock(*[("a", 1)] * 1025), "clock must be an array of at most 1024"),
        (offer_with(frame_bytes=FRAME_BYTES_MAX + 1), "frame_bytes must be an integer in"),
        (offer_with(segment="x" * 129), "segment must be text of 0 to 128 characters"),
        (offer_with(form=Form("topk:0")), "form must be wire must be a format that can"),
        (offer_with(form=Form("x" * 33)), "form must be wire must be text of 1 to 32"),
        (offer_with(form=Form(registers=17)), "form must be registers must be an integer in"),
        (status_with(uptime_s=float("nan")), "uptime_s must be a float in"),
        (status_with(uptime_s=2e11), "uptime_s must be a float in"),
        (status_with(figures=(("lr", True),)), "figures must be value must be a float"),
        (status_with(figures=(("loss", float("nan")),)), "a float that is a number"),
        (status_with(figures=(("a", 1.0),) * 65), "figures must be an array of at most"),
        (status_with(settings=(("rule", "\x1b[2J"),)), "value must be printable text"),
        (status_with(links=STATUS.links * 65), "links must be an array of at most 64"),
        (status_with(events=STATUS.events * 65), "events must be an array of at most 64"),
        (status_with(members=(UNKNOWN,)), "members must be standing must be an integer in"),
    ],
)
def test_a_field_out_of_range_is_named(changes: dict[str, Any], message_pattern: str) -> None:
    with pytest.raises(DecodeError, match=message_pattern):
        decode(encode(replace(sample(Ask()), **changes)))
