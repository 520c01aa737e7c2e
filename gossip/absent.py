"""Sockets of the dead: the first few stay open, the rest are opened for a trial now and then.

A socket that dials takes files of the system. A swarm on rented machines outlives hundreds of
names, each of which is dialled for ever: kept open, they would leave none for the living.
"""

from collections.abc import Sequence

from .agenda import Agenda
from .effects import Meet, Part
from .messages import Member, PeerId

__all__ = ["OPEN_MAX", "Absent"]

OPEN_MAX = 32
"""Dead peers whose sockets stay open, so that the first message of theirs comes at once."""

_TRIAL_TICKS = 5
"""How long a trial lasts: to connect takes one tick, an answer another."""


class Absent:
    """Which of the dead have been parted from.

    Args:
        agenda: Where effects go.
    """

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._open: dict[PeerId, None] = {}
        self._parted: set[PeerId] = set()
        self._trials: dict[PeerId, int] = {}

    def died(self, peer: PeerId) -> None:
        """Note a death."""
        if len(self._open) < OPEN_MAX:
            self._open[peer] = None
        else:
            self._parted.add(peer)
            self._agenda.ask(Part(peer))

    def back(self, peer: PeerId, addresses: Sequence[str]) -> None:
        """Note that one lives after all; its sockets are there again."""
        self._open.pop(peer, None)
        self._trials.pop(peer, None)
        if peer in self._parted:
            self._parted.remove(peer)
            self._agenda.ask(Meet(peer, tuple(addresses)))

    def forget(self, peer: PeerId) -> None:
        """Note that one is to be dialled no more; its sockets are closed by whoever says so."""
        self._open.pop(peer, None)
        self._trials.pop(peer, None)
        self._parted.discard(peer)

    def try_out(self, member: Member) -> bool:
        """Dial somebody again.

        Returns:
            Whether there are sockets to speak on now; if not, they are opened, see `tick`.
        """
        if member.id not in self._parted:
            return True
        if member.id not in self._trials:
            self._trials[member.id] = 0
            self._agenda.ask(Meet(member.id, member.addresses))
        return False

    def tick(self) -> list[PeerId]:
        """Go on with trials, once per gossip interval.

        Returns:
            Whom to speak to.
        """
        over = [peer for peer, ticks in self._trials.items() if ticks >= _TRIAL_TICKS]
        for peer in over:
            del self._trials[peer]
            self._agenda.ask(Part(peer))
        for peer in self._trials:
            self._trials[peer] += 1
        return [peer for peer, ticks in self._trials.items() if ticks > 1]
