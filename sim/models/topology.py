"""A topology in the form that the protocol uses: names in, names out, each answer cached."""

from collections.abc import Mapping, Sequence
from functools import cache

from ...gossip import ConfigError, Rule
from ...gossip.protocol.rule import requirements_of
from ...gossip.types import PeerId
from ...topology import Topology, over

__all__ = ["VIEWS_KEPT", "WorkerTopology", "machines_of", "require_machines"]

VIEWS_KEPT = 256
"""Views of a fleet's workers whose graph is kept: while news spread, they differ."""


class WorkerTopology:
    """Push targets of a fleet's workers; the graph is that of all of them, even after some stop."""

    def __init__(self, topology: Topology, ids: Sequence[PeerId]) -> None:
        self.topology = topology
        self._period = topology.period
        self._ids = tuple(ids)
        self._index = {id: index for index, id in enumerate(self._ids)}
        # Without a period, no round repeats.
        keep = (lambda function: function) if self._period is None else cache
        self._neighbors, self._weights = keep(self._named), keep(self._row)

    def __call__(self, live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
        """Return the push targets of *peer* in a round; stopped ones are skipped later."""
        return self._neighbors(self._index[peer], round % self._period if self._period else round)

    def weights(self, live: Sequence[PeerId], peer: PeerId, round: int) -> Mapping[PeerId, float]:
        """Return *peer*'s row of W in a round: weights by peer, itself included."""
        return self._weights(self._index[peer], round % self._period if self._period else round)

    def _row(self, node: int, round: int) -> dict[PeerId, float]:
        matrix = self.topology.matrix(round)
        row = slice(matrix.indptr[node], matrix.indptr[node + 1])
        pairs = zip(matrix.indices[row], matrix.data[row], strict=True)
        return {self._ids[int(other)]: float(weight) for other, weight in sorted(pairs)}

    def _named(self, node: int, round: int) -> tuple[PeerId, ...]:
        return tuple([self._ids[other] for other in self.topology.neighbors(node, round)])


def machines_of(
    rule: Rule, topology: Topology, seed: int, ids: Sequence[PeerId]
) -> Mapping[PeerId, bytes]:
    """Return the names of workers' machines, for a rule that uses them; empty if all share one."""
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
