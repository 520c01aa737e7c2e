"""What is on its way: a message arrives when the ports that lie before its receiver let it."""

from collections.abc import Callable

from ..models.links import Links, Port
from .clock import Clock, Priority

__all__ = ["Deliveries"]

_DELIVERY = int(Priority.DELIVERY)


class Deliveries:
    """Lets messages arrive.

    Args:
        clock: Says when.
        links: The network; may be replaced.
    """

    def __init__(self, clock: Clock, links: Links) -> None:
        self._clock = clock
        self.links = links

    @property
    def uses_sizes(self) -> bool:
        """Whether the size of a message has anything to do with when it arrives."""
        return self.links.uses_sizes

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
            size_bytes: On the wire.
            action: What to do, with *arguments*.
        """
        links = self.links
        if links.has_ports and (ports := links.ports(*way)):
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
