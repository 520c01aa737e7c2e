"""The network of the campaigns of faults, under virtual time."""

from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import cast

from rumor.gossip import Envelope, GoSGD
from rumor.sim.fuzz.network import Network, NetworkFaults, Peers
from rumor.sim.fuzz.peer import FuzzPeer

from .post import Letter

__all__ = ["CALM", "WORST", "FuzzPost"]

CALM = NetworkFaults(orderly=True, tells=True)

WORST = NetworkFaults(loss=0.05, duplicates=0.05, replays=0.02, delay_s=0.05)

_SETTLED_S = 20.0
_TIMEOUT_S = 200.0
_STEP_S = 0.01


class _End:
    """A life of a process: what the network sees of a `FuzzPeer`, and no protocol in it."""

    def __init__(self, network: Network, name: str, incarnation: int) -> None:
        self.name = self.id = name
        self.ledger = SimpleNamespace(life=(name, incarnation))
        self.came: list[Letter] = []
        self.running = True
        self.unread: list[Letter] | None = None
        """What has come while it reads nothing; None while it reads."""
        self._network = network
        self._refused = False

    def greet(self, name: str, message: Letter) -> bool:
        self._network.greet(cast(FuzzPeer, self), name, message.envelope)
        return True  # nobody is told

    def send(self, name: str, message: Letter) -> bool:
        self._refused = False
        self._network.send(cast(FuzzPeer, self), message.envelope, message.frame)
        return not self._refused

    def arrive(self, envelope: Envelope, frame: bytes) -> None:
        (self.came if self.unread is None else self.unread).append(Letter(envelope, frame))

    def unsent(self, envelope: Envelope) -> None:
        self._refused = True


class FuzzPost:
    """Processes on `rumor.sim.fuzz`'s network.

    Args:
        faults: What the network is like.
        seed: Of its random numbers.
    """

    takes_unread_max: int | None = None

    def __init__(self, faults: NetworkFaults = CALM, seed: int = 0) -> None:
        peers = Peers(rule=lambda peer: GoSGD(), dials_out=lambda peer: peer in self._hidden)
        self._network = Network(seed, peers, faults)
        self._ends: dict[str, _End] = {}
        self._hidden: set[str] = set()
        self._lives = count(1)

    def open(self, name: str, *, listens: bool = True) -> _End:
        (self._hidden.discard if listens else self._hidden.add)(name)
        end = self._ends[name] = _End(self._network, name, next(self._lives))
        self._network.hosts[name] = cast(FuzzPeer, end)
        return end

    def meet(self, one: str, other: str) -> None:
        pass  # names are addresses here

    def kill(self, name: str) -> None:
        self._ends[name].running = False

    def stand_still(self, name: str) -> None:
        self._ends[name].unread = []

    def go_on(self, name: str) -> None:
        end = self._ends[name]
        end.came += end.unread or []
        end.unread = None

    def cut(self, source: str, to: str) -> None:
        self._network.cut.add((source, to))

    def heal(self) -> None:
        self._network.cut.clear()

    def reset(self, one: str, other: str) -> None:
        self._network.reset(other)

    def reset_in_transfer(self, source: str, to: str, send: Callable[[], object]) -> None:
        send()
        self._network.run(self._network.now + _STEP_S)
        self._network.reset(to)

    def settle(self) -> None:
        self._network.run(self._network.now + _SETTLED_S)

    def until(self, condition: Callable[[], bool]) -> None:
        give_up_s = self._network.now + _TIMEOUT_S
        while not condition():
            assert self._network.now < give_up_s, "it never came"
            self._network.run(self._network.now + _STEP_S)

    def close(self) -> None:
        pass
