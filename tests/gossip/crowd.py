"""Peers with one rule on a bad network; each minimizes a different quadratic."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import EndTraining, Halt, Wait
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.rule import Requirements, Rule, hook_of, requirements_of
from rumor.gossip.protocol.state import Neighbors
from rumor.gossip.types import PeerId
from rumor.sim import NetworkConfig
from rumor.sim.fuzz.peers import FuzzPeer, Peers, spread
from rumor.sim.fuzz.swarm import CALM, FuzzSwarm
from rumor.sim.fuzz.vector import SIZE, Values
from rumor.sim.models.links import Links, address_of
from rumor.train.faults.schedule import Fault

__all__ = [
    "BAD",
    "CONFIG",
    "LR",
    "MORTAL",
    "PATIENT",
    "Crowd",
    "RecordedRule",
    "gradient",
    "starts",
]

BAD = NetworkConfig(latency_s=0.02, jitter=1.0, loss=0.15, duplicates=0.1, reorder=0.3)

CONFIG = ProtocolConfig(
    query_s_min=0.1, query_s_max=1.0, stall_s=2.0, gossip_s=0.5, retry_s=0.2, dead_s=1e6
)
"""No peer is considered dead, and missing answers are queried soon."""

MORTAL = replace(CONFIG, suspect_s=1.0, dead_s=3.0, roll_s=5.0)
"""A dead peer is soon considered dead."""

PATIENT = replace(CONFIG, query_s_min=50.0, query_s_max=50.0)
"""Peers wait long for answers, so no share is ever fenced on a network without loss."""

LR = 0.1

_OPTIMA = np.random.default_rng(0).normal(size=(64, SIZE))


def starts(n: int, size: int = SIZE) -> Values:
    """Initial models, float64, shape ``(n, size)``."""
    return np.random.default_rng(1).normal(size=(n, size))


def gradient(place: int, x: Values) -> Values:
    """Gradient of ``slope / 2 * (x - optimum)^2``, with a different optimum for each peer."""
    slope: float = 0.2 + 0.1 * (place % 9)
    grown: Values = slope * (x - np.resize(_OPTIMA[place], len(x)))
    return grown


class RecordedRule:
    """A rule that counts its waits and records why it halted."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.name, self.registers = rule.name, rule.registers
        self.outstanding_max = rule.outstanding_max
        self.waits = 0
        self.halts: list[str] = []

    @property
    def requirements(self) -> Requirements:
        return requirements_of(self.rule)

    def start(self, context: RuleContext) -> None:
        if (start := hook_of(self.rule, "start")) is not None:
            start(context)

    def step(self, context: RuleContext) -> Wait | EndTraining | Halt | None:
        outcome = self.rule.step(context)
        self.waits += isinstance(outcome, Wait)
        if isinstance(outcome, Halt):
            self.halts.append(outcome.reason)
        return outcome


class Crowd:
    """Founders with one rule each; records their models before each step."""

    def __init__(
        self,
        rule: Callable[[PeerId], Rule],
        n: int,
        neighbors: Neighbors,
        weather: NetworkConfig = CALM,
        *,
        steps: Callable[[PeerId], int] | int | None = None,
        config: ProtocolConfig = CONFIG,
        seed: int = 7,
        step_s: Callable[[PeerId], float] = lambda peer: 0.1,
        descend: bool = True,
        newcomers: tuple[PeerId, ...] = (),
        same_start: bool = False,
        dials_out: frozenset[PeerId] = frozenset(),
        faults: tuple[Fault, ...] = (),
        host: Callable[[PeerId], bytes] = lambda peer: b"",
        size: int = SIZE,
        lr: Callable[[int], float] | None = None,
    ) -> None:
        total = n + len(newcomers)
        initial = starts(total, size)
        if same_start:
            initial = initial[:1].repeat(total, 0)
        self.ids = tuple(f"p{index:02}" for index in range(n))
        self.rules = {peer: RecordedRule(rule(peer)) for peer in self.ids}
        self.before: dict[PeerId, list[Values]] = {peer: [] for peer in self.ids}
        self.moved: Values = np.zeros(size)
        """Sum of all optimizer updates."""
        self.on_step: Callable[[PeerId], object] = lambda peer: None
        self._steps, self._descend = steps, descend
        self._lr = (lambda step: LR) if lr is None else lr
        peers = Peers(
            rule=lambda peer: self.rules[peer] if peer in self.rules else rule(peer),
            config=config,
            neighbors=neighbors,
            train=self._train,
            step_s=step_s,
            values=dict(zip((*self.ids, *newcomers), initial, strict=True)).__getitem__,
            hulls=False,
            size=size,
            dials_out=dials_out.__contains__,
            host=host,
            lr=lr,
        )
        self._seed = seed
        self.swarm = FuzzSwarm(seed, peers, (*self.ids, *newcomers), n, weather, faults=faults)

    def launch(self, peer: PeerId, seeds: Sequence[PeerId]) -> None:
        """Start a newcomer, or a peer's next incarnation, with only the addresses of *seeds*."""
        worker = self.swarm.fleet.workers[self.swarm.fleet.index[peer]]
        self.swarm.processes.start([worker], seeds=[address_of(other) for other in seeds])

    def crash(self, peer: PeerId) -> None:
        self.swarm.processes.crash(self.swarm.peers[peer].worker)

    def leave(self, peer: PeerId, *, burn: bool = False) -> None:
        self.swarm.fleet.leave(self.swarm.peers[peer].worker, burn=burn)

    def change_weather(self, weather: NetworkConfig) -> None:
        ids = list(self.swarm.fleet.index)
        self.swarm.fleet.mail.links = Links(weather, ids, self._seed)

    def stop_training(self) -> None:
        self._descend = False

    def agree(self) -> None:
        """Stop all training, and run until the models agree."""
        self.stop_training()
        give_up_s = self.swarm.now + 300.0
        # A check after every event would be slow.
        while self.swarm.now < give_up_s and spread(self.swarm.running()) >= 1e-5:
            self.swarm.run(self.swarm.now + 0.5)
        assert spread(self.swarm.running()) < 1e-5

    @property
    def hosts(self) -> list[FuzzPeer]:
        return [self.swarm.peers[peer] for peer in self.ids]

    @property
    def models(self) -> Values:
        return np.array([host.vector.x for host in self.hosts])

    def run(self, until_s: float, *, steps: int | None = None) -> None:
        self.swarm.run(
            until_s,
            lambda: (
                min(map(len, self.before.values())) > steps
                if steps is not None
                else not self.swarm.running()
            ),
        )

    def history(self, rounds: int) -> Values:
        """Every model after each round, float64, shape ``(rounds, n, SIZE)``."""
        self.run(2000.0, steps=rounds)
        after = [self.before[peer][1 : rounds + 1] for peer in self.ids]
        return np.array(after).swapaxes(0, 1)

    def _train(self, host: FuzzPeer) -> None:
        if host.id not in self.before:
            return  # a newcomer that only listens
        place = self.ids.index(host.id)
        self.before[host.id].append(host.vector.x.copy())
        if self._descend:
            x = host.vector.x
            step = self._lr(len(self.before[host.id]) - 1) * gradient(place, x)
            host.vector.registers["x"] = x - step
            self.moved = self.moved - step
            self.on_step(host.id)
        steps = self._steps(host.id) if callable(self._steps) else self._steps
        if steps is not None and len(self.before[host.id]) >= steps:
            host.worker.finishing = True
