"""Topologies for tests: specs of every family with its options, and a digest of all."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.special import chdtrc

from rumor.topology import FAMILIES, Topology, over, parse

__all__ = [
    "BRIDGE",
    "DOUBLY",
    "FIXED",
    "LIVE",
    "OF_16",
    "RANDOM_ROUNDS",
    "STREETS",
    "dense",
    "digest",
    "ids",
    "is_connected",
    "is_uniform",
    "out_degrees",
    "product",
    "some_rounds",
]

GRAPHS = Path(__file__).with_name("graphs")
BRIDGE = f"file:path={GRAPHS / 'bridge.edgelist'}"
STREETS = f"file:path={GRAPHS / 'streets.json'}"

Case = tuple[str, int]

_SIZES: Mapping[str, tuple[int, ...]] = {
    "ring": (1, 2, 3, 12),
    "path": (1, 2, 3, 12),
    "star": (1, 2, 12),
    "complete": (1, 2, 12),
    "grid": (1, 12),
    "grid:rows=2": (10,),
    "grid:rows=3,cols=5": (15,),
    "torus": (4, 12),
    "torus:cols=2": (10,),
    "torus:rows=3,cols=5": (15,),
    "hypercube": (1, 2, 16),
    "moshpit": (1, 13),
    "moshpit:side=3,d=3": (20,),
    "moshpit:side=8": (3,),
    "tree": (1, 2, 12),
    "spanning-tree:of=torus": (12,),
    "spanning-tree:of=exponential": (13,),
    "exponential": (1, 2, 3, 13),
    "one-peer-exponential": (1, 2, 3, 13),
    "p-peer-exponential": (1, 9),
    "p-peer-exponential:p=3": (13,),
    "hypercube-matching": (1, 2, 16),
    "base-k": (1, 11),
    "base-k:k=2": (13,),
    "base-k:k=4": (24,),
    "random-regular": (1,),
    "random-regular:d=8": (12,),
    "random-regular:d=3": (8,),
    "erdos-renyi": (1, 12),
    "erdos-renyi:p=0.6": (10,),
    "small-world": (1, 12),
    "small-world:k=2,p=0.5": (10,),
    "scale-free": (1, 12),
    "scale-free:m=1": (10,),
    "random-matching": (1, 2, 12, 13),
    "random-groups": (1, 12),
    "random-groups:m=3": (13,),
    "epidemic": (1, 12),
    "epidemic:s=5": (13,),
    "epidemic-local": (1, 12),
    "epidemic-local:s=5": (13,),
    "equi-static": (1, 12),
    "equi-static:m=5": (13,),
    "d-equi-static": (1, 12),
    "d-equi-static:m=1": (13,),
    "equi-dyn": (1, 12),
    "equi-dyn:m=1": (13,),
    "od-equi-dyn": (1, 12),
    "od-equi-dyn:m=1": (13,),
    "hosts:sizes=2x3x5": (10,),
    "hosts:sizes=3x3x3,between=complete": (9,),
    "hosts:sizes=4,between=star": (4,),
    BRIDGE: (7,),
    STREETS: (4,),
}
"""Sizes to test each spec with."""

FIXED: tuple[Case, ...] = tuple((spec, n) for spec, sizes in _SIZES.items() for n in sizes)
"""Specs that cover the options of each family, each with every size to test."""

LIVE = tuple(
    dict.fromkeys(
        [spec for spec, _ in FIXED]
        + ["random-regular:d=1", "erdos-renyi:p=0.01", "small-world:k=6,p=1", "scale-free:m=5"]
        + ["hosts:sizes=8x1x1", "spanning-tree:of=hypercube"]
    )
)
"""Specs of all families, for any number of peers."""

RANDOM_ROUNDS = {
    "random-matching",
    "random-groups",
    "epidemic",
    "epidemic-local",
    "equi-dyn",
    "od-equi-dyn",
}
"""Families without a period."""

DOUBLY = set(FAMILIES) - {"epidemic-local"}
"""Families with doubly stochastic weights, except for a file with directed edges."""


_OF_16 = {"spanning-tree": "spanning-tree:of=torus", "hosts": "hosts:sizes=4x4x8"}
OF_16 = [_OF_16.get(name, name) for name in FAMILIES if name != "file"]
"""One spec of each family, for 16 nodes."""


def some_rounds(topology: Topology, at_random: int = 3) -> range:
    """All rounds of a period, or the first few random ones."""
    return range(at_random if topology.period is None else topology.period)


def dense(topology: Topology, round: int = 0) -> NDArray[np.float64]:
    """``W`` of a round, float64 ``(n, n)``."""
    matrix: NDArray[np.float64] = topology.matrix(round).toarray()
    return matrix


def product(topology: Topology, rounds: Iterable[int]) -> NDArray[np.float64]:
    """``W(last) ... W(first)``."""
    total: NDArray[np.float64] = np.eye(topology.n)
    for round in rounds:
        total = topology.matrix(round) @ total
    return total


def out_degrees(topology: Topology, round: int = 0) -> list[int]:
    """Number of push targets of each node."""
    return [len(topology.neighbors(node, round)) for node in range(topology.n)]


def is_connected(topology: Topology, at_random: int = 64) -> bool:
    """Return whether all nodes reach one another over a period, or over some random rounds."""
    together = csr_array((topology.n, topology.n))
    for round in some_rounds(topology, at_random):
        together = together + topology.matrix(round)
        parts, _ = connected_components(together, directed=True, connection="strong")
        if parts == 1:
            return True
    return False


def is_uniform(counts: Mapping[Any, int], kinds: int) -> bool:
    """Return whether a chi-square test passes at the level of one in a million."""
    total = sum(counts.values())
    expected = total / kinds
    missing = (kinds - len(counts)) * expected
    statistic = sum((count - expected) ** 2 / expected for count in counts.values()) + missing
    return len(counts) <= kinds and bool(chdtrc(kinds - 1, statistic) > 1e-6)


def ids(n: int, seed: int = 0) -> list[str]:
    """Return ascending peer ids that look like hashes."""
    digests = (hashlib.sha256(f"{seed} {number}".encode()) for number in range(n))
    return sorted(digest.hexdigest()[:12] for digest in digests)


def digest() -> str:
    """Digest of neighbors and weights of all families: strict and live, some seeds and rounds."""
    total = hashlib.sha256()
    for seed in (0, 2**64 - 1):
        some = [parse(spec, n, seed=seed) for spec, n in FIXED]
        some += [over(spec, seed, ids(n)) for spec in LIVE for n in (2, 7, 16)]
        for topology in some:
            total.update(topology.spec.encode())
            for round in some_rounds(topology):
                for node in range(topology.n):
                    total.update(repr(topology.neighbors(node, round)).encode())
                total.update(dense(topology, round).tobytes())
    return total.hexdigest()
