"""Names of hosts turned into numbers, beside the network's thread.

ZeroMQ looks a name up in its only I/O thread. A name server that does not answer would hold up
every message of every connection, for as long as it pleases, and again at each redial.
"""

import ipaddress
import socket as sockets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from .address import join_address, split_address

__all__ = ["Names"]

# What is found is believed so long; after that it is looked up again if it is still asked for.
_BELIEVED_S: Final = 30.0
_NAMES_MAX: Final = 1024
_THREADS_MAX: Final = 16
_PLACES_MAX: Final = 4


@dataclass(slots=True)
class _Found:
    places: tuple[str, ...] = ()
    since_s: float | None = None
    searching: bool = False


class Names:
    """What addresses with a name stand for; looking one up never holds the caller up."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, _Found] = OrderedDict()
        self._threads = 0
        self._lock = threading.Lock()

    def places(self, address: str) -> tuple[str, ...]:
        """Addresses of numbers that an address stands for.

        Args:
            address: In the inner form, such as ``tcp://node-a:7700``.

        Returns:
            The address itself where it has no name; otherwise what was last found, which is
            nothing at first: ask again later.
        """
        if _is_number(split_address(address)[0]):
            return (address,)
        with self._lock:
            found = self._found.setdefault(address, _Found())
            self._found.move_to_end(address)
            # Strangers make names up; the one that was asked for longest ago is forgotten.
            if len(self._found) > _NAMES_MAX:
                self._found.popitem(last=False)
            is_old = found.since_s is None or time.monotonic() - found.since_s > _BELIEVED_S
            if is_old and not found.searching and self._threads < _THREADS_MAX:
                found.searching = True
                self._threads += 1
                # Nothing ends a lookup early: a daemon does not keep the process waiting for it.
                threading.Thread(target=self._search, args=(address, found), daemon=True).start()
            return found.places

    def forget(self, address: str) -> None:
        """Do nothing: what was found is forgotten in its time."""

    def close(self) -> None:
        """Do nothing: lookups end by themselves."""

    def _search(self, address: str, found: _Found) -> None:
        places = _look_up(address)
        with self._lock:
            # A name server that is out of reach says nothing of where the host is.
            found.places = places or found.places
            found.since_s = time.monotonic()
            found.searching = False
            self._threads -= 1


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _look_up(address: str) -> tuple[str, ...]:
    host, port = split_address(address)
    try:
        answers = sockets.getaddrinfo(host, int(port), type=sockets.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    places = dict.fromkeys(join_address(str(answer[4][0]), port) for answer in answers)
    return tuple(places)[:_PLACES_MAX]
