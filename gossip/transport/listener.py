"""The listening socket: bound at one or several addresses, and again to expel a machine."""

import os
import socket as sockets
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from weakref import WeakSet

import zmq

from ..errors import TransportError
from .addresses import bind_advice, split_address
from .keys.curve import Curve
from .sockets import open_socket, reason

__all__ = ["Listener"]

_BIND_AGAIN_S: Final = 2.0
_BIND_POLL_S: Final = 0.002


class Listener:
    """A peer's ROUTER, registered with the poller while it is open."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        poller: zmq.Poller,
        curve: Curve | None,
        messages_max: int,
    ) -> None:
        self._context = context
        self._poller = poller
        self._curve = curve
        self._messages_max = messages_max
        # None while it is not bound, and the bound addresses with their actual ports.
        self.socket: zmq.Socket[bytes] | None = None
        self.addresses: tuple[str, ...] = ()
        _listeners.add(self)

    def bind(self, addresses: Sequence[str]) -> None:
        """Bind the socket to all *addresses*, or raise TransportError."""
        router = open_socket(self._context, zmq.ROUTER, self._messages_max)
        try:
            if self._curve is not None:
                self._curve.serve(router)
            # Unset, a message for a peer that has left would vanish without an error.
            router.setsockopt(zmq.ROUTER_MANDATORY, 1)
            for address in addresses:
                # With it, ZeroMQ reports an IPv4 address as IPv6.
                router.setsockopt(zmq.IPV6, int("[" in address))
                router.bind(address)
                self.addresses += (router.getsockopt_string(zmq.LAST_ENDPOINT),)
        except zmq.ZMQError as error:
            router.close(linger=0)
            advice = bind_advice(address, error.errno)
            why = f"cannot listen at {address}: {reason(error)}; {advice}"
            raise TransportError(why) from None
        self.socket = router
        self._poller.register(router, zmq.POLLIN)

    def bind_again(self) -> None:
        """Close all incoming connections; peers that are still admitted reconnect soon."""
        if self.socket is None:
            return
        # ZeroMQ cannot close a single incoming connection.
        addresses, self.addresses = self.addresses, ()
        self._poller.unregister(self.socket)
        for address in addresses:
            self.socket.unbind(address)
        self.socket.close(linger=0)
        self.socket = None
        give_up_s = time.monotonic() + _BIND_AGAIN_S
        while True:
            try:
                self.bind(addresses)
                return
            except TransportError:
                # ZeroMQ's own thread closes the socket, a little later.
                self.addresses = ()
                if time.monotonic() > give_up_s:
                    raise
                time.sleep(_BIND_POLL_S)


_listeners: WeakSet[Listener] = WeakSet()


def _close_in_child() -> None:
    # A port that a forked child holds would stay in use when its parent is gone, and connections to
    # it would get no answer.
    ports = {int(split_address(each)[1]) for one in _listeners for each in one.addresses}
    for name in os.listdir("/dev/fd") if ports else ():
        with suppress(OSError):
            inherited = sockets.socket(fileno=int(name))
            try:
                is_ip = inherited.family in (sockets.AF_INET, sockets.AF_INET6)
                if is_ip and inherited.getsockname()[1] in ports:
                    inherited.close()
            finally:
                inherited.detach()


os.register_at_fork(after_in_child=_close_in_child)
