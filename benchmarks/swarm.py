"""Many protocols in one process: a queue in place of the network, and no values."""

import math
from collections import deque
from collections.abc import Sequence
from functools import partial

from ..gossip import Envelope, GoSGD, Protocol, ProtocolConfig, Schema, TensorSpec, stream
from ..gossip.crew import Crew
from ..gossip.effects import Effect, Inspect, Send
from ..gossip.events import Event
from ..gossip.messages import Body, Hello
from ..gossip.state import Neighbors
from ..sim.neighborhood import Neighborhood
from ..topology import View, parse

__all__ = ["GOSSIP_S", "SCHEMA", "Swarm"]

GOSSIP_S = 1.0
"""Between two exchanges of the roster, virtual seconds."""

SCHEMA = Schema((TensorSpec("x", (1024,), "float32"),))
"""4 KiB: a share fits one message."""

_ANCHOR = bytes(16)
_TOPOLOGY = "exponential"
_NEVER_S = 1e9


class Swarm:
    """Peers that know one another and train, on a clock that only moves when told to.

    Args:
        n: How many.
        p: Probability of a push at a step.
        crew: Whether all share one view of the swarm, as simulated workers do; else each keeps a
            roster of its own, as live peers do.
    """

    def __init__(self, n: int, *, p: float, crew: bool = False) -> None:
        self.now = 0.0
        self.events = 0
        """How often a protocol was told something."""
        self._queue: deque[Envelope] = deque()
        width = len(str(n - 1))
        ids = tuple(f"peer-{i:0{width}}" for i in range(n))
        if crew:
            config = ProtocolConfig(gossip_s=math.inf, dead_s=math.inf)
            neighbors, shared = Neighborhood(parse(_TOPOLOGY, n), ids), Crew(ids)
            self._peers = {id: _founder(id, p, config, neighbors, shared) for id in ids}
            for protocol in self._peers.values():
                protocol.join(self.now)
        else:
            config = ProtocolConfig(gossip_s=GOSSIP_S, dead_s=_NEVER_S)
            self._peers = {id: _founder(id, p, config, View(_TOPOLOGY, 0)) for id in ids}
            self._introduce()
        self.events = 0

    def steps(self, count: int) -> None:
        """Let every peer take so many steps in no time; messages arrive at once."""
        for _ in range(count):
            for protocol in self._peers.values():
                self._carry_out(protocol, protocol.step(self.now))
                self._deliver()

    def gossip(self) -> None:
        """Let everybody exchange rosters with somebody, once."""
        self.now += GOSSIP_S
        for protocol in self._peers.values():
            self._carry_out(protocol, protocol.wake(self.now))
        self._deliver()

    def _introduce(self) -> None:
        """Tell everybody of everybody at first hand: rosters that spread would take minutes."""
        for protocol in self._peers.values():
            protocol.join(self.now)
        for source, entry in [(peer, peer.live()[0]) for peer in self._peers.values()]:
            hello = Hello(members=(entry,), rooted=False, reply=False)
            for id, protocol in self._peers.items():
                if protocol is not source:
                    protocol.receive(_envelope(source, id, hello), self.now)

    def _deliver(self) -> None:
        while self._queue:
            envelope = self._queue.popleft()
            protocol = self._peers[envelope.destination]
            self._carry_out(protocol, protocol.receive(envelope, self.now))

    def _carry_out(self, protocol: Protocol, effects: Sequence[Effect | Event]) -> None:
        self.events += 1
        for effect in effects:
            match effect:
                case Send(envelope):
                    self._queue.append(envelope)
                case Inspect(share):
                    self._carry_out(protocol, protocol.inspected(share, self.now, finite=True))
                case _:
                    pass


def _founder(
    id: str, p: float, config: ProtocolConfig, neighbors: Neighbors, crew: Crew | None = None
) -> Protocol:
    return Protocol(
        id=id,
        incarnation=1,
        schema=SCHEMA,
        anchor=_ANCHOR,
        rule=GoSGD(p),
        neighbors=neighbors,
        rng=partial(stream, 0, id),
        config=config,
        addresses=(f"tcp://{id}:7700",),
        crew=crew,
    )


def _envelope(source: Protocol, destination: str, body: Body) -> Envelope:
    return Envelope(
        swarm=_ANCHOR,
        schema=SCHEMA.hash,
        source=source.account.id,
        source_incarnation=1,
        destination=destination,
        destination_incarnation=1,
        body=body,
    )
