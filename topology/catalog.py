"""The catalog: every family by the name that people type."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from . import builders as strict
from . import fallbacks
from .exponentials import exponential, one_peer_exponential
from .family import Built, Family, Parameter
from .files import WEIGHTS
from .hosts import BETWEEN
from .lattices import complete, path, ring, star, tree
from .rounds import random_matching

__all__ = ["CATALOG", "FAMILIES"]


def _at_least(least: int) -> Any:
    return {"kind": int, "allowed": f"a whole number of at least {least}", "fits": _from(least)}


def _from(least: int) -> Any:
    return lambda value: value >= least


def _sizes(text: str) -> str:
    sizes = [int(part) for part in text.split("x")]
    if min(sizes) < 1:
        raise ValueError
    return "x".join(map(str, sizes))


def _links(text: str) -> str:
    pairs = [part.split("-") for part in text.split("x")]
    return "x".join(f"{int(a)}-{int(b)}" for a, b in pairs)


def _one_of(*names: str) -> Any:
    return {"kind": str, "allowed": " or ".join(names), "fits": lambda value: value in names}


def _rows_and_columns(least: int) -> tuple[Parameter, ...]:
    return tuple(
        Parameter(name=name, default_text="nearest to a square", **_at_least(least))
        for name in ("rows", "cols")
    )


_SHIFTS_LIVE = "m is at most n - 1; one peer more or less leaves most shifts as they are"
_M_SHIFTS = Parameter(name="m", default=2, **_at_least(1))
_S = Parameter(name="s", default=2, **_at_least(1))

CATALOG: Mapping[str, Family] = MappingProxyType(
    {
        "ring": Family(
            summary="a cycle: the next and the previous node",
            source="Lian et al., NeurIPS 2017",
            build=lambda site, _: Built(schedule=ring(site.n)),
            layout="circle",
        ),
        "path": Family(
            summary="a ring with one link cut",
            source="Xiao and Boyd, Systems & Control Letters 2004",
            build=lambda site, _: Built(schedule=path(site.n)),
            layout="line",
        ),
        "star": Family(
            summary="one node in the middle: what a parameter server looks like",
            source="Vogels et al., NeurIPS 2021 (RelaySGD)",
            build=lambda site, _: Built(schedule=star(site.n)),
            layout="star",
            fallback="any number of peers will do; the first id is the middle",
        ),
        "complete": Family(
            summary="everyone with everyone: exact after one round, n - 1 messages each",
            source="all-reduce as a graph",
            build=lambda site, _: Built(schedule=complete(site.n)),
            layout="circle",
        ),
        "grid": Family(
            summary="rows and columns without wrapping",
            source="Nedic, Olshevsky and Rabbat, Proceedings of the IEEE 2018",
            build=strict.build_grid,
            layout="grid",
            parameters=_rows_and_columns(1),
            size=strict.size_of_box,
            live=fallbacks.live_grid,
            fallback="rows of cols=, or of the power of 2 next to sqrt(n), which stays while peers "
            "come and go; the last row is shorter",
        ),
        "torus": Family(
            summary="rows and columns that close to rings",
            source="Vogels et al., NeurIPS 2022",
            build=strict.build_torus,
            layout="grid",
            parameters=_rows_and_columns(2),
            size=strict.size_of_box,
            live=fallbacks.live_torus,
            fallback="rows of cols=, or of the power of 2 next to sqrt(n), which stays while peers "
            "come and go: a torus where they fit n, else a cycle with chords as long as a row, "
            "of the same degree and about the same diameter",
        ),
        "hypercube": Family(
            summary="numbers that differ in one bit; n a power of 2",
            source="Nedic, Olshevsky and Rabbat, Proceedings of the IEEE 2018",
            build=strict.build_hypercube,
            layout="hypercube",
            live=fallbacks.live_hypercube,
            fallback="the incomplete hypercube (Katseff 1988): the next larger one without the "
            "nodes that are not there; undirected still, of degree and diameter at most "
            "ceil(log2 n)",
        ),
        "tree": Family(
            summary="the complete binary tree",
            source="Vogels et al., NeurIPS 2021 (RelaySGD)",
            build=lambda site, _: Built(schedule=tree(site.n)),
            layout="tree",
        ),
        "spanning-tree": Family(
            summary="a shallow tree inside another topology",
            source="Vogels et al., NeurIPS 2021 (RelaySGD)",
            build=strict.build_spanning_tree,
            layout="tree",
            parameters=(Parameter(name="of", kind=str, allowed="a spec, the last thing given"),),
            joins=("of",),
            fallback="a tree inside what the other topology falls back to",
        ),
        "exponential": Family(
            summary="node i pushes to i+1, i+2, i+4, ...: about log2(n) neighbors",
            source="Ying et al., NeurIPS 2021",
            build=lambda site, _: Built(schedule=exponential(site.n)),
            layout="circle",
        ),
        "one-peer-exponential": Family(
            summary="those one after another, one push each round; exact where n is a power of 2",
            source="Assran et al., ICML 2019; Ying et al., NeurIPS 2021",
            build=lambda site, _: Built(schedule=one_peer_exponential(site.n)),
            layout="circle",
        ),
        "p-peer-exponential": Family(
            summary="p pushes each round, powers of p+1 ahead; exact where n is a power of p+1",
            source="Takezawa et al., NeurIPS 2023, on exponential graphs of more peers",
            build=strict.build_p_peer,
            layout="circle",
            parameters=(Parameter(name="p", default=2, **_at_least(1)),),
            live=fallbacks.clipped(strict.build_p_peer, "p"),
            fallback="p is at most n - 1",
        ),
        "hypercube-matching": Family(
            summary="pairs along one dimension of a hypercube each round; n a power of 2",
            source="Shi et al., IEEE/ACM ToN 2016; Takezawa et al., NeurIPS 2023",
            build=strict.build_hypercube_matching,
            layout="hypercube",
            live=fallbacks.live_hypercube_matching,
            fallback="base-k:k=1, which is these matchings at powers of 2, and pairs that are "
            "exact for any other n",
        ),
        "base-k": Family(
            summary="exact after about 2 log_{k+1}(n) rounds for any n, with degree at most k",
            source="Takezawa et al., NeurIPS 2023",
            build=strict.build_base_k,
            layout="circle",
            parameters=(Parameter(name="k", default=1, **_at_least(1)),),
            live=fallbacks.clipped(strict.build_base_k, "k"),
            fallback="k is at most n - 1",
        ),
        "random-regular": Family(
            summary="d neighbors each, at random: an expander",
            source="Friedman, Memoirs of the AMS 2008",
            build=strict.build_random_regular,
            layout="spring",
            parameters=(Parameter(name="d", default=4, **_at_least(1)),),
            live=fallbacks.live_random_regular,
            fallback="d/2 random cycles in the order of hashed ids, at least one, and a matching "
            "for odd d (Law and Siu 2003): two peers have a neighbor less where cycles share a "
            "link, and one where the matching leaves it over",
        ),
        "erdos-renyi": Family(
            summary="each pair with probability p, drawn again until connected",
            source="Gilbert 1959; Erdos and Renyi 1960",
            build=strict.build_erdos_renyi,
            layout="spring",
            parameters=(
                Parameter(
                    name="p",
                    kind=float,
                    allowed="in (0, 1]",
                    fits=lambda value: 0 < float(value) <= 1,
                    default_text="2 ln(n)/n",
                ),
            ),
            live=fallbacks.live_erdos_renyi,
            fallback="a pair is linked by the hash of its ids, and a ring by ids keeps all "
            "connected",
        ),
        "small-world": Family(
            summary="a ring of k neighbors, each link rewired with probability p",
            source="Watts and Strogatz, Nature 1998",
            build=strict.build_small_world,
            layout="circle",
            parameters=(
                Parameter(
                    name="k",
                    kind=int,
                    allowed="an even number of at least 2",
                    fits=lambda value: int(value) >= 2 and int(value) % 2 == 0,
                    default=4,
                ),
                Parameter(
                    name="p",
                    kind=float,
                    allowed="in [0, 1]",
                    fits=lambda value: 0 <= float(value) <= 1,
                    default=0.1,
                ),
            ),
            live=fallbacks.live_small_world,
            fallback="links are rewired by the hash of ids; those to the nearest stay, so that "
            "all are connected",
        ),
        "scale-free": Family(
            summary="newcomers link to m earlier nodes, mostly to popular ones: hubs",
            source="Barabasi and Albert, Science 1999",
            build=strict.build_scale_free,
            layout="spring",
            parameters=(Parameter(name="m", default=2, **_at_least(1)),),
            live=fallbacks.live_scale_free,
            fallback="peers come in the order of their hash and choose earlier ones with the "
            "probability that the model has in the mean",
        ),
        "random-matching": Family(
            summary="new random pairs each round",
            source="Boyd et al., IEEE Transactions on Information Theory 2006",
            build=lambda site, _: Built(schedule=random_matching(site.n, site.seed)),
            layout="circle",
            fallback="with an odd number of peers one sits out, another one each round",
        ),
        "random-groups": Family(
            summary="new random groups of m each round, which average exactly",
            source="Ryabinin et al., NeurIPS 2021 (Moshpit)",
            build=strict.build_random_groups,
            layout="circle",
            parameters=(Parameter(name="m", default=4, **_at_least(2)),),
            live=fallbacks.clipped(strict.build_random_groups, "m", most_of_n=0),
            fallback="groups that differ by one peer at most",
        ),
        "epidemic": Family(
            summary="s random targets each round, everybody hears from s (EL-Oracle)",
            source="de Vos et al., NeurIPS 2023",
            build=strict.build_epidemic,
            layout="circle",
            parameters=(_S,),
            live=fallbacks.clipped(strict.build_epidemic, "s"),
            fallback="s is at most n - 1",
        ),
        "epidemic-local": Family(
            summary="s targets that each node draws alone; receivers average what came (EL-Local)",
            source="de Vos et al., NeurIPS 2023",
            build=strict.build_epidemic_local,
            layout="circle",
            parameters=(_S,),
            live=fallbacks.clipped(strict.build_epidemic_local, "s"),
            fallback="s is at most n - 1",
        ),
        "equi-static": Family(
            summary="m random shifts of a cycle, both ways (U-EquiStatic)",
            source="Song et al., NeurIPS 2022",
            build=strict.build_equi_static,
            layout="circle",
            parameters=(_M_SHIFTS,),
            live=fallbacks.clipped(strict.build_equi_static, "m"),
            fallback=_SHIFTS_LIVE,
        ),
        "d-equi-static": Family(
            summary="m random shifts of a cycle, one way (D-EquiStatic)",
            source="Song et al., NeurIPS 2022",
            build=strict.build_d_equi_static,
            layout="circle",
            parameters=(_M_SHIFTS,),
            live=fallbacks.clipped(strict.build_d_equi_static, "m"),
            fallback=_SHIFTS_LIVE,
        ),
        "equi-dyn": Family(
            summary="pairs along one of m shifts, drawn each round (OU-EquiDyn)",
            source="Song et al., NeurIPS 2022",
            build=strict.build_equi_dyn,
            layout="circle",
            parameters=(_M_SHIFTS,),
            live=fallbacks.clipped(strict.build_equi_dyn, "m"),
            fallback=_SHIFTS_LIVE,
        ),
        "od-equi-dyn": Family(
            summary="one push along one of m shifts, drawn each round (OD-EquiDyn)",
            source="Song et al., NeurIPS 2022",
            build=strict.build_od_equi_dyn,
            layout="circle",
            parameters=(_M_SHIFTS,),
            live=fallbacks.clipped(strict.build_od_equi_dyn, "m"),
            fallback=_SHIFTS_LIVE,
        ),
        "hosts": Family(
            summary="dense inside each host, sparse between hosts",
            source="Awan et al., PPoPP 2017 (S-Caffe), on exchange in hierarchies",
            build=strict.build_hosts,
            layout="hosts",
            parameters=(
                Parameter(
                    name="sizes",
                    kind=_sizes,
                    allowed="nodes of each host, as in 4x4x8",
                ),
                Parameter(name="between", default="ring", **_one_of(*BETWEEN)),
                Parameter(
                    name="links",
                    kind=_links,
                    allowed="pairs of hosts, as in 0-1x1-2",
                    default_text="those of between",
                ),
            ),
            size=strict.size_of_hosts,
            check=strict.check_hosts,
            live=fallbacks.live_hosts,
            fallback="hosts are runs of sorted ids and keep their proportions; an empty one is "
            "left out, listed links then become a ring, and hosts that cannot take turns are "
            "linked completely",
        ),
        "file": Family(
            summary="GraphML, GEXF, an edge list or node-link JSON; names are peers",
            source="networkx",
            build=strict.build_file,
            layout="spring",
            parameters=(
                Parameter(name="path", kind=str, allowed="a graph file"),
                Parameter(name="weights", default="none", **_one_of(*WEIGHTS)),
            ),
            size=strict.size_of_file,
            live=fallbacks.live_file,
            fallback="edges among those who live, weighed by degrees; parts that fall away, and "
            "peers that the file does not know, are joined in a ring through their first ids",
        ),
    }
)
"""Families by the name that people type."""

FAMILIES: Mapping[str, str] = MappingProxyType(
    {name: family.summary for name, family in CATALOG.items()}
)
"""One line about each family, by the name that people type."""
