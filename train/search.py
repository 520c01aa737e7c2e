"""A peer's search for its swarm: greet, wait, and say what it waits for."""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Final

from ..gossip import IncompatiblePeer, Phase, TransportError
from ..gossip.events import Event, Outlived, PeerRefused
from ..gossip.messages import Incarnation
from .config import PeerConfig
from .driver import Driver
from .inputs import Join
from .rendezvous import Rendezvous

__all__ = ["OutlivedError", "Search"]

_log = logging.getLogger("rumor")

_SAY_S: Final = 5.0
_POLL_S: Final = 0.05

# A peer that comes back may ask hundreds of addresses: nobody reads so many, every five seconds.
_NAMED_MAX: Final = 4


class OutlivedError(TransportError):
    """Others know a later life of this very peer; only a still later one can join them.

    Args:
        incarnation: The life they know.
    """

    def __init__(self, incarnation: Incarnation) -> None:
        super().__init__(
            f"others know life {incarnation} of this peer's name, and this one is earlier: another "
            "peer may have its name, or the clock of this machine went back"
        )
        self.incarnation = incarnation


class Search:
    """Brings a peer that has just started into a swarm.

    Args:
        driver: Runs its protocol.
        config: Where to look, and for how long.
        id: The peer's name.
        address: Where others reach it, for the folder where addresses are exchanged; None for
            one that only dials out.
        was_member: Whether it was a member in an earlier life: then it founds nothing together
            with others, whose roll call is long over.
        returning: Whether it also has what its swarm could be founded anew from.
        known: Addresses that it knows from that life.
    """

    def __init__(
        self,
        driver: Driver,
        config: PeerConfig,
        id: str,
        address: str | None,
        *,
        was_member: bool = False,
        returning: bool = False,
        known: Sequence[str] = (),
    ) -> None:
        self._driver = driver
        self._config = config
        self._returning = returning
        self._seeds = (*config.join, *known)
        self._founders = 1 if was_member else config.founders
        self._meeting = Rendezvous(config.rendezvous, id) if config.rendezvous else None
        if self._meeting is not None and address is not None:
            self._meeting.announce(address)
        # Addresses that are remembered may belong to anybody by now: their word ends nothing.
        self._may_refuse = not was_member and not known
        self._refusal: PeerRefused | None = None
        self._outlived: Outlived | None = None

    def hear(self, event: Event) -> None:
        """Learn, on any thread, why this peer cannot be one of the swarm as it is."""
        if isinstance(event, PeerRefused) and self._may_refuse:
            self._refusal = event
        elif isinstance(event, Outlived):
            self._outlived = event

    def run(self, stop: threading.Event) -> None:
        """Search until the swarm is founded or joined.

        Args:
            stop: When set, the search is given up.

        Raises:
            TransportError: No swarm was found in time, or before *stop* was set.
            IncompatiblePeer: The swarm trains another model; the first difference is named.
            OutlivedError: Others know a later life of this peer.
        """
        started_s = spoke_s = time.monotonic()
        while not self._is_over():
            now = time.monotonic()
            if stop.is_set():
                raise TransportError(f"stopped while joining: {self._wanting()}")
            if now - started_s > (self._config.join_timeout_s or float("inf")):
                waited = f"{now - started_s:.0f} s"
                raise TransportError(f"found no swarm in {waited}: {self._wanting()}")
            if now - spoke_s > _SAY_S:
                spoke_s = now
                _log.warning("still joining after %.0f s: %s", now - started_s, self._wanting())
            self._driver.wait_for_share(_POLL_S)

    def _is_over(self) -> bool:
        driver = self._driver
        seeds = (*self._seeds, *(self._meeting.others() if self._meeting else ()))
        driver.call(Join(seeds, self._founders, self._returning))
        driver.step(trained=False)
        if driver.look(lambda protocol: protocol.phase) >= Phase.TRAINING:
            return True
        if self._outlived is not None:
            raise OutlivedError(self._outlived.incarnation)
        if self._refusal is not None:
            peer, reason = self._refusal.peer, self._refusal.reason
            raise IncompatiblePeer(f"cannot join {peer}: {reason}", peer)
        return False

    def _wanting(self) -> str:
        """What the peer waits for, in words."""
        members = self._driver.look(lambda protocol: protocol.live())
        answering = {address for member in members for address in member.addresses}
        # In the order in which they were asked: what was typed comes before what is remembered.
        greeted = tuple(self._driver.greeted.copy())
        words = [
            f"{address} {'answers' if address in answering else 'does not answer'}"
            for address in greeted[:_NAMED_MAX]
        ]
        if len(greeted) > _NAMED_MAX:
            rest = greeted[_NAMED_MAX:]
            words.append(f"of {len(rest)} others {sum(a in answering for a in rest)} answer")
        if self._founders > 1:
            words.append(f"{len(members)} of {self._founders} founders are there")
        elif len(members) > 1:
            words.append("waiting for a first share")
        return "; ".join(words) or "nobody has answered yet"
