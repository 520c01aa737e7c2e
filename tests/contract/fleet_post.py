"""The network of simulated fleets and swarms, under virtual time."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from rumor.gossip.effects.effects import Greet
from rumor.gossip.wire.messages import Envelope
from rumor.sim.kernel.clock import Clock
from rumor.sim.kernel.deliveries import Mailbox
from rumor.sim.kernel.fleet import Fleet
from rumor.sim.kernel.plan import Traffic
from rumor.sim.kernel.worker import Worker
from rumor.sim.models.links import Links, address_of
from rumor.sim.models.network import NetworkConfig
from rumor.train.faults.network import NetworkFaults
from rumor.train.faults.schedule import Fault

from .post import Letter

__all__ = ["CALM", "WORST", "End", "FleetPost"]

CALM = NetworkConfig(latency_s=0.005, jitter=0.1, bandwidth_mbit=1000)

WORST = NetworkConfig(
    latency_s=0.05, jitter=0.5, bandwidth_mbit=1000, loss=0.05, duplicates=0.05, reorder=0.3
)

_SETTLED_S = 5.0
_TIMEOUT_S = 100.0
_STEP_S = 0.01


class _Frame:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.readers = 0


class End:
    def __init__(self, fleet: "_Fleet", name: str) -> None:
        self.name = name
        self.received: list[Letter] = []
        self.index = fleet.index[name]
        self.running = False
        self.unread: list[Letter] | None = None
        """Messages that arrived while the end is paused; None while it reads."""
        self._fleet = fleet

    @property
    def as_worker(self) -> Worker:
        return cast(Worker, self)

    def greet(self, name: str, message: Letter) -> bool:
        greeting = Greet(address_of(name), message.envelope)
        args = self.as_worker, greeting, self._fleet.now, _Frame(message.frame)
        return self._fleet.accepts(lambda: self._fleet.mail.greet(*args))

    def send(self, name: str, message: Letter) -> bool:
        args = self.as_worker, message.envelope, _Frame(message.frame)
        return self._fleet.accepts(lambda: self._fleet.mail.send(*args))


class _Fleet:
    def __init__(self, names: Sequence[str], config: NetworkConfig) -> None:
        self.clock = Clock()
        self.traffic = Traffic()
        self.index = {name: index for index, name in enumerate(names)}
        self.workers: list[End] = [End(self, name) for name in names]
        self.harness = self.values = self
        faults = NetworkFaults((), names, 0)
        self.mail = Mailbox(cast(Fleet, self), Links(config, names, 0), faults)
        self._refused = False

    @property
    def now(self) -> float:
        return self.clock.now

    def accepts(self, send: Callable[[], None]) -> bool:
        """Return whether the network accepts a message instead of refusing it at once."""
        self._refused = False
        send()
        return not self._refused

    def reaches(self, source: Worker, to: Worker) -> bool:
        return True

    def unsent(self, worker: Worker, envelope: Envelope) -> None:
        self._refused = True

    def deliver(self, worker: Worker, envelope: Envelope, payload: _Frame) -> None:
        end = self.workers[worker.index]
        if end.running:
            message = Letter(envelope, payload.data)
            (end.received if end.unread is None else end.unread).append(message)

    def let_go(self, slot: _Frame) -> None:
        pass


class FleetPost:
    """Simulated processes on the network of `rumor.sim`."""

    unread_max: int | None = None
    """Maximum number of bulk messages queued for a paused process; None for no limit."""

    def __init__(self, names: Sequence[str], config: NetworkConfig) -> None:
        self._fleet = _Fleet(names, config)
        self._clock = self._fleet.clock
        self._faults: list[Fault] = []

    def open(self, name: str) -> End:
        end = self._fleet.workers[self._fleet.index[name]] = End(self._fleet, name)
        end.running = True
        return end

    def meet(self, one: str, other: str) -> None:
        pass  # names are addresses here

    def kill(self, name: str) -> None:
        self._end(name).running = False

    def pause(self, name: str) -> None:
        self._end(name).unread = []

    def resume(self, name: str) -> None:
        end = self._end(name)
        end.received += end.unread or []
        end.unread = None

    def cut(self, source: str, to: str) -> None:
        self._add("cut", self._clock.now, peer=source, to=to, one_way=True)

    def heal(self) -> None:
        self._add("heal", self._clock.now)

    def reset(self, one: str, other: str) -> None:
        self._add("reset", self._clock.now, peer=one)

    def reset_in_transfer(self, source: str, to: str, send: Callable[[], object]) -> None:
        # Whether a message is lost is decided when it is sent.
        self._add("reset", self._clock.now + 2 * _STEP_S, peer=source)
        send()
        self._clock.run(self._clock.now + 2 * _STEP_S)

    def _add(self, kind: str, at_s: float, **fields: Any) -> None:
        self._faults.append(Fault(at_s=at_s, kind=kind, **fields))
        self._fleet.mail._faults = NetworkFaults(self._faults, [*self._fleet.index], 0)

    def settle(self) -> None:
        self._clock.run(self._clock.now + _SETTLED_S)

    def until(self, condition: Callable[[], bool]) -> None:
        give_up_s = self._clock.now + _TIMEOUT_S
        while not condition():
            assert self._clock.now < give_up_s, "the condition never became true"
            self._clock.run(self._clock.now + _STEP_S)

    def close(self) -> None:
        pass

    def _end(self, name: str) -> End:
        return self._fleet.workers[self._fleet.index[name]]
