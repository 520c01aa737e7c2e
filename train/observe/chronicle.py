"""What has happened in a swarm, as all its members tell it: each thing once."""

from collections import OrderedDict
from dataclasses import replace
from typing import Final

from ...gossip.types import PeerId
from ...gossip.wire.messages import EventNote
from .view import EventView

__all__ = ["Chronicle"]

_KEPT_MAX: Final = 1000
_TOLD_BY_MAX: Final = 64

# Peers notice a death at different times: each waits for as long as its own timers lag.
_SAME_S: Final = 120.0

# What of a peer that comes and goes is still told apart.
_TIMES: Final = 8

_OF_TELLER: Final = frozenset({"founded", "joined", "full"})
"""Events that are about whoever tells of them."""


class Chronicle:
    """The last thousand events.

    Several members notice the same: what two say of one peer within two minutes is one event, but
    what one member says twice has happened twice.
    """

    def __init__(self) -> None:
        self._events: OrderedDict[int, EventView] = OrderedDict()
        self._alike: dict[tuple[str, PeerId], list[int]] = {}
        self._number = 0

    def add(self, teller: PeerId, note: EventNote, time_s: float) -> None:
        """Take in what a member tells.

        Args:
            teller: Who.
            note: What; one that no peer of this version tells is passed over.
            time_s: When that was, on the observer's clock.
        """
        if not note.event.isidentifier():
            return
        peer, donor = note.peer or teller, ""
        if note.event in _OF_TELLER:
            peer, donor = teller, note.peer
        alike = self._alike.setdefault((note.event, peer), [])
        near = [self._events[n] for n in alike if teller not in self._events[n].told_by]
        near = [each for each in near if abs(each.time_s - time_s) <= _SAME_S]
        if near:
            same = min(near, key=lambda each: abs(each.time_s - time_s))
            self._events[same.number] = replace(
                same,
                time_s=min(same.time_s, time_s),
                told_by=(*same.told_by, teller)[:_TOLD_BY_MAX],
            )
            return
        self._number += 1
        self._events[self._number] = EventView(
            number=self._number,
            time_s=time_s,
            event=note.event,
            peer=peer,
            donor=donor,
            told_by=(teller,),
        )
        alike.append(self._number)
        del alike[:-_TIMES]
        if len(self._events) > _KEPT_MAX:
            self._forget()

    def events(self) -> tuple[EventView, ...]:
        """All that are remembered, in the order in which they happened."""
        return tuple(sorted(self._events.values(), key=lambda each: (each.time_s, each.number)))

    def _forget(self) -> None:
        number, first = self._events.popitem(last=False)
        alike = self._alike.get((first.event, first.peer), [])
        if number in alike:
            alike.remove(number)
        if not alike:
            self._alike.pop((first.event, first.peer), None)
