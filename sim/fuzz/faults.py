"""Injects faults into a simulated network."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from ...gossip import PeerId, Phase
from ...gossip.types import Incarnation
from ..kernel.faults import Fault
from ..kernel.topology import Slowness
from .network import NETWORK_KINDS, Network
from .peer import FuzzPeer, PeerCheckpoint
from .scenario import Scenario

__all__ = ["FaultInjector"]

RESET_EVERY_S = 0.2
"""How often connections are reset where a fault lasts and does not say."""


class FaultInjector:
    """Injects faults.

    Args:
        network: What they fall on.
        scenario: What happens when. What is to come back by itself does so before its faults are
            over.
    """

    def __init__(self, network: Network, scenario: Scenario) -> None:
        self._network = network
        self._peers = scenario.peers
        self._dial_out = scenario.dial_out
        self._until_s = scenario.faults_s
        self._newcomers = 0
        self._slowness = Slowness()
        self._ahead_s = dict(scenario.ahead_s)
        network.reseeds = self.addresses_for
        for fault in scenario.faults:
            network.later(fault.at_s, partial(self.inject, fault))

    def inject(self, fault: Fault) -> None:
        """Carry a fault out now; one of a peer that does not run does nothing."""
        self._network.invariants.seen[f"fault: {fault.kind}"] += 1
        if fault.kind in NETWORK_KINDS:
            self._network.state.begin(fault)
            self._after(fault, lambda: self._network.state.end(fault))
        elif fault.kind in _AT_LARGE:
            _AT_LARGE[fault.kind](self, fault)
        else:
            host = self._network.hosts.get(str(fault.peer))
            if fault.kind == "restart":
                self._restart(str(fault.peer), fault.state)
            elif host is not None and host.running:
                _ON_HOSTS[fault.kind](self, host, fault)

    def calm(self) -> None:
        """Let everything that is wrong be over."""
        self._slowness.clear()
        for host in self._network.running():
            host.resume()
            host.slowness = 1.0
            host.crash_after, host.crash_accepting = None, False

    def addresses_for(self, peer: PeerId) -> tuple[str, ...]:
        """Whom a peer is told when it starts: everybody else who listens."""
        known = dict.fromkeys([*self._peers, *self._network.hosts])
        return tuple(sorted(other for other in known if other not in {peer, *self._dial_out}))

    def _after(self, fault: Fault, action: Callable[[], object]) -> None:
        """Do something when a fault has lasted, if it ends by itself."""
        if fault.for_s is not None:
            self._network.later(fault.for_s, action)

    def _crash(self, host: FuzzPeer, fault: Fault) -> None:
        if fault.accepting:
            host.crash_accepting = True
        elif fault.after is not None:
            host.crash_after = fault.after
        else:
            host.crash()

    def _restart(self, peer: PeerId, state: str | None) -> None:
        network = self._network
        before = network.hosts.get(peer)
        if before is None or before.running:
            return
        if state == "lost":
            # On another machine, whose clock is right.
            network.checkpoints.pop(peer, None)
            self._ahead_s.pop(peer, None)
        checkpoint = network.checkpoints.get(peer)
        skew_s = self._ahead_s.get(peer, 0.0)
        incarnation = max(self._born(skew_s), checkpoint.incarnation + 1 if checkpoint else 0)
        seeds = self.addresses_for(peer)
        if checkpoint is not None and checkpoint.values is not None:
            network.invariants.seen["restart with state"] += 1
            seeds = tuple(dict.fromkeys([*seeds, *checkpoint.addresses]))
        self._begin(peer, seeds, incarnation, checkpoint)

    def start(self, peer: PeerId, seeds: tuple[str, ...], founders: int = 1) -> None:
        """Start the first life of a peer."""
        self._begin(peer, seeds, self._born(self._ahead_s.get(peer, 0.0)), None, founders)

    def _begin(
        self,
        peer: PeerId,
        seeds: tuple[str, ...],
        incarnation: Incarnation,
        checkpoint: PeerCheckpoint | None,
        founders: int = 1,
    ) -> None:
        # Before it says a word, a life is written down: the next one must be a later one.
        kept = replace(checkpoint or PeerCheckpoint(incarnation=0), incarnation=incarnation)
        self._network.checkpoints[peer] = kept
        host = self._network.start(
            peer,
            seeds=seeds,
            founders=founders,
            incarnation=incarnation,
            checkpoint=checkpoint,
            skew_s=self._ahead_s.get(peer, 0.0),
        )
        host.slowness = self._slowness.of(peer)

    def _born(self, skew_s: float) -> int:
        """A life is named by the millisecond in which it begins."""
        return 1 + int((self._network.now + skew_s) * 1000)

    def _mass_restart(self, fault: Fault) -> None:
        network, down = self._network, []
        for peer in fault.peers or sorted(network.hosts):
            host = network.hosts.get(str(peer))
            if host is not None and host.running:
                host.crash()
                down.append(host.id)
        if down and not network.running():
            network.invariants.seen["mass restart"] += 1
        back_s = min(fault.for_s or 0.0, self._until_s - network.now)
        for peer in down:
            network.later(back_s, partial(self._restart, peer, fault.state))

    def _pause(self, host: FuzzPeer, fault: Fault) -> None:
        until_s = self._network.now + (self._until_s if fault.for_s is None else fault.for_s)
        host.pause(until_s)
        self._network.later(until_s - self._network.now, lambda: self._resume(host, until_s))

    def _resume(self, host: FuzzPeer, until_s: float) -> None:
        if host.paused_until_s <= until_s:
            host.resume()

    def _slow(self, host: FuzzPeer, fault: Fault) -> None:
        cause = self._slowness.begin(host.id, fault.factor or 1.0)
        host.slowness = self._slowness.of(host.id)
        self._after(fault, partial(self._hurry, host.id, cause))

    def _hurry(self, peer: PeerId, cause: int) -> None:
        self._slowness.end(peer, cause)
        # Whichever of its lives it is by now.
        self._network.hosts[peer].slowness = self._slowness.of(peer)

    def _jump(self, host: FuzzPeer, fault: Fault) -> None:
        by_s = fault.by_s or 0.0
        self._ahead_s[host.id] = self._ahead_s.get(host.id, 0.0) + by_s
        host.jump(by_s)

    def _diverge(self, host: FuzzPeer, fault: Fault) -> None:
        if host.protocol.phase is Phase.TRAINING:
            host.poison()

    def _reset(self, fault: Fault) -> None:
        self._network.reset(None if fault.peer is None else str(fault.peer))
        if fault.for_s is not None:
            every_s = fault.every_s or RESET_EVERY_S
            if self._network.now + every_s < min(fault.at_s + fault.for_s, self._until_s):
                self._network.later(every_s, lambda: self._reset(fault))

    def _join(self, fault: Fault) -> None:
        for number in range(fault.count or 1):
            self._newcomers += 1
            peer = f"join-{self._newcomers}"
            # Its random numbers are its own, whoever joined before.
            self._network.keys[peer] = f"join@{fault.at_s}#{number}"
            self.start(peer, self.addresses_for(peer))

    def _heal(self, fault: Fault) -> None:
        self._network.state.heal()


_ON_HOSTS: Mapping[str, Callable[[FaultInjector, FuzzPeer, Fault], None]] = MappingProxyType(
    {
        "crash": FaultInjector._crash,
        "pause": FaultInjector._pause,
        "continue": lambda injector, host, fault: host.resume(),
        "slow": FaultInjector._slow,
        "clock-jump": FaultInjector._jump,
        "leave": lambda injector, host, fault: host.leave(),
        "finish": lambda injector, host, fault: host.finish(),
        "diverge": FaultInjector._diverge,
    }
)

_AT_LARGE: Mapping[str, Callable[[FaultInjector, Fault], None]] = MappingProxyType(
    {
        "mass-restart": FaultInjector._mass_restart,
        "reset": FaultInjector._reset,
        "join": FaultInjector._join,
        "heal": FaultInjector._heal,
    }
)
