"""Edges that move when a peer joins or leaves: what churn costs a family."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import TopologyError
from ..hashing import generator, key
from ..live import over
from ..spec import read
from ..topology import Topology, parse

__all__ = ["Churn", "churn"]

Edges = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Churn:
    """Edges that move, averaged over trials and rounds.

    Edges are directed: a peer may push to another in a round. An edge has moved if it exists before
    or after the change, but not both, and both of its ends were present all the time: edges of the
    peer that joined or left are not counted, as they cannot stay.
    """

    edges: float
    """Edges of a round before anything changes."""

    moved_leave: float
    """Edges among the n - 1 others that move when one of n peers, chosen at random, leaves."""

    moved_join: float
    """Edges among the n peers that move when another one joins."""


def churn(spec: str, n: int, *, seed: int = 0, trials: int = 20, rounds: int = 4) -> Churn:
    """Measure how many edges of a live topology move when a peer leaves, and when one joins.

    Peer ids look like hashes, so a peer that joins may sort anywhere among the others; the peers of
    a file keep their names. Round r before the change is compared with round r after it.

    Args:
        spec: A topology spec.
        n: Peers before the change, at least 2.
        seed: Of the ids, the choice of who leaves, and the graphs.
        trials: Swarms to average over, at least 1; each has other ids and another graph.
        rounds: Rounds of each trial to average over, at least 1.

    Raises:
        TopologyError: *spec* is invalid or names a file that cannot be read, or a number is too
            small.
    """
    for name, value, least in (("n", n, 2), ("trials", trials, 1), ("rounds", rounds, 1)):
        if value < least:
            raise TopologyError(f"churn of {spec!r}: {name}={value}: it must be at least {least}")
    own = _own_names(spec, n)
    total = np.zeros(3)
    for trial in range(trials):
        total += _once(spec, own, n, key(seed, "churn", trial), rounds)
    edges, moved_leave, moved_join = (float(value) for value in total / (trials * rounds))
    return Churn(edges=edges, moved_leave=moved_leave, moved_join=moved_join)


def _once(spec: str, own: Sequence[str], n: int, seed: int, rounds: int) -> NDArray[np.float64]:
    """Sums over rounds of one swarm: edges, those moved by a leave, those moved by a join."""
    rng = generator(seed, "churn")
    ids = [f"{word:016x}" for word in rng.integers(2**64, size=n + 1, dtype=np.uint64)]
    # The newcomer comes last; any of the others leaves.
    everybody = [*own, ids[n]] if own else ids
    gone = int(rng.integers(n))
    swarms = []
    for present in (range(n), [*range(gone), *range(gone + 1, n)], range(n + 1)):
        number = np.array(sorted(present, key=everybody.__getitem__), np.int64)
        swarms.append((over(spec, seed, [everybody[peer] for peer in number]), number))
    total = np.zeros(3)
    for round in range(rounds):
        before, left, joined = (_links(*swarm, n + 1, round) for swarm in swarms)
        moved = (
            np.setxor1d(_without(gone, before, n), left),
            np.setxor1d(before, _without(n, joined, n)),
        )
        total += [len(before), *map(len, moved)]
    return total


def _without(peer: int, links: Edges, n: int) -> Edges:
    others: Edges = links[(links // (n + 1) != peer) & (links % (n + 1) != peer)]
    return others


def _links(topology: Topology, number: Edges, count: int, round: int) -> Edges:
    """Each edge of a round once, as sender * *count* + receiver, numbers for nodes."""
    matrix = topology.matrix(round).tocoo()
    receivers, senders = (number[nodes] for nodes in matrix.coords)
    pushes = senders != receivers
    links: Edges = np.unique(senders[pushes] * count + receivers[pushes])
    return links


def _own_names(spec: str, n: int) -> tuple[str, ...]:
    """Names of a file's peers, where there are n of them."""
    asked = read(spec)
    return parse(spec, n).names if asked.size == n else ()
