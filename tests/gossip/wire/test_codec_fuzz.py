"""Any input is either decoded as a message or refused.

A checksum protects against damage, not malice, so most of these tests forge valid checksums.
"""

import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip.errors import DecodeError, IncompatiblePeer
from rumor.gossip.wire.codec import VERSION, Buffer, decode, encode

from .test_codec import SAMPLES

PREFIX_BYTES = 8
VERSION_BYTE = 3


def forge(header: bytes) -> bytes:
    """Return a first part with a valid checksum."""
    return struct.pack("<3sBI", b"RMR", VERSION, crc32(header)) + header


def pack(value: Any) -> bytes:
    return bytes(msgpack.packb(value))


def fields_of(first: Buffer) -> list[Any]:
    """Return the header of a message as nested lists."""
    fields: list[Any] = msgpack.unpackb(first[PREFIX_BYTES:])
    return fields


def refused(parts: list[Buffer]) -> bool:
    """Return whether the parts are refused; if not, they must be a canonical message."""
    try:
        envelope = decode(parts)
    except DecodeError:
        return True
    assert decode(encode(envelope, parts[1] if len(parts) == 2 else b"")) == envelope
    return False


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_truncated_message_is_refused(kind: str) -> None:
    first, *frames = map(bytes, SAMPLES[kind])
    assert all(refused([first[:size], *frames]) for size in range(len(first)))
    for frame in frames:
        assert all(refused([first, frame[:size]]) for size in range(len(frame)))


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_truncated_header_with_a_valid_checksum_is_refused(kind: str) -> None:
    first, *frames = map(bytes, SAMPLES[kind])
    header = first[PREFIX_BYTES:]
    assert all(refused([forge(header[:size]), *frames]) for size in range(len(header)))


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_message_with_any_one_bit_flipped_is_refused(kind: str) -> None:
    for number, part in enumerate(SAMPLES[kind]):
        for bit in range(8 * len(part)):
            parts = list(map(bytearray, SAMPLES[kind]))
            parts[number][bit // 8] ^= 1 << bit % 8
            error = IncompatiblePeer if (number, bit // 8) == (0, VERSION_BYTE) else DecodeError
            with pytest.raises(error):
                decode(parts)


@pytest.mark.parametrize("kind", SAMPLES)
def test_trailing_bytes_are_refused(kind: str) -> None:
    first, *frames = map(bytes, SAMPLES[kind])
    for tail in (b"\0", b"\xc0", first[PREFIX_BYTES:]):
        assert refused([forge(first[PREFIX_BYTES:] + tail), *frames])


WRONG = [
    None,
    True,
    False,
    0.0,
    1.0,
    float("nan"),
    float("inf"),
    # Limits of fields, and values beyond them.
    0,
    1,
    -1,
    2**32 - 1,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**63),
    "",
    "a",
    "a" * 64,
    "a" * 2000,
    "a\0b",
    "\u202e",
    "\u2028",
    b"",
    b"a" * 17,
    b"a" * 2000,
    [],
    [1],
    [[]],
    [[[[[]]]]],
    [0] * 100,
    {},
    {1: 2},
    {"seq": 1},
    msgpack.ExtType(5, b""),
    msgpack.ExtType(5, b"abcd"),
    msgpack.Timestamp(1, 2),
]


def positions(value: Any) -> Iterator[tuple[list[Any], int]]:
    """Yield every position in nested lists as a list and an index into it."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield value, index
            yield from positions(item)


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_field_of_another_type_is_refused_in_any_position(kind: str) -> None:
    first, *frames = SAMPLES[kind]
    fields = fields_of(first)
    for holder, index in positions(fields):
        valid = holder[index]
        for invalid in WRONG:
            holder[index] = invalid
            was_refused = refused([forge(pack(fields)), *frames])
            # Weights travel as integers or as bytes; each is the second field of its message.
            is_weight = holder is fields[-1] and index == 1 and type(valid) is int
            assert was_refused or type(invalid) in ({int, bytes} if is_weight else {type(valid)})
        holder[index] = valid


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_header_with_an_extra_or_missing_field_is_refused(kind: str) -> None:
    first, *frames = SAMPLES[kind]
    whole = fields_of(first)
    assert refused([forge(pack([*whole, 0])), *frames])
    assert refused([forge(pack(whole[:-1])), *frames])
    assert refused([forge(pack([*whole[:-1], [*whole[-1], 0]])), *frames])
    if whole[-1]:
        assert refused([forge(pack([*whole[:-1], whole[-1][:-1]])), *frames])


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(junk: bytes) -> None:
    assert refused([junk])
    assert refused([forge(junk)])
    assert refused([SAMPLES["push"][0], junk])


ANY_VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inside: st.lists(inside, max_size=12) | st.dictionaries(st.text(), inside, max_size=2),
    max_leaves=40,
)


@pytest.mark.extended
@given(value=ANY_VALUE, kind=st.sampled_from(sorted(SAMPLES)))
def test_any_msgpack_value_is_a_message_or_refused(value: Any, kind: str) -> None:
    fields = fields_of(SAMPLES[kind][0])
    refused([forge(pack(value))])
    refused([forge(pack([*fields[:-1], value])), *SAMPLES[kind][1:]])


@pytest.mark.parametrize("source", [b"\xa2\xff\xfe", b"\xa3\xed\xa0\x80", b"\xa1\xc3", b"\xc1"])
def test_text_that_is_not_utf_8_is_refused(source: bytes) -> None:
    header = bytes(SAMPLES["ask"][0])[PREFIX_BYTES:]
    forged = header.replace(b"\xa6peer-0", source)
    assert forged != header and refused([forge(forged)])


CLAIMS = {
    "arrays in arrays": b"\xdd\x00\x01\x00\x00" * 1000,
    "arrays in arrays with trailing bytes": b"\xdd\x00\x01\x00\x00" * 1000 + b"\xc0" * 65_000,
    "too deep": b"\x91" * 100_000,
    "one array": b"\xdd\xff\xff\xff\xff",
    "one map": b"\xdf\xff\xff\xff\xff",
    "one text": b"\xdb\x7f\xff\xff\xff",
    "bytes": b"\xc6\x7f\xff\xff\xff",
    "an extension": b"\xc9\x7f\xff\xff\xff\x05",
}


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("where", ["alone", "as a body", "as a source"])
def test_claimed_lengths_allocate_no_memory(claim: str, where: str) -> None:
    header = bytes(SAMPLES["ask"][0])[PREFIX_BYTES:]
    if where == "as a body":
        header = header[:-1] + CLAIMS[claim]
    elif where == "as a source":
        header = header.replace(b"\xa6peer-0", CLAIMS[claim])
    else:
        header = CLAIMS[claim]
    first = forge(header)
    tracemalloc.start()
    try:
        assert refused([first])
        assert tracemalloc.get_traced_memory()[1] < 4 * len(first) + 100_000
    finally:
        tracemalloc.stop()
