"""Following a ZeroMQ connection: where its messages begin and end."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.cli.launch.proxy.zmtp import Follower, Piece


def greeting(mechanism: bytes = b"NULL", version: int = 3) -> bytes:
    head = b"\xff" + bytes(7) + b"\x01\x7f" + bytes([version, 1])
    return head + mechanism.ljust(20, b"\0") + bytes(32)


def frame(body: bytes, flags: int = 0) -> bytes:
    if len(body) > 255:
        return bytes([flags | 2]) + len(body).to_bytes(8, "big") + body
    return bytes([flags, len(body)]) + body


def message(parts: list[bytes]) -> bytes:
    return b"".join([*(frame(part, 1) for part in parts[:-1]), frame(parts[-1])])


READY = frame(b"\x05READY" + bytes(30), 4)
PING = frame(b"\x04PING" + bytes(2), 4)


def fed(stream: bytes, cuts: list[int]) -> list[Piece]:
    """The pieces of a stream that comes cut at these places."""
    follower = Follower()
    ends = sorted({cut % (len(stream) + 1) for cut in cuts} | {0, len(stream)})
    came = [stream[start:end] for start, end in pairwise(ends)]
    return [piece for data in came for piece in follower.feed(data)]


def messages_of(pieces: list[Piece]) -> list[bytes]:
    """What stands between the beginnings and the ends."""
    found: list[bytes] = []
    within = False
    for piece in pieces:
        if not piece.is_message:
            assert not piece.first and not piece.last
            continue
        assert piece.first is not within
        found[len(found) if piece.first else -1 :] = [
            (b"" if piece.first else found[-1]) + bytes(piece.data)
        ]
        within = not piece.last
    assert not within
    return found


bodies = st.one_of(st.binary(max_size=20), st.binary(min_size=250, max_size=600))
messages = st.lists(st.lists(bodies, min_size=1, max_size=3), max_size=6)


@given(messages=messages, cuts=st.lists(st.integers(0, 5000), max_size=30))
def test_messages_are_found_however_their_bytes_come(
    messages: list[list[bytes]], cuts: list[int]
) -> None:
    sent = [message(parts) for parts in messages]
    stream = greeting() + READY + b"".join(each + PING for each in sent)
    pieces = fed(stream, cuts)
    assert b"".join(piece.data for piece in pieces) == stream
    assert messages_of(pieces) == sent


def test_messages_are_found_in_a_stream_that_comes_byte_by_byte() -> None:
    sent = [message([b"header", bytes(70_000)]), message([b""]), message([b"", b"", b"x" * 256])]
    stream = greeting() + READY + b"".join(sent)
    assert messages_of(fed(stream, list(range(len(stream))))) == sent


@pytest.mark.parametrize(
    "start",
    [
        greeting(b"CURVE"),
        greeting(b"PLAIN"),
        greeting(version=1),
        greeting()[:9] + b"\0" + greeting()[10:],
        b"GET / HTTP/1.1\r\n\r\n".ljust(64),
    ],
)
def test_what_cannot_be_followed_is_no_message(start: bytes) -> None:
    stream = start + READY + message([b"x", bytes(1000)])
    for cuts in ([], list(range(80)), [1, 9, 10, 11, 64]):
        pieces = fed(stream, cuts)
        assert b"".join(piece.data for piece in pieces) == stream
        assert messages_of(pieces) == []


def test_only_the_head_of_a_frame_waits_for_what_comes_next() -> None:
    follower = Follower()
    stream = greeting() + frame(bytes(1000))
    assert sum(len(piece.data) for piece in follower.feed(stream[: 64 + 8])) == 64
    assert sum(len(piece.data) for piece in follower.feed(stream[64 + 8 : 64 + 10])) == 10
    assert sum(len(piece.data) for piece in follower.feed(stream[64 + 10 :])) == 999
