"""Attacks that are one message, and that keys alone prevent: somebody speaks in another's name.

Each does its worst to the first of two victims that train, and returns whether it has achieved what
it was meant to.
"""

from collections.abc import Callable
from typing import Any, Final

from ..waiting import LIMIT_S
from . import client as c
from .victims import Run, look

__all__ = ["ATTACKS"]

SOON_S: Final = 1.0
"""What has not happened by then is taken never to happen."""


def _other(run: Run) -> Any:
    """The second victim, in the first one's table."""
    known = look(run.v, lambda protocol: protocol.state.table.member(run.w.peer.id))
    assert known is not None
    return known


def _names(run: Run) -> tuple[str, ...]:
    return look(run.v, lambda protocol: tuple(m.id for m in protocol.table.live()))


def _soon_with_keys(run: Run) -> float:
    """How long to watch for what happens without keys, and not with them."""
    return LIMIT_S if run.keys is None else SOON_S


def forged_ack(run: Run) -> bool:
    """Settle in another's name what that one has accepted: its weight is there twice."""
    stranger = run.stranger()
    other = _other(run)
    for _ in range(40):
        first = run.v.peer.stats().counters.pushes
        for seq in range(first, first + 60):  # numbers of pushes are easily guessed
            stranger.say(c.ACK, [seq, 0, 0], name=other.id, incarnation=other.incarnation)
        run.heard(stranger)
    return not run.books().balanced


def goodbye(run: Run) -> bool:
    """Say goodbye in another's name."""
    stranger = run.stranger()
    other = _other(run)
    stranger.say(c.LEAVE, [True], name=other.id, incarnation=other.incarnation)
    run.heard(stranger)
    gone = run.happens(lambda: other.id not in _names(run), _soon_with_keys(run))
    return gone and not run.happens(lambda: other.id in _names(run), SOON_S)


def stop(run: Run) -> bool:
    """Ask for the end of both, as `rumor stop` does, under no signature and under a made-up one."""
    stranger = run.stranger()
    other = _other(run)
    lives = [[stranger.victim, stranger.incarnation], [other.id, other.incarnation]]
    for signature in (b"", bytes(range(64))):
        stranger.say(c.STOP, [lives, signature])
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
        stranger.say(c.QUERY, [2**62], name=other.id, incarnation=other.incarnation)
        run.heard(stranger)
    # What had come before is mixed still.
    return not all(_goes_on_mixing(run) for _ in range(5))


def _goes_on_mixing(run: Run) -> bool:
    mixed = run.v.mixed()
    within_s = SOON_S if run.keys is None else LIMIT_S
    return run.happens(lambda: run.v.mixed() > mixed + 5, within_s)


ATTACKS: Final[dict[str, Callable[[Run], bool]]] = {
    "an ACK in another's name": forged_ack,
    "a goodbye in another's name": goodbye,
    "a request to stop": stop,
    "a QUERY in another's name": fence,
}
