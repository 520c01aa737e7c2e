"""Many protocols in one process: a queue in place of the network, and no values."""

from collections import deque
from collections.abc import Sequence
from functools import partial

from ..gossip import Envelope, GoSGD, Protocol, ProtocolConfig, Schema, TensorSpec, stream
from ..gossip.effects import Effect, Inspect, Send
from ..gossip.messages import Hello
from ..topology import neighbors

__all__ = ["SCHEMA", "Swarm"]

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
        gossip_s: Between two exchanges of the roster, virtual seconds; never unless given.
    """

    def __init__(self, n: int, *, p: float, gossip_s: float = _NEVER_S) -> None:
        self.now = 0.0
        self.events = 0
        """How often a protocol was told something."""
        self._queue: deque[Envelope] = deque()
        config = ProtocolConfig(gossip_s=gossip_s, dead_s=30 * gossip_s)
        width = len(str(n - 1))
        self._peers = {
            id: _founder(id, p, config) for id in (f"peer-{i:0{width}}" for i in range(n))
        }
        self._introduce()
        self.events = 0

    def steps(self, count: int, step_s: float = 0.0) -> None:
        """Let every peer take so many steps, each *step_s* long; all messages arrive at once."""
        for _ in range(count):
            self.now += step_s
            for protocol in self._peers.values():
                self._carry_out(protocol, protocol.step(self.now))
                self._deliver()

    def wake(self, elapsed_s: float) -> None:
        """Let so many seconds pass without a step, and do what they made due."""
        self.now += elapsed_s
        for protocol in self._peers.values():
            self._carry_out(protocol, protocol.wake(self.now))
        self._deliver()

    def _introduce(self) -> None:
        """Tell everybody of everybody at first hand: rosters that spread would take minutes."""
        for protocol in self._peers.values():
            protocol.join(self.now)
        for source in self._peers.values():
            hello = Hello(members=source.live()[:1], rooted=False, reply=False)
            hello = Hello(members=(_own_entry(source),), rooted=False, reply=False)
            for id, protocol in self._peers.items():
                if protocol is not source:
                    protocol.receive(_envelope(source, id, hello), self.now)

    def _deliver(self) -> None:
        while self._queue:
            envelope = self._queue.popleft()
            protocol = self._peers[envelope.destination]
            self._carry_out(protocol, protocol.receive(envelope, self.now))

    def _carry_out(self, protocol: Protocol, effects: Sequence[Effect]) -> None:
        self.events += 1
        for effect in effects:
            match effect:
                case Send(envelope):
                    self._queue.append(envelope)
                case Inspect(share):
                    self._carry_out(protocol, protocol.inspected(share, self.now, finite=True))
                case _:
                    pass
