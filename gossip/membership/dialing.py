"""Dialing: seed addresses, reconnect back-off, the sockets of dead peers, and NAT pairs.

An address to dial may be a seed that was typed, or one of many that an earlier incarnation knew and
that are long gone. Each takes a socket while it is dialled, and without a limit a few hundred that
nobody answers at would leave no sockets for live peers.

A peer that looks for a swarm dials the first few addresses without a pause, and where there are
more, the next few after those had their try. A member dials silent addresses ever more rarely.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from ..config import ProtocolConfig
from ..effects.effect_log import EffectLog
from ..effects.effects import Meet, Part
from ..types import PeerId
from ..wire.messages import Member

__all__ = [
    *("DIALED_MAX", "OPEN_MAX"),
    *("DeadPeerSockets", "ReconnectBackoff", "SeedDialer", "pair"),
]


_T = TypeVar("_T", bound=Hashable)

_JITTER = 0.5
"""A wait lies within this part of its mean on either side."""


class _Wait(NamedTuple):
    since_s: float
    """When it was dialled last."""
    due_s: float
    wait_s: float
    """The mean of the next wait."""


class ReconnectBackoff(Generic[_T]):
    """Exponential back-off with jitter, for each silent address or peer on its own."""

    def __init__(self, first_s: float, most_s: float, draw: Callable[[], float]) -> None:
        self._first_s = first_s
        self._most_s = max(first_s, most_s)
        self._draw = draw
        self._waits: dict[_T, _Wait] = {}

    def due(self, silent: Iterable[_T], now: float, most: int) -> list[_T]:
        """Those of *silent* to dial now.

        Args:
            silent: All that do not answer; any other is forgotten.
            most: How many at a time; those come first that have waited longest.
        """
        first = _Wait(now, now, self._first_s)
        self._waits = {one: self._waits.get(one, first) for one in silent}
        waiting = [one for one, wait in self._waits.items() if wait.due_s <= now]
        chosen = sorted(waiting, key=lambda one: self._waits[one].since_s)[:most]
        for one in chosen:
            wait_s = self._waits[one].wait_s
            drawn_s = wait_s * (1 + _JITTER * (2 * self._draw() - 1))
            self._waits[one] = _Wait(now, now + drawn_s, min(2 * wait_s, self._most_s))
        return chosen

    def hurry(self) -> None:
        """Make all due again: what cut one of them off may be over for the others, too.

        Those come first that were not dialled for longest, so that one that comes and goes all the
        time does not starve the others.
        """
        self._waits = {
            one: _Wait(wait.since_s, wait.since_s, self._first_s)
            for one, wait in self._waits.items()
        }


DIALED_MAX = 64
"""Addresses that are dialled at a time: a quarter of the sockets that a process with 1,024 files
has."""

# Resolving the name takes one HELLO, connecting another, and the third is sent.
_HELLOS = 3

_TRY_TICKS = 5
"""How long a try lasts: the answer comes on the connection that the HELLO went out on."""


@dataclass(slots=True)
class _Try:
    since_s: float
    hellos: int = 0


class SeedDialer:
    """Decides which seed addresses to dial, a bounded number at a time."""

    def __init__(self, config: ProtocolConfig, backoff: ReconnectBackoff[str]) -> None:
        self._try_s = _TRY_TICKS * config.gossip_s
        self._backoff = backoff
        self._tries: dict[str, _Try] = {}
        self._ended_s: dict[str, float] = {}
        self._seeks = False

    def is_through(self, silent: Collection[str]) -> bool:
        """Whether all of these had a try, or are few enough to be dialled at once."""
        return len(silent) <= DIALED_MAX or all(address in self._ended_s for address in silent)

    def seek(self, silent: Sequence[str], now: float) -> tuple[list[str], list[str]]:
        """Choose addresses for a peer that looks for a swarm.

        Args:
            silent: Addresses at which nobody is known, in the order in which they are tried.
        """
        if not self._seeks:
            self._seeks, self._ended_s = True, {}
        self._forget_known(silent)
        over = self._end_tries(now) if len(silent) > DIALED_MAX else []
        room = DIALED_MAX - len(self._tries)
        if room:
            waiting = [address for address in silent if address not in self._tries]
            # Who was never tried comes first; `sorted` leaves the others in their order.
            waiting.sort(key=lambda address: self._ended_s.get(address, float("-inf")))
            self._tries.update({address: _Try(now) for address in waiting[:room]})
        for each in self._tries.values():
            each.hellos += 1
        again = [address for address in over if address not in self._tries]
        return [address for address in silent if address in self._tries], again

    def go_on(self, silent: Sequence[str], now: float) -> tuple[list[str], list[str]]:
        """Choose addresses for a member, ever more rarely, once per gossip interval; see `seek`."""
        self._forget_known(silent)
        before = list(self._tries)
        if self._seeks:
            # Nobody waits any more: from now on each address has a schedule of its own.
            self._seeks, self._tries = False, {}
        else:
            self._end_tries(now)
        few = len(silent) <= DIALED_MAX
        room = len(silent) if few else DIALED_MAX - len(self._tries)
        for address in self._backoff.due(silent, now, room):
            self._tries[address] = _Try(now)
        greeted = []
        for address in silent:
            attempt = self._tries.get(address)
            if attempt is not None and attempt.hellos < _HELLOS:
                attempt.hellos += 1
                greeted.append(address)
        return greeted, [address for address in before if address not in self._tries]

    def _forget_known(self, silent: Collection[str]) -> None:
        """Drop those where somebody is known by now; their sockets are that peer's."""
        kept = set(silent)
        self._tries = {address: each for address, each in self._tries.items() if address in kept}
        self._ended_s = {a: ended_s for a, ended_s in self._ended_s.items() if a in kept}

    def _end_tries(self, now: float) -> list[str]:
        # One that stood still itself has not listened for an answer meanwhile.
        over = [
            address
            for address, each in self._tries.items()
            if now - each.since_s >= self._try_s and each.hellos >= _HELLOS
        ]
        for address in over:
            del self._tries[address]
            self._ended_s[address] = now
        return over


OPEN_MAX = 32
"""Dead peers whose sockets stay open, so that their first message arrives at once."""

_TRIAL_TICKS = 5
"""How long a trial lasts: to connect takes one tick, an answer another."""


class DeadPeerSockets:
    """Closes the sockets of dead peers, beyond the first few, and reopens them for trials."""

    def __init__(self, log: EffectLog) -> None:
        self._log = log
        self._open: dict[PeerId, None] = {}
        self._parted: set[PeerId] = set()
        self._trials: dict[PeerId, int] = {}

    def died(self, peer: PeerId) -> None:
        """Note a death."""
        if len(self._open) < OPEN_MAX:
            self._open[peer] = None
        else:
            self._parted.add(peer)
            self._log.ask(Part(peer))

    def back(self, peer: PeerId, addresses: Sequence[str]) -> None:
        """Note that a peer is alive after all, and reopen its sockets."""
        self._open.pop(peer, None)
        self._trials.pop(peer, None)
        if peer in self._parted:
            self._parted.remove(peer)
            self._log.ask(Meet(peer, tuple(addresses)))

    def forget(self, peer: PeerId) -> None:
        """Forget a peer; the caller closes its sockets."""
        self._open.pop(peer, None)
        self._trials.pop(peer, None)
        self._parted.discard(peer)

    def try_out(self, member: Member) -> bool:
        """Dial somebody again.

        Returns:
            Whether it has sockets now; if not, they are opened, see `tick`.
        """
        if member.id not in self._parted:
            return True
        if member.id not in self._trials:
            self._trials[member.id] = 0
            self._log.ask(Meet(member.id, member.addresses))
        return False

    def tick(self) -> list[PeerId]:
        """Go on with trials, once per gossip interval.

        Returns:
            Whom to send a HELLO.
        """
        over = [peer for peer, ticks in self._trials.items() if ticks >= _TRIAL_TICKS]
        for peer in over:
            del self._trials[peer]
            self._log.ask(Part(peer))
        for peer in self._trials:
            self._trials[peer] += 1
        return [peer for peer, ticks in self._trials.items() if ticks > 1]


def pair(
    neighbors: Callable[[PeerId], Sequence[PeerId]],
    peer: PeerId,
    members: Sequence[PeerId],
    outward: Set[PeerId],
) -> tuple[PeerId, ...]:
    """Whom a peer may push to, so that no two that only dial out are paired and cannot exchange.

    A link between two such peers is led over a third one that can be dialled: both push to it, and
    it to both. Else whoever has only such neighbors would be cut off.

    >>> ring = {"a": "bd", "b": "ac", "c": "bd", "d": "ca"}
    >>> pair(ring.__getitem__, "a", "abcd", {"a", "b", "c"})
    ('d',)
    >>> pair(ring.__getitem__, "d", "abcd", {"a", "b", "c"})
    ('c', 'a', 'b')
    """
    own = neighbors(peer)
    if len(outward) < 2:
        return tuple(own)
    open_ones = [member for member in members if member not in outward]
    if not open_ones:
        return ()
    place = {member: index for index, member in enumerate(members)}

    def between(one: PeerId, other: PeerId) -> PeerId:
        low, high = sorted((place[one], place[other]))
        # Neighbors on a ring lie 1 apart, leaves of a star have one place in common: with a factor
        # next to a prime, both spread evenly over any number of members that can be dialled.
        return open_ones[(1_000_002 * low + high) % len(open_ones)]

    if peer in outward:
        led = [between(peer, other) if other in outward else other for other in own]
        return tuple(dict.fromkeys(led))
    served = [
        end
        for one in members
        if one in outward
        for other in neighbors(one)
        if other in outward and between(one, other) == peer
        for end in (one, other)
    ]
    return tuple(dict.fromkeys([*own, *served]))
