"""Messages in flight: each arrives once the ports in front of its receiver have let it through."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...gossip.effects.effects import Greet
from ...gossip.wire.codec import encoded_bytes
from ...gossip.wire.messages import Envelope, Hello, Leave
from ...train.faults.network import NetworkFaults
from ..models.links import Links, Port, address_of
from .clock import DELIVERY
from .worker import Payload, Worker

if TYPE_CHECKING:
    from .fleet import Fleet

__all__ = ["Mailbox"]


class Mailbox:
    """Sends a fleet's messages through the network and delivers them."""

    def __init__(self, fleet: "Fleet", links: Links, faults: NetworkFaults | None) -> None:
        self._fleet = fleet
        self.links = links
        """The network that messages cross; it may be replaced."""
        self._faults = faults
        # A harness needs no byte counts.
        self._counts_bytes = fleet.harness is None or links.uses_sizes
        self._places = {address_of(id): index for id, index in fleet.index.items()}

    def greet(self, worker: Worker, effect: Greet, now: float, payload: Payload = None) -> None:
        """Send a message to an address, whichever peer has it."""
        to = self._places.get(effect.address)
        if to is not None and to != worker.index:
            self.send(worker, effect.envelope, payload, to)

    def send(
        self, worker: Worker, envelope: Envelope, payload: Payload, to: int | None = None
    ) -> None:
        """Send a message to whichever incarnation of its receiver runs when it arrives."""
        fleet, links = self._fleet, self.links
        to = fleet.index.get(envelope.destination) if to is None else to
        if to is None:
            return
        size_bytes = 0.0
        fleet.traffic.messages += 1
        if self._counts_bytes:
            whole = encoded_bytes(envelope)
            fleet.traffic.bytes_sent += whole
            if type(envelope.body) in (Hello, Leave):
                fleet.traffic.membership_bytes += whole
            frame = envelope.frame_bytes
            size_bytes = frame + links.header_weight * (whole - frame)
        way, there = (worker.index, to), fleet.workers[to]
        # Drawn for every message: what a fault does to later ones must not depend on this one.
        arrivals_s = links.deliveries(fleet.clock.now, *way, size_bytes)
        if self._faults is not None:
            arrivals_s = self._faults.arrivals(fleet.clock.now, *way, arrivals_s)
        if not there.running or (
            fleet.harness is not None and not fleet.harness.reaches(worker, there)
        ):
            # The receiver's host answers that the port is closed, unless that answer is lost too.
            if arrivals_s and envelope.destination:
                if fleet.harness is not None:
                    fleet.harness.unsent(worker, envelope)
                else:
                    now = fleet.now + worker.ahead_s
                    effects = worker.protocol.unsent(envelope, now)
                    fleet.executor.apply(worker, effects, now, "unsent")
            return
        # Without faults, no worker is paused.
        action = fleet.take_in if self._faults is None else fleet.deliver
        for time_s in arrivals_s:
            if payload is not None:
                payload.readers += 1
            self.expect(time_s, way, size_bytes, action, there, envelope, payload)

    def expect(
        self,
        time_s: float,
        way: tuple[int, int],
        size_bytes: float,
        action: Callable[..., object],
        *arguments: object,
    ) -> None:
        """Run *action* when a message arrives."""
        links, clock = self.links, self._fleet.clock
        ports = links.ports(*way) if links.has_ports else ()
        if ports:
            clock.at(time_s, DELIVERY, self._pass, ports, size_bytes, action, arguments)
        else:
            clock.at(time_s, DELIVERY, action, *arguments)

    def _pass(
        self,
        ports: tuple[Port, ...],
        size_bytes: float,
        action: Callable[..., object],
        arguments: tuple[object, ...],
    ) -> None:
        """Pass one port after another, and wait at each that is busy."""
        clock = self._fleet.clock
        now = clock.now
        for number, port in enumerate(ports, 1):
            through_s = port.take(now, size_bytes)
            if through_s > now:
                left = ports[number:]
                if left:
                    clock.at(through_s, DELIVERY, self._pass, left, size_bytes, action, arguments)
                else:
                    clock.at(through_s, DELIVERY, action, *arguments)
                return
        action(*arguments)
