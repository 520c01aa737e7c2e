"""Registers that are to reach certain peers: each push waits for the one before it to be settled.

What comes back (a question has fenced it, or the network refused it) is pushed again first, from
the register, which must stay as it is until then: ``x`` has long moved on.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from ...protocol.context import RuleContext
from ...protocol.share import Pushed
from ...types import PeerId
from ...weight import token

__all__ = ["EPOCH", "Letter", "Letters", "merge"]

EPOCH = 1
"""Marks shares of rounds. What a leaver hands on, and what merging pushes, says 0."""


class Letter(NamedTuple):
    """What one push carries, with a token of weight."""

    register: Pushed
    tag: int
    """The share's ``round``."""
    note: int = 0


class Letters:
    """Everything that is still to be pushed, or has been and is not settled, by receiver."""

    def __init__(self) -> None:
        self._queued: dict[PeerId, deque[Letter]] = {}
        self._pushed: dict[PeerId, Letter] = {}

    def settle(self, context: RuleContext) -> None:
        """Put what came back first in its queue, and forget what was accepted.

        To be called at the start of every step, before anything is pushed.
        """
        for back in context.returned:
            # What was dropped in between, or pushed in a swarm that was given up, is no letter.
            letter = self._pushed.pop(back.peer, None) if back.epoch == EPOCH else None
            # A leaver refuses whatever it is pushed: without delay, the two would go on for ever.
            if letter is not None and not context.is_leaving(back.peer):
                self._queued.setdefault(back.peer, deque()).appendleft(letter)
        outstanding = context.outstanding()
        for peer in [peer for peer in self._pushed if peer not in outstanding]:
            del self._pushed[peer]

    def post(self, peers: Iterable[PeerId], letter: Letter) -> None:
        """Let something be pushed to some peers; its register must not change before that."""
        for peer in peers:
            self._queued.setdefault(peer, deque()).append(letter)

    def push(self, context: RuleContext) -> None:
        """Push what can be pushed now."""
        for peer in [peer for peer in self._queued if context.can_push(peer, awaited=True)]:
            letter = self._pushed[peer] = self._queued[peer].popleft()
            if not self._queued[peer]:
                del self._queued[peer]
            context.push(
                peer,
                token(context.weight),
                register=letter.register,
                epoch=EPOCH,
                round=letter.tag,
                note=letter.note,
            )

    def receivers(self) -> list[PeerId]:
        """To whom anything is still to go, or under way."""
        return [*dict.fromkeys((*self._queued, *self._pushed))]

    def receivers_of(self, register: Pushed) -> list[PeerId]:
        """To whom a register is still to go, or under way."""
        late = [peer for peer, letter in self._pushed.items() if letter.register == register]
        for peer, letters in self._queued.items():
            if any(letter.register == register for letter in letters):
                late.append(peer)
        return late

    def drop(self, peer: PeerId) -> None:
        """Push nothing more to a peer, whatever becomes of what is under way."""
        self._queued.pop(peer, None)
        self._pushed.pop(peer, None)


def merge(context: RuleContext, *, agrees: bool = False) -> None:
    """Merge after the last round: plain gossip of weights, in which no peer waits.

    Args:
        context: Of a call after all have finished, when nothing of a round is under way.
        agrees: Whether rounds end with the same model everywhere, so that there is nothing to
            merge unless a comparison says otherwise.
    """
    if agrees and not context.merges_again:
        context.may_close(True)
    else:
        context.push_half()
        context.may_close(None)
