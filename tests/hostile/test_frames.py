"""Frames of every kind that make no sense, at a live peer: it trains on, and no weight is lost."""

import random
from pathlib import Path

import pytest

from rumor.gossip.weight import ONE
from rumor.gossip.wire import messages as m

from . import client as c
from .client import Parts, Stranger
from .victims import Run, look

pytestmark = pytest.mark.live

COUNT = 20_000


class Forger:
    """Draws one hostile frame after another.

    Args:
        stranger: Knows whom it talks to.
        size_bytes: Of a share.
    """

    def __init__(self, stranger: Stranger, size_bytes: int) -> None:
        self._stranger = stranger
        self._size_bytes = size_bytes
        self._chance = random.Random(5)
        self._said: list[Parts] = []

    def draw(self) -> Parts:
        """The next frame: valid and meant badly, a replay, damaged, or truncated."""
        chance = self._chance
        kind = chance.random()
        if kind < 0.5 or not self._said:
            parts = self._valid()
            self._said = [*self._said[-200:], parts]
            return parts
        parts = list(chance.choice(self._said))
        if kind < 0.6:
            return parts
        number = chance.randrange(len(parts))
        part = bytearray(parts[number])
        if kind < 0.85:
            for _ in range(chance.randrange(1, 4)):
                part[chance.randrange(len(part))] ^= 1 << chance.randrange(8)
        elif kind < 0.95:
            del part[chance.randrange(len(part)) :]
        else:
            parts.append(chance.randbytes(chance.randrange(100)))
        parts[number] = bytes(part)
        return parts

    def _name(self) -> str:
        return f"{self._stranger.name}.{self._chance.randrange(300)}"

    def _number(self) -> int:
        return self._chance.choice([0, 1, 2, 2**31, 2**53, 2**62, c.U63, -1, 2**64 - 1])

    def _valid(self) -> Parts:
        """Well formed, but for numbers that are out of range; nothing that can bring weight."""
        chance, size = self._chance, self._size_bytes
        name, number, seq = self._name(), self._number(), chance.randrange(1, 10_000)
        entry = c.member(
            name,
            incarnation=chance.choice([1, 1, 1, 2, c.U63]),
            heartbeat=abs(number) >> 2,
            phase=chance.choice([c.SEEKING, c.JOINING, c.LEFT]),
            step=abs(number) >> 2,
            addresses=chance.choice([[], ["tcp://127.0.0.1:9"], ["ipc:///tmp/x", "junk"]]),
        )
        told = c.member(self._name(), heartbeat=chance.randrange(9), phase=c.TRAINING)
        rows = [(self._name(), abs(number) >> 2)]
        bodies = {
            m.Hello: self._stranger.hello(entry, told, clock=rows, reply=chance.random() < 0.5),
            m.Push: c.offer(seq, c.FOUNDER, size),
            m.Offer: c.offer(seq, number, size, frame_bytes=chance.choice([0, 1, size, 1 << 20])),
            m.Chunk: [seq, chance.choice([0, 1, 2**32 - 1]), number],
            m.Grant: [seq, number],
            m.Ack: [seq, number, number],
            m.Query: [seq],
            m.Pending: [seq],
            m.Refer: [[entry]],
            m.Ask: [chance.random() < 0.5],
            m.Read: [],
        }
        kind = chance.choice([*bodies, m.Hello, m.Offer, m.Ask, m.Query])
        # Not a number, all of it: what is finite would be mixed, and is weight that nobody founded.
        frame = b"\xff" * size if kind in (m.Push, m.Chunk) else b""
        return self._stranger.parts(kind, bodies[kind], frame, name=name)


@pytest.mark.extended
@pytest.mark.parametrize("keys", [False, True], ids=["open", "inside"])
def test_hostile_frames_change_nothing(keys: bool, tmp_path: Path) -> None:
    with Run(tmp_path, keys=keys) as run:
        stranger = run.stranger()
        size = look(run.v, lambda protocol: protocol.state.schema.share_bytes)
        forger = Forger(stranger, size)
        for sent in range(COUNT):
            stranger.send(forger.draw())
            if sent % 50 == 0:
                stranger.drain()
            if sent % 1000 == 0:
                run.assert_well()
        stranger.drain()
        run.heard(stranger)
        run.exchange()
        steps = run.v.peer.steps
        run.wait(lambda: run.v.peer.steps > steps)
        stranger.close()
        books = run.books()
        assert books.balanced and books.founded == 2 * ONE
        assert [victim.error for victim in run.victims] == [None, None]
