"""Dialing: seed addresses, reconnect back-off, and pairs of peers behind NAT."""

from collections.abc import Callable, Collection, Iterable, Sequence, Set
from typing import NamedTuple

from ..config import ProtocolConfig
from ..types import PeerId

__all__ = ["DIALED_MAX", "ReconnectBackoff", "SeedDialer", "pair"]

_JITTER = 0.5
"""Each wait is within this fraction of its mean, on either side."""


class _Wait(NamedTuple):
    since_s: float
    """Time of the last dial."""
    due_s: float
    wait_s_mean: float


class ReconnectBackoff:
    """Exponential back-off with jitter, independent for each silent address or peer."""

    def __init__(self, first_s: float, most_s: float, draw: Callable[[], float]) -> None:
        self._first_s = first_s
        self._most_s = max(first_s, most_s)
        self._draw = draw
        self._waits: dict[str, _Wait] = {}

    def due(self, silent: Iterable[str], now: float, most: int) -> list[str]:
        """Return at most *most* of *silent* to dial now, longest waiting first; forget others."""
        first = _Wait(now, now, self._first_s)
        self._waits = {one: self._waits.get(one, first) for one in silent}
        waiting = [one for one, wait in self._waits.items() if wait.due_s <= now]
        chosen = sorted(waiting, key=lambda one: self._waits[one].since_s)[:most]
        for one in chosen:
            wait_s = self._waits[one].wait_s_mean
            drawn_s = wait_s * (1 + _JITTER * (2 * self._draw() - 1))
            self._waits[one] = _Wait(now, now + drawn_s, min(2 * wait_s, self._most_s))
        return chosen

    def hurry(self) -> None:
        """Make all due again."""
        self._waits = {
            one: _Wait(wait.since_s, wait.since_s, self._first_s)
            for one, wait in self._waits.items()
        }


# An earlier incarnation may have known hundreds of addresses that are long gone. Each takes a
# socket while it is dialed: this many are a quarter of the sockets of a process with 1,024 files.
DIALED_MAX = 64
"""Addresses dialed at a time."""

# The first HELLO is lost to name resolution, the second to the connection; the third is sent.
_HELLOS = 3

# Gossip intervals: the answer arrives on the connection of the HELLO.
_TRY_TICKS = 5


class SeedDialer:
    """Chooses which seed addresses to dial, a bounded number at a time."""

    def __init__(self, config: ProtocolConfig, backoff: ReconnectBackoff) -> None:
        self._try_s = _TRY_TICKS * config.gossip_s
        self._backoff = backoff
        # Start of its try, seconds, and HELLOs sent since, by dialed address.
        self._tries: dict[str, tuple[float, int]] = {}
        self._sought_s: float | None = None

    def is_through(self, silent: Collection[str], now: float) -> bool:
        """Return True if all of these had a try, or are few enough to be dialed at once."""
        turns = -(-len(silent) // DIALED_MAX)
        return turns <= 1 or (
            self._sought_s is not None and now - self._sought_s >= turns * self._try_s
        )

    def seek(self, silent: Sequence[str], now: float) -> tuple[list[str], list[str]]:
        """Return addresses to dial and to hang up, for a peer that looks for a swarm."""
        self._sought_s = now if self._sought_s is None else self._sought_s
        turns = -(-len(silent) // DIALED_MAX) or 1
        turn = int((now - self._sought_s) / self._try_s) % turns
        chosen = silent[turn * DIALED_MAX :][:DIALED_MAX]
        over = [address for address in silent if address in self._tries and address not in chosen]
        self._tries = dict.fromkeys(chosen, (now, _HELLOS))
        return [*chosen], over

    def go_on(self, silent: Sequence[str], now: float) -> tuple[list[str], list[str]]:
        """Return addresses to dial and to hang up, for a member: with back-off, at each tick."""
        before = [address for address in self._tries if address in silent]
        # Once the search is over, each address has its own schedule. A peer that was itself stalled
        # has not listened for answers meanwhile.
        self._tries = {
            address: (since_s, hellos)
            for address, (since_s, hellos) in self._tries.items()
            if address in silent and self._sought_s is None
            if now - since_s < self._try_s or hellos < _HELLOS
        }
        self._sought_s = None
        few = len(silent) <= DIALED_MAX
        room = len(silent) if few else DIALED_MAX - len(self._tries)
        for address in self._backoff.due(silent, now, room):
            self._tries[address] = now, 0
        greeted = []
        for address in silent:
            since_s, hellos = self._tries.get(address, (now, _HELLOS))
            if hellos < _HELLOS:
                self._tries[address] = since_s, hellos + 1
                greeted.append(address)
        return greeted, [address for address in before if address not in self._tries]


def pair(
    neighbors: Callable[[PeerId], Sequence[PeerId]],
    peer: PeerId,
    members: Sequence[PeerId],
    outward: Set[PeerId],
) -> tuple[PeerId, ...]:
    """Return the push targets of a peer, where the *outward* peers only dial out.

    A link between two of those is routed through a third peer: both push to it, and it to both.
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
        # Neighbors on a ring are 1 apart, leaves of a star share one end: with a factor next to a
        # prime, both spread evenly over any number of dialable members.
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
