"""Every push that ever was: whether each is decided once, within its escrow, and settled so.

Source: PROTOCOL, invariants I2 and I3.
"""

from collections import Counter
from collections.abc import Collection

from ...gossip import Entry, Kind, PeerId, Phase
from ...gossip.messages import Incarnation, Query
from ...gossip.weight import in_units
from .violation import Violation

__all__ = ["Life", "Push", "Pushes"]

Life = tuple[PeerId, Incarnation]

Push = tuple[Life, Life, int, int]
"""Sender, receiver, number, shard."""


class Pushes:
    """What became of each push, from everybody's ledgers.

    Args:
        seen: Where to count what is rare.
        dead: The lives that ended without a word, as they become known.
    """

    def __init__(self, seen: Counter[str], dead: Collection[Life]) -> None:
        self._seen = seen
        self._dead = dead
        self._pushed: dict[Push, int] = {}
        self._decided: dict[Push, int] = {}
        self._given_up: set[Push] = set()
        self._streamed: set[Push] = set()

    def streamed(self, push: Push) -> None:
        """Note that a frame of it was sent."""
        self._streamed.add(push)

    def check(self, me: Life, entry: Entry) -> None:
        """Hold what is to be written against what everybody else has written.

        Raises:
            Violation: It contradicts that; nothing was noted.
        """
        other = entry.peer, entry.incarnation
        mine, theirs = (me, other, entry.seq, entry.shard), (other, me, entry.seq, entry.shard)
        whom = (me[0], entry.peer) if entry.peer else (me[0],)
        match entry.kind:
            case Kind.PUSHED:
                if mine in self._pushed:
                    raise Violation("I3", f"a number is used twice: {_named(mine)}", whom)
            case Kind.ACCEPTED:
                self._check_decision(theirs, entry.weight, whom)
            case Kind.SETTLED:
                if entry.weight != self._decided.get(mine, 0):
                    raise Violation("I3", f"settled otherwise than decided: {_named(mine)}", whom)
            case _:
                pass

    def written(self, me: Life, entry: Entry, phase: Phase, cause: object) -> None:
        """Note what was written, and what brought it about."""
        other = entry.peer, entry.incarnation
        mine = me, other, entry.seq, entry.shard
        match entry.kind:
            case Kind.FOUNDED:
                pass
            case Kind.PUSHED:
                self._pushed[mine] = entry.weight
            case Kind.ACCEPTED:
                self._decide((other, me, entry.seq, entry.shard), entry.weight, cause)
            case Kind.SETTLED:
                self._settle(mine, entry.weight, phase)
            case _:
                self._seen[entry.kind.value] += 1
                if entry.kind is Kind.WRITTEN_OFF and self._decided.get(mine):
                    self._seen["written off what was accepted"] += 1

    def _check_decision(self, push: Push, weight: int, whom: tuple[PeerId, ...]) -> None:
        pushed = self._pushed.get(push)
        if pushed is None:
            raise Violation("I2", f"decided what was never pushed: {_named(push)}", whom)
        if push in self._decided:
            raise Violation("I3", f"decided twice: {_named(push)}", whom)
        if push[1] in self._dead:
            raise Violation("I3", f"decided by the dead: {_named(push)}", whom)
        if not 0 <= weight <= pushed:
            words = f"{in_units(weight)} units accepted of {in_units(pushed)}: {_named(push)}"
            raise Violation("I2", words, whom)
        if weight and push in self._given_up:
            raise Violation("I3", f"accepted after it was taken back: {_named(push)}", whom)

    def _decide(self, push: Push, weight: int, cause: object) -> None:
        self._decided[push] = weight
        if weight == 0 and isinstance(cause, Query):
            self._seen["fence"] += 1
        if 0 < weight < self._pushed[push]:
            self._seen["partial accept"] += 1
        if weight and push[0] in self._dead:
            self._seen["accept after the sender's death"] += 1

    def _settle(self, push: Push, weight: int, phase: Phase) -> None:
        if push not in self._decided:
            self._given_up.add(push)
            if push in self._streamed:
                self._seen["chunked transfer given up"] += 1
        if weight and phase >= Phase.LEAVING:
            self._seen["leave with hand-over"] += 1


def _named(push: Push) -> str:
    (sender, life), (receiver, later), seq, shard = push
    return f"push {seq} of shard {shard} from {sender}/{life} to {receiver}/{later}"
