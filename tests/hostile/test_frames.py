"""Invalid frames of every kind do not stop a live peer, and no weight is lost."""

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
    """Draws hostile frames.

    Args:
        stranger: A connection that knows its victim.
        size_bytes: Size of a share.
    """

    def __init__(self, stranger: Stranger, size_bytes: int) -> None:
        self._stranger = stranger
        self._size_bytes = size_bytes
        self._rng = random.Random(5)
        self._sent: list[Parts] = []

    def draw(self) -> Parts:
        """Return the next frame: hostile but well formed, a replay, damaged, or truncated."""
        rng = self._rng
        kind = rng.random()
        if kind < 0.5 or not self._sent:
            parts = self._valid()
            self._sent = [*self._sent[-200:], parts]
            return parts
        parts = list(rng.choice(self._sent))
        if kind < 0.6:
            return parts
        number = rng.randrange(len(parts))
        part = bytearray(parts[number])
        if kind < 0.85:
            for _ in range(rng.randrange(1, 4)):
                part[rng.randrange(len(part))] ^= 1 << rng.randrange(8)
        elif kind < 0.95:
            del part[rng.randrange(len(part)) :]
        else:
            parts.append(rng.randbytes(rng.randrange(100)))
        parts[number] = bytes(part)
        return parts

    def _name(self) -> str:
        return f"{self._stranger.name}.{self._rng.randrange(300)}"

    def _number(self) -> int:
        return self._rng.choice([0, 1, 2, 2**31, 2**53, 2**62, c.U63, -1, 2**64 - 1])

    def _valid(self) -> Parts:
        """Return a well-formed message with some numbers out of range that cannot bring weight."""
        rng, size = self._rng, self._size_bytes
        name, number, seq = self._name(), self._number(), rng.randrange(1, 10_000)
        entry = c.member(
            name,
            incarnation=rng.choice([1, 1, 1, 2, c.U63]),
            heartbeat=abs(number) >> 2,
            phase=rng.choice([c.SEEKING, c.JOINING, c.LEFT]),
            step=abs(number) >> 2,
            addresses=rng.choice([[], ["tcp://127.0.0.1:9"], ["ipc:///tmp/x", "junk"]]),
        )
        other = c.member(self._name(), heartbeat=rng.randrange(9), phase=c.TRAINING)
        rows = [(self._name(), abs(number) >> 2)]
        bodies = {
            m.Hello: self._stranger.hello(entry, other, clock=rows, reply=rng.random() < 0.5),
            m.Push: c.offer(seq, c.FOUNDER, size),
            m.Offer: c.offer(seq, number, size, frame_bytes=rng.choice([0, 1, size, 1 << 20])),
            m.Chunk: [seq, rng.choice([0, 1, 2**32 - 1]), number],
            m.Grant: [seq, number],
            m.Ack: [seq, number, number],
            m.Query: [seq],
            m.Pending: [seq],
            m.Refer: [[entry]],
            m.Ask: [rng.random() < 0.5],
        }
        kind = rng.choice([*bodies, m.Hello, m.Offer, m.Ask, m.Query])
        # All values are NaN: a finite share would be mixed and bring weight that no peer founded.
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
        run.await_processed(stranger)
        run.exchange()
        steps = run.v.peer.steps
        run.wait(lambda: run.v.peer.steps > steps)
        stranger.close()
        totals = run.audit_ledgers()
        assert totals.balanced and totals.founded == 2 * ONE
        assert [victim.error for victim in run.victims] == [None, None]
