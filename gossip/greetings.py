"""Whom to greet by address: so many at a time, each for one try, in turn.

An address to greet may be anybody's: a seed that was typed, or one of many that a former life knew
and that are long gone. Each takes a socket while it is dialled, and one that nobody answers at
would keep it for good: a few hundred of them would leave none for the living.

Who looks for a swarm greets the first few without a pause, and where there are more, the next few
when those had their try. A member greets whoever still does not answer ever more rarely.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .config import ProtocolConfig
from .redial import Redial

__all__ = ["GREETED_MAX", "Greetings"]

GREETED_MAX = 64
"""Addresses that are dialled at a time: a quarter of the sockets that a process with 1,024 files
has."""

# To look a name up takes one greeting, to connect another, and the third is sent.
_GREETINGS = 3

_TRY_TICKS = 5
"""How long a try lasts: the answer comes on the connection that the greeting went out on."""


@dataclass(slots=True)
class _Try:
    since_s: float
    greetings: int = 0


class Greetings:
    """The addresses that are being tried, and whose turn comes next.

    Args:
        config: How long a try lasts.
        redial: When a member tries an address again.
    """

    def __init__(self, config: ProtocolConfig, redial: Redial[str]) -> None:
        self._try_s = _TRY_TICKS * config.gossip_s
        self._redial = redial
        self._tries: dict[str, _Try] = {}
        self._ended_s: dict[str, float] = {}
        self._seeks = False

    def is_through(self, silent: Collection[str]) -> bool:
        """Whether all these had a try; so it is where all of them are dialled at once."""
        return len(silent) <= GREETED_MAX or all(address in self._ended_s for address in silent)

    def seek(self, silent: Sequence[str], now: float) -> tuple[list[str], list[str]]:
        """Greet for one who looks for a swarm.

        Args:
            silent: Addresses at which nobody is known, in the order in which they are tried.
            now: Seconds.

        Returns:
            Whom to greet now, and whose sockets to close.
        """
        if not self._seeks:
            self._seeks, self._ended_s = True, {}
        self._forget_known(silent)
        over = self._end_tries(now) if len(silent) > GREETED_MAX else []
        room = GREETED_MAX - len(self._tries)
        if room:
            waiting = [address for address in silent if address not in self._tries]
            # Who was never tried comes first; `sorted` leaves the others in their order.
            waiting.sort(key=lambda address: self._ended_s.get(address, float("-inf")))
            self._tries.update({address: _Try(now) for address in waiting[:room]})
        for each in self._tries.values():
            each.greetings += 1
        again = [address for address in over if address not in self._tries]
        return [address for address in silent if address in self._tries], again

    def go_on(self, silent: Sequence[str], now: float) -> tuple[list[str], list[str]]:
        """Greet for a member, ever more rarely, once per gossip interval; see `seek`."""
        self._forget_known(silent)
        before = list(self._tries)
        if self._seeks:
            # Nobody waits any more: from now on each address has a schedule of its own.
            self._seeks, self._tries = False, {}
        else:
            self._end_tries(now)
        few = len(silent) <= GREETED_MAX
        room = len(silent) if few else GREETED_MAX - len(self._tries)
        for address in self._redial.due(silent, now, room):
            self._tries[address] = _Try(now)
        greeted = []
        for address in silent:
            attempt = self._tries.get(address)
            if attempt is not None and attempt.greetings < _GREETINGS:
                attempt.greetings += 1
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
            if now - each.since_s >= self._try_s and each.greetings >= _GREETINGS
        ]
        for address in over:
            del self._tries[address]
            self._ended_s[address] = now
        return over
