"""Messages between the workers of a fleet in which things go wrong."""

from collections.abc import Sequence

from ..gossip import Envelope, PeerId
from ..gossip.effects import Greet
from ..gossip.messages import Hello, Leave
from .links import Links
from .program import Slot
from .sizes import Sizes
from .stage import Stage
from .swarm_post import address_of
from .weather import Weather
from .worker import Worker

__all__ = ["Mail"]


class Mail:
    """Hands messages to the network, and what becomes of them to the fleet.

    Args:
        fleet: Whose workers write to one another.
        links: The network as it is when nothing goes wrong.
        weather: What does.
        ids: The workers.
    """

    def __init__(self, fleet: Stage, links: Links, weather: Weather, ids: Sequence[PeerId]) -> None:
        self._fleet = fleet
        self._links = links
        self._weather = weather
        self._sizes = Sizes()
        self._index = {id: index for index, id in enumerate(ids)}
        self._places = {address_of(id): index for index, id in enumerate(ids)}

    def send(self, worker: Worker, envelope: Envelope, payload: Slot | None) -> None:
        """Send a message to whichever life of a worker runs when it arrives."""
        to = self._index.get(envelope.destination)
        if to is not None:
            self._carry(worker, to, envelope, payload)

    def greet(self, worker: Worker, effect: Greet, now: float) -> None:
        """Send a message to whoever has an address."""
        to = self._places.get(effect.address)
        if to is not None and to != worker.index:
            self._carry(worker, to, effect.envelope, None)

    def _carry(self, worker: Worker, to: int, envelope: Envelope, payload: Slot | None) -> None:
        fleet, size_bytes = self._fleet, self._sizes.of(envelope)
        fleet.traffic.messages += 1
        fleet.traffic.bytes_sent += size_bytes
        if type(envelope.body) in (Hello, Leave):
            fleet.traffic.membership_bytes += size_bytes
        # Asked for in any case: what chance does to later messages must not depend on it.
        times_s = self._links.deliveries(fleet.now, worker.index, to, size_bytes)
        arrivals_s = self._weather.arrivals(fleet.now, worker.index, to, times_s)
        if fleet.workers[to].running:
            for time_s in arrivals_s:
                fleet.deliver_at(time_s, to, envelope, payload)
        elif arrivals_s and envelope.destination:
            # Its host answers that nobody listens there.
            now = fleet.now + worker.ahead_s
            fleet.carry_out(worker, worker.protocol.unsent(envelope, now), now)
