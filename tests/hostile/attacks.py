"""Attacks of one message, or of one repeated message, with an encoder of their own.

Each attack acts on the first of two victims that train, and returns whether it succeeded.
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
    """An attack and its documented results."""

    act: Callable[[Run], bool]
    works: bool
    """The attack succeeds without keys."""
    works_inside: bool
    """The attack succeeds with keys, for a lying machine of the roster."""
    rule: str = "gosgd:p=0.5"
    """Rule of the victims."""


SOON_S: Final = 1.0
"""An effect that takes longer is assumed never to happen."""

_HUGE: Final = struct.pack("<f", 1e30)


def _share_bytes(run: Run) -> int:
    """Return the size of a share; any client can compute it from the schema."""
    return look(run.v, lambda protocol: protocol.state.schema.share_bytes)


def _other(run: Run) -> Any:
    """Return the second victim's entry in the first victim's table."""
    known = look(run.v, lambda protocol: protocol.state.table.member(run.w.peer.id))
    assert known is not None
    return known


def _names(run: Run) -> tuple[str, ...]:
    return look(run.v, lambda protocol: tuple(each.id for each in protocol.table.live()))


def _soon_with_keys(run: Run) -> float:
    """Return the time to watch for an effect that occurs only without keys."""
    return LIMIT_S if run.keys is None else SOON_S


def clock(run: Run) -> bool:
    stranger = run.stranger()
    rows = [("dead", 2**62), (run.w.peer.id, 2**62)]
    stranger.send_message(m.Hello, stranger.hello(c.member(stranger.name, step=2**62), clock=rows))
    run.await_processed(stranger)
    run.exchange()
    return look(run.v, lambda protocol: protocol.table.clock.total) >= 1_000_000


def weight(run: Run) -> bool:
    stranger, size = run.stranger(), _share_bytes(run)
    stranger.introduce()
    stranger.send_message(m.Push, c.offer(1, c.U63 >> 1, size), bytes(size))
    accepted = stranger.receive(m.Ack)[10][1]
    run.exchange()
    return bool(accepted > FOUNDERS_MAX * c.FOUNDER)


def values(run: Run) -> bool:
    stranger, size = run.stranger(), _share_bytes(run)
    stranger.introduce()
    before = norm(run.v)
    stranger.send_message(m.Push, c.offer(1, c.FOUNDER, size), _HUGE * (size // 4))
    stranger.receive(m.Ack)
    run.exchange()
    return max(norm(run.v), norm(run.w)) >= 10 * before


def not_finite(run: Run) -> bool:
    stranger, size = run.stranger(), _share_bytes(run)
    stranger.introduce()
    stranger.send_message(m.Push, c.offer(1, c.FOUNDER, size), b"\xff" * size)
    accepted = stranger.receive(m.Ack)[10][1]
    run.exchange()
    return accepted > 0 or norm(run.v) >= 100


def later_incarnation(run: Run) -> bool:
    stranger = run.stranger()
    mine = c.member(stranger.name)
    later = c.member(run.v.peer.id, incarnation=stranger.incarnation + 1000)
    for _ in range(20):
        stranger.send_message(m.Hello, stranger.hello(mine, later, reply=False))
    run.await_processed(stranger)
    run.exchange()
    return not run.v.thread.is_alive() or run.w.peer.id not in _names(run)


def false_departure(run: Run) -> bool:
    stranger = run.stranger()
    known = _other(run)
    gone = c.member(known.id, incarnation=known.incarnation, heartbeat=2**61, phase=c.LEFT)
    for _ in range(20):
        stranger.send_message(m.Hello, stranger.hello(c.member(stranger.name), gone))
    run.await_processed(stranger)
    run.exchange()
    return known.id not in _names(run)


def forged_ack(run: Run) -> bool:
    """Refuse shares in the name of their receiver, so that accepted weight exists twice."""
    stranger = run.stranger()
    other = _other(run)
    for _ in range(40):
        first = run.v.peer.stats().counters.pushes
        for seq in range(first, first + 60):  # numbers of pushes are easy to guess
            stranger.send_message(m.Ack, [seq, 0, 0], name=other.id, incarnation=other.incarnation)
        run.await_processed(stranger)
    return not run.audit_ledgers().balanced


def forged_leave(run: Run) -> bool:
    """Send a LEAVE with the name of another peer."""
    stranger = run.stranger()
    other = _other(run)
    stranger.send_message(m.Leave, [True], name=other.id, incarnation=other.incarnation)
    run.await_processed(stranger)
    gone = run.happens(lambda: other.id not in _names(run), _soon_with_keys(run))
    return gone and not run.happens(lambda: other.id in _names(run), SOON_S)


def stop(run: Run) -> bool:
    """Request a stop of both victims, without a signature and with a forged one."""
    stranger = run.stranger()
    other = _other(run)
    incarnations = [[stranger.victim, stranger.incarnation], [other.id, other.incarnation]]
    for signature in (b"", bytes(range(64))):
        stranger.send_message(m.Stop, [incarnations, signature])
    run.await_processed(stranger)
    return run.happens(
        lambda: bool(run.v.peer.ended_by and run.w.peer.ended_by), _soon_with_keys(run)
    )


def forged_query(run: Run) -> bool:
    """Query with another peer's name a share that this peer sends far in the future."""
    stranger = run.stranger()
    other = _other(run)
    for _ in range(30):
        # While a share of that peer is staged, a query about a later share is refused.
        stranger.send_message(m.Query, [2**62], name=other.id, incarnation=other.incarnation)
        run.await_processed(stranger)
    # Shares that arrived before are still mixed.
    return not all(_continues_mixing(run) for _ in range(5))


def _continues_mixing(run: Run) -> bool:
    mixed = run.v.mixed()
    within_s = SOON_S if run.keys is None else LIMIT_S
    return run.happens(lambda: run.v.mixed() > mixed + 5, within_s)


def read_model(run: Run) -> bool:
    """Request to read the model."""
    stranger = run.stranger()
    stranger.introduce()
    stranger.send_message(m.Fetch, [0, 0, False])
    return run.happens(lambda: stranger.receive_within(m.Excerpt, 0.1) is not None)


def replays(run: Run) -> bool:
    stranger, size = run.stranger(), _share_bytes(run)
    stranger.introduce()
    push = stranger.parts(m.Push, c.offer(1, c.FOUNDER, size), bytes(size))
    for _ in range(500):
        stranger.send(push)
    run.await_processed(stranger)
    run.exchange()
    return run.accepted(stranger.name) != [c.FOUNDER]


def invalid_messages(run: Run) -> bool:
    """Send invalid messages: wrong magic bytes, nested arrays, numbers out of range."""
    stranger = run.stranger()
    whole = stranger.parts(m.Hello, stranger.hello(c.member(stranger.name)))[0]
    errors = run.v.peer.stats().counters.errors
    versions = 0, VERSION - 1, VERSION + 1, 255
    for parts in (
        *([b""], [b"", b"", b""], [b"RMR"], [b"GET / HTTP/1.1\r\n\r\n"], [b"\0" * 2_000_000]),
        *([whole[:-1]], [whole + b"\0"], [whole[:4] + bytes(4) + whole[8:]], [whole] * 3),
        *([whole[:3] + bytes([version]) + whole[4:]] for version in versions),
        *(_packed(b"\x91" * 50_000), _packed(b"\xdd\xff\xff\xff\xff"), _packed(b"\xcf" * 9)),
    ):
        stranger.send(parts)
    run.await_processed(stranger)
    run.exchange()
    return run.v.peer.stats().counters.errors == errors or not run.v.thread.is_alive()


def _packed(header: bytes) -> list[bytes]:
    from zlib import crc32

    return [struct.pack("<3sBI", b"RMR", VERSION, crc32(header)) + header]


def unrequested_answers(run: Run) -> bool:
    """Send answers that no peer requested, about shares that do not exist."""
    stranger, size = run.stranger(), _share_bytes(run)
    stranger.introduce()
    for seq in (1, 2, 2**32, c.U63):
        stranger.send_message(m.Grant, [seq, c.U63])
        stranger.send_message(m.Pending, [seq])
        stranger.send_message(m.Ack, [seq, 0, c.U63])
        stranger.send_message(m.Chunk, [seq, 0, 0], bytes(size))
    stranger.send_message(m.Refer, [[c.member(run.w.peer.id, incarnation=c.U63)]])
    run.await_processed(stranger)
    run.exchange()
    return not run.audit_ledgers().balanced


def far_future(run: Run) -> bool:
    """Announce an incarnation from the far future, so that no later one is ever accepted."""
    stranger = run.stranger()
    far = stranger.incarnation + 100 * 365 * 86_400_000
    stranger.send_message(
        m.Hello, stranger.hello(c.member(stranger.name, incarnation=far)), incarnation=far
    )
    run.await_processed(stranger)
    known = look(run.v, lambda protocol: protocol.state.table.incarnation(stranger.name))
    return known >= far


def never_done(run: Run) -> bool:
    """Join as a member that never finishes, so that no other member ever ends."""
    stranger = run.stranger()
    stranger.introduce(heartbeat=5)
    run.await_processed(stranger)
    run.end()
    return False


def impostor(run: Run) -> bool:
    """Send messages with the victim's own name."""
    stranger = run.stranger()
    errors = run.v.peer.stats().counters.errors
    stranger.send_message(
        m.Hello, stranger.hello(c.member(run.v.peer.id, phase=c.LEFT)), name=run.v.peer.id
    )
    stranger.send_message(m.Leave, [True], name=run.v.peer.id, incarnation=stranger.incarnation)
    run.await_processed(stranger)
    run.exchange()
    return run.v.peer.stats().counters.errors < errors + 2 or not run.v.thread.is_alive()


ATTACKS: Final[dict[str, Attack]] = {
    "a clock far ahead": Attack(clock, False, False),
    "a share of excessive weight": Attack(weight, False, False),
    "a share of huge values": Attack(values, True, True),
    "a share of huge values, clipped": Attack(values, False, False, "gosgd:p=0.5,robust=clip"),
    "a share that is not finite": Attack(not_finite, False, False),
    "a later incarnation of the victim": Attack(later_incarnation, False, False),
    "a false report of a departure": Attack(false_departure, False, False),
    "an ACK with another peer's name": Attack(forged_ack, True, False),
    "a LEAVE with another peer's name": Attack(forged_leave, True, False),
    "a request to stop": Attack(stop, True, False),
    "a QUERY with another peer's name": Attack(forged_query, True, False),
    "a request to read the model": Attack(read_model, True, True),
    "a replayed share": Attack(replays, False, False),
    "invalid messages": Attack(invalid_messages, False, False),
    "unrequested answers": Attack(unrequested_answers, False, False),
    "an incarnation in the far future": Attack(far_future, False, False),
    "the victim's own name": Attack(impostor, False, False),
    "a member that never finishes": Attack(never_done, False, False),
}
