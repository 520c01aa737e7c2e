"""Peers with scripted answers, on a fake network."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rumor.gossip.wire.codec import Buffer, decode, encode
from rumor.gossip.wire.messages import (
    Body,
    Envelope,
    Member,
    Phase,
    Sighting,
    Standing,
    Status,
)

from ..letters import letter

__all__ = ["FakeNetwork", "FakePeer", "a_member", "sighting"]


def a_member(id: str, step: int = 0, **fields: Any) -> Member:
    """An entry of a member table, with an address derived from its name."""
    fields = {"addresses": (f"tcp://10.0.0.1:{7000 + hash_of(id)}",), **fields}
    fields = {"incarnation": 1, "heartbeat": 1, "phase": Phase.TRAINING, **fields}
    return Member(id=id, step=step, **fields)


def hash_of(id: str) -> int:
    """A small number derived from a name."""
    return sum(id.encode()) % 999


def sighting(id: str, standing: Standing = Standing.LIVE, **fields: Any) -> Sighting:
    """A report about a member."""
    return Sighting(a_member(id, **fields), standing)


@dataclass
class FakePeer:
    """Answers with a status that a test may change; without a status it is silent."""

    status: Status | None = None
    requests: list[Any] = field(default_factory=list)
    override: Callable[[Envelope], Sequence[tuple[Envelope, bytes]]] | None = None
    """Makes other answers instead, with frames."""

    def answers(self, question: Envelope) -> Sequence[tuple[Envelope, bytes]]:
        self.requests.append(question.body)
        if self.override is not None:
            return self.override(question)
        return [] if self.status is None else [(answer(question, self.status), b"")]


def answer(question: Envelope, body: Body, **changes: Any) -> Envelope:
    """An answer to a question, as its sender would build it."""
    me = body.me if isinstance(body, Status) else a_member("x")
    fields: dict[str, Any] = {"source": me.id, "source_incarnation": me.incarnation, **changes}
    return letter(body, swarm=b"s" * 16, destination=question.source, **fields)


class _Received:
    route = b""

    def __init__(self, parts: Sequence[Buffer], place: str, key: bytes) -> None:
        self.header, self.place, self.key = bytes(parts[0]), place, key
        self._frame = b"".join(map(bytes, parts[1:]))

    def frame(self) -> bytes:
        return self._frame


class FakeNetwork:
    """Replaces the clock, and the `Transport` to these peers, which are given by address."""

    def __init__(self, peers: dict[str, FakePeer]) -> None:
        self.peers = peers
        self.now = 1000.0
        self.dialled: list[str] = []
        self.closed: list[str] = []
        self.why = ""
        self.resolved: dict[str, str] = {}
        """Resolved addresses, by the addresses that are dialled."""
        self.keys: dict[str, bytes] = {}
        """Keys of the machines at some addresses; a key is the name of its peer."""
        self._inbox: deque[_Received] = deque()

    def __call__(self, bind: None, *, keyring: None) -> "FakeNetwork":
        return self

    def clock(self) -> float:
        return self.now

    def greet(self, place: str, parts: Sequence[Buffer]) -> bool:
        self.dialled.append(place)
        peer = self.peers.get(place)
        if peer is None:
            return False
        for envelope, frame in peer.answers(decode(list(parts))):
            encoded = encode(replace(envelope, frame_bytes=len(frame)), frame)
            key = self.keys.get(place, b"")
            self._inbox.append(_Received(encoded, self.resolved.get(place, place), key))
        return True

    def poll(self, timeout_s: float) -> Iterator[_Received]:
        if not self._inbox:
            self.now += timeout_s
        while self._inbox:
            yield self._inbox.popleft()

    def may_speak_as(self, key: bytes, name: str) -> bool:
        return key == name.encode()

    def refusal(self, place: str) -> str:
        return self.why

    def dismiss(self, place: str) -> None:
        self.closed.append(place)

    def close(self, linger_s: float = 0) -> None:
        self.closed.append("all")
