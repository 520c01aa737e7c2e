"""A topology as the protocol asks for it: names in, names out, each answer looked up once."""

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

from ...gossip import ConfigError, Rule
from ...gossip.protocol.rule import requirements_of
from ...gossip.types import PeerId
from ...topology import Topology, over
from ...topology.live import LiveTopology

__all__ = ["LiveWorkerTopology", "WorkerTopology", "machines_of", "require_machines"]


Machines = Mapping[PeerId, bytes]

_VIEWS_KEPT = 256
"""Views whose graph is kept: while news spreads, workers differ in whom they know."""


class WorkerTopology:
    """Whom the workers of a fleet may push to; the graph is that of all of them, whoever stops."""

    def __init__(self, topology: Topology, ids: Sequence[PeerId]) -> None:
        self.topology = topology
        self._period = topology.period
        self._ids = tuple(ids)
        self._index = {id: index for index, id in enumerate(self._ids)}
        # Without a period, no round comes again.
        keep = (lambda function: function) if self._period is None else cache
        self._neighbors, self._weights = keep(self._named), keep(self._row)

    def __call__(self, live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
        """Whom *peer* may push to in a round; those that have stopped are passed over later."""
        return self._neighbors(self._index[peer], round % self._period if self._period else round)

    def weights(self, live: Sequence[PeerId], peer: PeerId, round: int) -> Mapping[PeerId, float]:
        """Row of W: whom *peer* mixes from in a round, itself included, and how much."""
        return self._weights(self._index[peer], round % self._period if self._period else round)

    def _row(self, node: int, round: int) -> dict[PeerId, float]:
        matrix = self.topology.matrix(round)
        row = slice(matrix.indptr[node], matrix.indptr[node + 1])
        pairs = zip(matrix.indices[row], matrix.data[row], strict=True)
        return {self._ids[int(other)]: float(weight) for other, weight in sorted(pairs)}

    def _named(self, node: int, round: int) -> tuple[PeerId, ...]:
        return tuple([self._ids[other] for other in self.topology.neighbors(node, round)])


class LiveWorkerTopology:
    """Whom the workers of a fleet may push to, each by its own view of who lives, as live.

    Those whose views are equal share one graph.
    """

    def __init__(self, spec: str, seed: int, mixing: str | None = None) -> None:
        self._view_of = lru_cache(_VIEWS_KEPT)(
            lambda live: (live, LiveTopology(spec, seed, mixing))
        )
        self._last: dict[PeerId, tuple[Sequence[PeerId], tuple[PeerId, ...], LiveTopology]] = {}

    def __call__(self, live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
        """Whom *peer* may push to in a round."""
        known, view = self._view(live, peer)
        return view(known, peer, round)

    def weights(self, live: Sequence[PeerId], peer: PeerId, round: int) -> Mapping[PeerId, float]:
        """Row of W: whom *peer* mixes from in a round, itself included, and how much."""
        known, view = self._view(live, peer)
        return view.weights(known, peer, round)

    def _view(
        self, live: Sequence[PeerId], peer: PeerId
    ) -> tuple[tuple[PeerId, ...], LiveTopology]:
        last = self._last.get(peer)
        # A roster hands out the same tuple until it changes; a list may be changed in place.
        if last is not None and last[0] is live and isinstance(live, tuple):
            return last[1], last[2]
        found = self._view_of(tuple(live))
        self._last[peer] = live, *found
        return found


def machines_of(rule: Rule, topology: Topology, seed: int, ids: Sequence[PeerId]) -> Machines:
    """Which workers share a machine, for a rule that asks: those of one host of the topology.

    Returns:
        Names of their machines, 16 bytes each; nothing where all share one.
    """
    if topology.layout != "hosts" or not requirements_of(rule).by_machine:
        return {}
    names = sorted(ids)
    runs = over(topology.spec, seed, names).runs
    hosts = (host for host, size in enumerate(runs, 1) for _ in range(size))
    return {id: host.to_bytes(16, "big") for id, host in zip(names, hosts, strict=True)}


def require_machines(rule: Rule, topology: Topology) -> None:
    """Refuse a rule whose peers must share a machine on a topology of several hosts."""
    several = topology.layout == "hosts" and len(topology.runs) > 1
    if several and requirements_of(rule).one_machine:
        raise ConfigError(
            f"topology is {topology.spec!r}: rule {rule.name} needs all peers on one machine, "
            f"where they share memory, and these are {len(topology.runs)} hosts"
        )
