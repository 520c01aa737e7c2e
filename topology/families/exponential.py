"""Exponential graphs: pushes to powers of two (or p + 1) ahead, all at once or one by one."""

from collections.abc import Mapping

from ..schedules.cayley import Cayley, Step, circulant
from ..schedules.schedule import Schedule
from .base_k import base_k
from .family import Family, Site, Values, count, whole
from .lattices import dimensions

__all__ = [
    "FAMILIES",
    "exponential",
    "hypercube_matching",
    "one_peer_exponential",
    "p_peer_exponential",
]


def exponential(n: int) -> Cayley:
    """The nodes 1, 2, 4, ... places ahead on a cycle: ceil(log2 n) of them, nearest first."""
    return circulant(n, [_powers(n, 2)])


def one_peer_exponential(n: int) -> Cayley:
    """The pushes of the exponential graph in turn, one each round; a node keeps half."""
    return p_peer_exponential(n, 1)


def p_peer_exponential(n: int, p: int) -> Cayley:
    """In round t, push even shares to the nodes j (p+1)^t places ahead, j = 1..p."""
    rounds = [
        [shift for j in range(1, p + 1) if (shift := j * power) < n] for power in _powers(n, p + 1)
    ]
    return circulant(n, rounds or [[]])


def hypercube_matching(count: int) -> Cayley:
    """Node i pairs up with i XOR 2^t in round t: exact after *count* rounds, one per dimension."""
    axes = reversed(range(count))
    rounds = tuple((Step(1, 0.5, axis),) for axis in axes)
    return Cayley(shape=(2,) * count, rounds=rounds or ((),), directed=False)


def _powers(n: int, base: int) -> list[int]:
    powers, power = [], 1
    while power < n:
        powers.append(power)
        power *= base
    return powers


def _live_hypercube_matching(site: Site, values: Values) -> Schedule:
    # The Base-2 graph has pairs only, too, and is exact for any n.
    if site.n & (site.n - 1):
        return base_k(site.n, 1)
    return hypercube_matching(dimensions(site.n))


FAMILIES: Mapping[str, Family] = {
    "exponential": Family(
        summary="node i pushes to i+1, i+2, i+4, ...: about log2(n) neighbors",
        source="Ying et al., NeurIPS 2021",
        build=lambda site, _: exponential(site.n),
        layout="circle",
    ),
    "one-peer-exponential": Family(
        summary="those one after another, one push each round; exact where n is a power of 2",
        source="Assran et al., ICML 2019; Ying et al., NeurIPS 2021",
        build=lambda site, _: one_peer_exponential(site.n),
        layout="circle",
    ),
    "p-peer-exponential": Family(
        summary="p pushes each round, powers of p+1 ahead; exact where n is a power of p+1",
        source="Takezawa et al., NeurIPS 2023, on exponential graphs of more peers",
        build=lambda site, values: p_peer_exponential(site.n, whole(values, "p")),
        layout="circle",
        parameters=(count("p", 2),),
        limits={"p": -1},
        fallback="p is at most n - 1",
    ),
    "hypercube-matching": Family(
        summary="pairs along one dimension of a hypercube each round; n a power of 2",
        source="Shi et al., IEEE/ACM ToN 2016; Takezawa et al., NeurIPS 2023",
        build=lambda site, _: hypercube_matching(dimensions(site.n)),
        layout="circle",
        live=_live_hypercube_matching,
        fallback="base-k:k=1, which is these matchings at powers of 2, and pairs that are exact "
        "for any other n",
    ),
}
