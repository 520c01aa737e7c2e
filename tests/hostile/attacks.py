"""Attacks that are one message, or one said again: with an encoder of its own, somebody says to a
live peer what the product would not.

Each does its worst to the first of two victims that train, and returns whether it has achieved what
it was meant to.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from rumor.gossip.weight import FOUNDERS_MAX
from rumor.gossip.wire import messages as m
from rumor.gossip.wire.codec import VERSION

from ..waiting import LIMIT_S
from . import client as c
from .victims import Run, look, norm

__all__ = ["ATTACKS", "Attack"]


class Attack(NamedTuple):
    """One attack, and what is claimed of it."""

    act: Callable[[Run], bool]
    works: bool
    """Whether it works without keys."""
    works_inside: bool
    """Whether it works with keys, for a machine of the roster that lies."""
    rule: str = "gosgd:p=0.5"
    """Of the victims."""


SOON_S: Final = 1.0
"""What has not happened by then is taken never to happen."""

_HUGE: Final = struct.pack("<f", 1e30)


def _share_bytes(run: Run) -> int:
    """How long a share is; whoever reads the model's schema knows."""
    return look(run.v, lambda protocol: protocol.state.schema.share_bytes)


def _other(run: Run) -> Any:
    """The second victim, in the first one's table."""
    known = look(run.v, lambda protocol: protocol.state.table.member(run.w.peer.id))
    assert known is not None
    return known


def _names(run: Run) -> tuple[str, ...]:
    return look(run.v, lambda protocol: tuple(each.id for each in protocol.table.live()))


def _soon_with_keys(run: Run) -> float:
    """How long to watch for what happens without keys, and not with them."""
    return LIMIT_S if run.keys is None else SOON_S


def clock(run: Run) -> bool:
    stranger = run.stranger()
    rows = [("dead", 2**62), (run.w.peer.id, 2**62)]
    stranger.say(m.Hello, stranger.hello(c.member(stranger.name, step=2**62), clock=rows))
    run.heard(stranger)
    run.exchange()
    return look(run.v, lambda protocol: protocol.table.clock.total) >= 1_000_000


def weight(run: Run) -> bool:
    stranger, size = run.stranger(), _share_bytes(run)
    stranger.introduce()
    stranger.say(m.Push, c.offer(1, c.U63 >> 1, size), bytes(size))
    accepted = stranger.hear(m.Ack)[10][1]
    run.exchange()
    return bool(accepted > FOUNDERS_MAX * c.FOUNDER)


def values(run: Run) -> bool:
    stranger, size = run.stranger(), _share_bytes(run)
    stranger.introduce()
    before = norm(run.v)
    stranger.say(m.Push, c.offer(1, c.FOUNDER, size), _HUGE * (size // 4))
    stranger.hear(m.Ack)
    run.exchange()
    return max(norm(run.v), norm(run.w)) >= 10 * before


def not_finite(run: Run) -> bool:
    stranger, size = run.stranger(), _share_bytes(run)
    stranger.introduce()
    stranger.say(m.Push, c.offer(1, c.FOUNDER, size), b"\xff" * size)
    accepted = stranger.hear(m.Ack)[10][1]
    run.exchange()
    return accepted > 0 or norm(run.v) >= 100


def later_life(run: Run) -> bool:
    stranger = run.stranger()
    mine = c.member(stranger.name)
    later = c.member(run.v.peer.id, incarnation=stranger.incarnation + 1000)
    for _ in range(20):
        stranger.say(m.Hello, stranger.hello(mine, later, reply=False))
    run.heard(stranger)
    run.exchange()
    return not run.v.thread.is_alive() or run.w.peer.id not in _names(run)


def obituary(run: Run) -> bool:
    stranger = run.stranger()
    known = _other(run)
    gone = c.member(known.id, incarnation=known.incarnation, heartbeat=2**61, phase=c.LEFT)
    for _ in range(20):
        stranger.say(m.Hello, stranger.hello(c.member(stranger.name), gone))
    run.heard(stranger)
    run.exchange()
    return known.id not in _names(run)


def forged_ack(run: Run) -> bool:
    """Settle in another's name what that one has accepted: its weight is there twice."""
    stranger = run.stranger()
    other = _other(run)
    for _ in range(40):
        first = run.v.peer.stats().counters.pushes
        for seq in range(first, first + 60):  # numbers of pushes are easily guessed
            stranger.say(m.Ack, [seq, 0, 0], name=other.id, incarnation=other.incarnation)
        run.heard(stranger)
    return not run.books().balanced


def goodbye(run: Run) -> bool:
    """Say goodbye in another's name."""
    stranger = run.stranger()
    other = _other(run)
    stranger.say(m.Leave, [True], name=other.id, incarnation=other.incarnation)
    run.heard(stranger)
    gone = run.happens(lambda: other.id not in _names(run), _soon_with_keys(run))
    return gone and not run.happens(lambda: other.id in _names(run), SOON_S)


def stop(run: Run) -> bool:
    """Ask for the end of both, as `rumor stop` does, under no signature and under a made-up one."""
    stranger = run.stranger()
    other = _other(run)
    lives = [[stranger.victim, stranger.incarnation], [other.id, other.incarnation]]
    for signature in (b"", bytes(range(64))):
        stranger.say(m.Stop, [lives, signature])
    run.heard(stranger)
    return run.happens(
        lambda: bool(run.v.peer.ended_by and run.w.peer.ended_by), _soon_with_keys(run)
    )


def fence(run: Run) -> bool:
    """Ask in another's name about a share that it will only send in a year."""
    stranger = run.stranger()
    other = _other(run)
    for _ in range(30):
        # While one of its shares lies there to be mixed, a question about the next is out of order.
        stranger.say(m.Query, [2**62], name=other.id, incarnation=other.incarnation)
        run.heard(stranger)
    # What had come before is mixed still.
    return not all(_goes_on_mixing(run) for _ in range(5))


def _goes_on_mixing(run: Run) -> bool:
    mixed = run.v.mixed()
    within_s = SOON_S if run.keys is None else LIMIT_S
    return run.happens(lambda: run.v.mixed() > mixed + 5, within_s)


def copy(run: Run) -> bool:
    """Ask to read the model."""
    stranger = run.stranger()
    stranger.introduce()
    stranger.say(m.Read, [])
    return run.happens(lambda: stranger.hear_soon(m.Push, 0.1) is not None)


def replays(run: Run) -> bool:
    stranger, size = run.stranger(), _share_bytes(run)
    stranger.introduce()
    push = stranger.parts(m.Push, c.offer(1, c.FOUNDER, size), bytes(size))
    for _ in range(500):
        stranger.send(push)
    run.heard(stranger)
    run.exchange()
    return run.accepted(stranger.name) != [c.FOUNDER]


def no_messages(run: Run) -> bool:
    """Whatever is no message: other magic, nests of arrays, numbers that nothing can hold."""
    stranger = run.stranger()
    whole = stranger.parts(m.Hello, stranger.hello(c.member(stranger.name)))[0]
    errors = run.v.peer.stats().counters.errors
    for parts in (
        *([b""], [b"", b"", b""], [b"RMR"], [b"GET / HTTP/1.1\r\n\r\n"], [b"\0" * 2_000_000]),
        *([whole[:-1]], [whole + b"\0"], [whole[:4] + bytes(4) + whole[8:]], [whole] * 3),
        *([whole[:3] + bytes([version]) + whole[4:]] for version in (0, 3, 5, 255)),
        *(_packed(b"\x91" * 50_000), _packed(b"\xdd\xff\xff\xff\xff"), _packed(b"\xcf" * 9)),
    ):
        stranger.send(parts)
    run.heard(stranger)
    run.exchange()
    return run.v.peer.stats().counters.errors == errors or not run.v.thread.is_alive()


def _packed(header: bytes) -> list[bytes]:
    from zlib import crc32

    return [struct.pack("<3sBI", b"RMR", VERSION, crc32(header)) + header]


def unasked(run: Run) -> bool:
    """Answers to what nobody asked, about shares that there never were."""
    stranger, size = run.stranger(), _share_bytes(run)
    stranger.introduce()
    for seq in (1, 2, 2**32, c.U63):
        stranger.say(m.Grant, [seq, c.U63])
        stranger.say(m.Pending, [seq])
        stranger.say(m.Ack, [seq, 0, c.U63])
        stranger.say(m.Chunk, [seq, 0, 0], bytes(size))
    stranger.say(m.Refer, [[c.member(run.w.peer.id, incarnation=c.U63)]])
    run.heard(stranger)
    run.exchange()
    return not run.books().balanced


def far_future(run: Run) -> bool:
    """A life that begins in a hundred years, so that no other of that name is ever heard again."""
    stranger = run.stranger()
    far = stranger.incarnation + 100 * 365 * 86_400_000
    stranger.say(m.Hello, stranger.hello(c.member(stranger.name, incarnation=far)), incarnation=far)
    run.heard(stranger)
    known = look(run.v, lambda protocol: protocol.state.table.incarnation(stranger.name))
    return known >= far


def never_done(run: Run) -> bool:
    """Be a member that never finishes, so that nobody else ever ends."""
    stranger = run.stranger()
    stranger.introduce(heartbeat=5)
    run.heard(stranger)
    run.end()
    return False


def impostor(run: Run) -> bool:
    """Speak to the victim in its own name."""
    stranger = run.stranger()
    errors = run.v.peer.stats().counters.errors
    stranger.say(m.Hello, stranger.hello(c.member(run.v.peer.id, phase=c.LEFT)), name=run.v.peer.id)
    stranger.say(m.Leave, [True], name=run.v.peer.id, incarnation=stranger.incarnation)
    run.heard(stranger)
    run.exchange()
    return run.v.peer.stats().counters.errors < errors + 2 or not run.v.thread.is_alive()


ATTACKS: Final[dict[str, Attack]] = {
    "a clock that is far ahead": Attack(clock, False, False),
    "a share that outweighs all": Attack(weight, False, False),
    "a share of huge values": Attack(values, True, True),
    "a share of huge values, clipped": Attack(values, False, False, "gosgd:p=0.5,robust=clip"),
    "a share that is not finite": Attack(not_finite, False, False),
    "a later life of the victim": Attack(later_life, False, False),
    "an obituary": Attack(obituary, False, False),
    "an ACK in another's name": Attack(forged_ack, True, False),
    "a goodbye in another's name": Attack(goodbye, True, False),
    "a request to stop": Attack(stop, True, False),
    "a QUERY in another's name": Attack(fence, True, False),
    "a look at the model": Attack(copy, True, True),
    "the same share again": Attack(replays, False, False),
    "what is no message": Attack(no_messages, False, False),
    "answers that nobody waits for": Attack(unasked, False, False),
    "a life in the far future": Attack(far_future, False, False),
    "the victim's own name": Attack(impostor, False, False),
    "a member that never finishes": Attack(never_done, False, False),
}
