"""What is on its way: a message arrives when the ports that lie before its receiver let it.

Where cables are shared evenly, connections hold up messages in place of uplinks and ports.
"""

from collections.abc import Callable

from ..models.cables import FairSharing
from ..models.links import Links, Port
from .clock import Clock, Priority
from .worker import Payload, Values

__all__ = ["Deliveries"]

_DELIVERY = int(Priority.DELIVERY)


class Deliveries:
    """Lets messages arrive; the network that they pass, *links*, may be replaced."""

    def __init__(self, clock: Clock, links: Links) -> None:
        self._clock = clock
        self._sharing = FairSharing(lambda: clock.now, self._at)
        self.links = links

    def carry(
        self,
        way: tuple[int, int],
        size_bytes: float,
        values: Values,
        payload: Payload,
        action: Callable[..., object],
        *arguments: object,
    ) -> None:
        """Do something once the last byte of a message has left, where cables are shared evenly.

        Args:
            way: Indices of the two workers, first the one that sends it.
            values: Keep *payload*, which travels along, until then.
        """
        if payload is not None:
            payload.readers += 1
        given = values, payload, action, arguments
        self._sharing.send(self.links.connection(*way), size_bytes, self._has_left, *given)

    def _has_left(
        self,
        values: Values,
        payload: Payload,
        action: Callable[..., object],
        arguments: tuple[object, ...],
    ) -> None:
        action(*arguments)
        if payload is not None:
            values.let_go(payload)

    def _at(self, time_s: float, action: Callable[..., object], *arguments: object) -> None:
        self._clock.at(max(time_s, self._clock.now), _DELIVERY, action, *arguments)

    def expect(
        self,
        time_s: float,
        way: tuple[int, int],
        size_bytes: float,
        action: Callable[..., object],
        *arguments: object,
    ) -> None:
        """Do something when a message arrives.

        Args:
            time_s: When its last byte is there if nothing is in its way, virtual seconds.
            way: Indices of the two workers, first the one that has sent it.
        """
        links = self.links
        ports: tuple[Port, ...] = ()
        if links.has_ports:
            ports = links.downlinks[way[1]] if links.is_plain else links.ports(*way)
        if ports:
            self._clock.at(time_s, _DELIVERY, self._pass, ports, size_bytes, action, arguments)
        else:
            self._clock.at(time_s, _DELIVERY, action, *arguments)

    def _pass(
        self,
        ports: tuple[Port, ...],
        size_bytes: float,
        action: Callable[..., object],
        arguments: tuple[object, ...],
    ) -> None:
        """Go through one port after another, and wait where one is busy."""
        now = self._clock.now
        for number, port in enumerate(ports, 1):
            through_s = port.take(now, size_bytes)
            if through_s > now:
                left = ports[number:]
                if left:
                    self._clock.at(
                        through_s, _DELIVERY, self._pass, left, size_bytes, action, arguments
                    )
                else:
                    self._clock.at(through_s, _DELIVERY, action, *arguments)
                return
        action(*arguments)
