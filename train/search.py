"""A peer's search for its swarm: greet, wait, and say what it waits for."""

import logging
import threading
import time
from typing import Final

from ..gossip import IncompatiblePeer, Phase, TransportError
from ..gossip.effects import PeerRefused
from .config import PeerConfig
from .driver import Driver
from .inputs import Join
from .rendezvous import Rendezvous

__all__ = ["Search"]

_log = logging.getLogger("rumor")

_SAY_S: Final = 5.0
_POLL_S: Final = 0.05


class Search:
    """Brings a peer that has just started into a swarm.

    Args:
        driver: Runs its protocol.
        config: Where to look, and for how long.
        id: The peer's name.
        address: Where others reach it, for the folder where addresses are exchanged; None for
            one that only dials out.
    """

    def __init__(self, driver: Driver, config: PeerConfig, id: str, address: str | None) -> None:
        self._driver = driver
        self._config = config
        self._meeting = Rendezvous(config.rendezvous, id) if config.rendezvous else None
        if self._meeting is not None and address is not None:
            self._meeting.announce(address)
        self.refusal: PeerRefused | None = None
        """Set it, on any thread, to the word of a member that this peer cannot be one of them."""

    def run(self, stop: threading.Event) -> None:
        """Search until the swarm is founded or joined.

        Args:
            stop: When set, the search is given up.

        Raises:
            TransportError: No swarm was found in time, or before *stop* was set.
            IncompatiblePeer: The swarm trains another model; the first difference is named.
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
        driver, config = self._driver, self._config
        seeds = (*config.join, *(self._meeting.others() if self._meeting else ()))
        driver.call(Join(seeds, config.founders))
        driver.step(trained=False)
        if driver.look(lambda protocol: protocol.phase) >= Phase.TRAINING:
            return True
        if self.refusal is not None:
            peer, reason = self.refusal.peer, self.refusal.reason
            raise IncompatiblePeer(f"cannot join {peer}: {reason}", peer)
        return False

    def _wanting(self) -> str:
        """What the peer waits for, in words."""
        members = self._driver.look(lambda protocol: protocol.live())
        answering = {address for member in members for address in member.addresses}
        words = [
            f"{address} {'answers' if address in answering else 'does not answer'}"
            for address in sorted(self._driver.greeted)
        ]
        if self._config.founders > 1:
            words.append(f"{len(members)} of {self._config.founders} founders are there")
        elif len(members) > 1:
            words.append("waiting for a first share")
        return "; ".join(words) or "nobody has answered yet"
