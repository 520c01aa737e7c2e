"""Seeds behind a name that stands for many machines, such as that of a headless Service.

``dns:NAME:PORT`` is every address that the name has, looked up again as long as the peer looks for
a swarm, and when it has lost somebody: whoever replaces it has another address.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from ...gossip.transport.addresses import is_name_of_many, join_address, split_address

__all__ = ["NamedSeeds"]

_log = logging.getLogger("rumor")

_FRESH_S: Final = 2.0
_AGAIN_S: Final = (0.0, 15.0, 45.0, 120.0)
"""When names are looked up after a loss: whoever replaces a machine takes its time."""


class NamedSeeds:
    """What names stand for; looking them up never holds the caller up.

    Args:
        joins: Whom to join: what is no name of many is none of its concern.
        own: The peer's own addresses, which are left out.
    """

    def __init__(self, joins: Sequence[str], own: Collection[str] = ()) -> None:
        self._names = tuple(filter(is_name_of_many, joins))
        self._own = frozenset(own)
        self._found: dict[str, tuple[str, ...]] = {}
        self._why: dict[str, str] = {}
        self._looked_s = float("-inf")
        self._lock = threading.Lock()
        self._searching = False
        self._following: threading.Thread | None = None
        self._lost = threading.Event()
        self._closed = threading.Event()

    @property
    def pending(self) -> bool:
        """Whether there are names, so that to know nobody does not mean that there is nobody."""
        return bool(self._names)

    def addresses(self) -> tuple[str, ...]:
        """All that is known now; what is old is looked up meanwhile."""
        with self._lock:
            is_old = time.monotonic() - self._looked_s > _FRESH_S
            if self._names and is_old and not self._searching:
                self._searching = True
                threading.Thread(target=self._look_up, daemon=True).start()
            return self._known()

    def silence(self) -> tuple[str, ...]:
        """Names that stand for nobody, each with the reason."""
        with self._lock:
            return tuple(f"{name} {why}" for name, why in self._why.items() if why)

    def lost(self, tell: Callable[[tuple[str, ...]], None]) -> None:
        """Look the names up again, now and a few times later.

        Args:
            tell: Called with what is known each time, on a thread of this object.
        """
        if not self._names:
            return
        self._lost.set()
        with self._lock:
            if self._following is None and not self._closed.is_set():
                self._following = threading.Thread(target=self._follow, args=(tell,), daemon=True)
                self._following.start()

    def close(self) -> None:
        """Tell nobody any more."""
        self._closed.set()
        self._lost.set()
        if self._following is not None:
            self._following.join()

    def _follow(self, tell: Callable[[tuple[str, ...]], None]) -> None:
        while not self._closed.is_set():
            self._lost.wait()
            self._lost.clear()
            since_s = time.monotonic()
            for after_s in _AGAIN_S:
                # Another loss begins anew.
                if self._lost.wait(max(0.0, since_s + after_s - time.monotonic())):
                    break
                self._look_up()
                with self._lock:
                    known = self._known()
                if not self._closed.is_set():
                    tell(known)

    def _known(self) -> tuple[str, ...]:
        found = (address for name in self._names for address in self._found.get(name, ()))
        return tuple(address for address in dict.fromkeys(found) if address not in self._own)

    def _look_up(self) -> None:
        for name in self._names:
            host, port = split_address(name.removeprefix("dns:"))
            places: tuple[str, ...] = ()
            try:
                answers = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
                places = tuple(join_address(str(answer[4][0]), port) for answer in answers)
                why = ""
            except (OSError, UnicodeError) as error:
                why = f"does not resolve ({getattr(error, 'strerror', None) or error})"
            with self._lock:
                # A name server that is out of reach says nothing of where peers are.
                self._found[name] = places or self._found.get(name, ())
                self._why[name] = why
        with self._lock:
            self._looked_s = time.monotonic()
            self._searching = False
