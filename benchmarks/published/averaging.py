"""Published figures of averaging alone: Moshpit's table, base-(k+1) graphs, EquiTopo's figure."""

from math import ceil, log
from statistics import mean, stdev
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...gossip import stream
from ...sim import consensus, simulate
from ...topology import Topology, parse
from ..results import Result, Row

__all__ = ["reproduce_base_k", "reproduce_equitopo", "reproduce_moshpit"]

Array = NDArray[np.float64]

_PEERS: Final = 512
_GROUP: Final = 32
_ROUNDS_MAX: Final = 50
_SEEDS: Final = 20

_GRAPHS: Final = {
    "all-reduce": "complete",
    "random groups of 32": f"random-groups:m={_GROUP}",
    "grid of 32 x 32": f"moshpit:side={_GROUP},d=2",
}
"""What peers average over in a round, by way."""

_MOSHPIT: Final[dict[tuple[str, float], tuple[float, float | None]]] = {
    ("all-reduce", 0.0): (1.0, 1.0),
    ("all-reduce", 0.01): (41.7, None),
    ("random groups of 32", 0.0): (6.1, 3.0),
    ("random groups of 32", 0.01): (6.6, 3.0),
    ("grid of 32 x 32", 0.0): (8.2, 3.6),
    ("grid of 32 x 32", 0.01): (8.8, 3.9),
}
"""Rounds until the variance is below 1e-9, and below 1e-4, by way and probability of failure."""


def reproduce_moshpit(*, quick: bool = False) -> Result:
    """Rounds of averaging among 512 peers, some of whom fail.

    As in the authors' code, those who fail in a round sit it out, and the rest of their group
    averages; an all-reduce comes to nothing where anybody fails. Theirs is a grid of 1,024 cells,
    of which 512 drawn ones are taken; here each seed draws anew, there one draw serves all.

    Args:
        quick: A quarter of the seeds.

    Source: Ryabinin et al., NeurIPS 2021, figure 2 and the code behind it.
    """
    seeds = range(_SEEDS // 4 if quick else _SEEDS)
    rows = []
    for (way, p), published in _MOSHPIT.items():
        for below, figure in zip((1e-9, 1e-4), published, strict=True):
            if figure is None:
                continue
            found = [_rounds(way, p, below, seed) for seed in seeds]
            spread = f"{len(seeds)} seeds, standard deviation {stdev(found):.2g}"
            name = f"{way}, failures {p:g}, variance {below:g}"
            rows.append(
                Row(name=name, ours=mean(found), reference=figure, unit="rounds", note=spread)
            )
    return Result(
        name="moshpit",
        title=f"Averaging among {_PEERS} peers: rounds until the variance is as small, at most "
        f"{_ROUNDS_MAX}",
        columns=("way", "measured", "published", "ratio", "unit", "note"),
        rows=(*rows, *(_by_protocol(way) for way in _GRAPHS if way != "all-reduce")),
    )


def _rounds(way: str, p: float, below: float, seed: int) -> int:
    rng = stream(seed, "moshpit", f"{way} {p}")
    values = rng.standard_normal(_PEERS)
    groups = None if way == "all-reduce" else parse(_GRAPHS[way], _PEERS, seed=seed)
    for number in range(_ROUNDS_MAX):
        if np.var(values) < below:
            return number
        takes_part = rng.random(_PEERS) >= p
        if groups is None:
            values = np.full(_PEERS, values.mean()) if takes_part.all() else values
            continue
        matrix = groups.matrix(number)
        shares = matrix @ takes_part.astype(np.float64)
        averages = matrix @ (values * takes_part) / np.where(takes_part, shares, 1)
        values = np.where(takes_part, averages, values)
    return _ROUNDS_MAX


def _by_protocol(way: str) -> Row:
    """The row without failures, by the rule in the simulator."""
    run = simulate(
        task=consensus(dim=1),
        rule="dpsgd",
        topology=_GRAPHS[way],
        workers=_PEERS,
        steps=20,
        eval_every=1,
        network="ideal",
    )
    variances = run.series["disagreement"] / _PEERS
    rounds = run.series["steps"]
    found = float(rounds[np.flatnonzero(variances < 1e-9)[0]])
    name = f"{way}, by dpsgd, variance 1e-09"
    published = _MOSHPIT[way, 0.0][0]
    return Row(
        name=name, ours=found, reference=published, unit="rounds", note="1 seed, whole protocol"
    )


_BASE_K: Final = ((25, 1), (25, 2), (48, 1), (48, 3), (100, 1), (100, 2), (100, 4))


def reproduce_base_k(*, quick: bool = False) -> Result:
    """Rounds after which base-(k+1) graphs have averaged exactly.

    Args:
        quick: Makes no difference: it takes a second.

    Source: Takezawa et al., NeurIPS 2023, theorem 1: at most 2 log_{k+1}(n) + 2 rounds.
    """
    rows = []
    for n, k in _BASE_K:
        graph = parse(f"base-k:k={k}", n)
        rounds, left = _exact_after(graph)
        bound = 2 * log(n) / log(k + 1) + 2
        note = f"largest degree {_degree(graph, rounds)}; {left:.1e} of a unit is left"
        name = f"n {n}, k {k}"
        rows.append(Row(name=name, ours=rounds, reference=bound, unit="rounds", note=note))
    return Result(
        name="base-k",
        title="Base-(k+1) graphs: rounds until all have the exact average",
        columns=("graph", "measured", "published bound", "ratio", "unit", "note"),
        rows=tuple(rows),
    )


def _exact_after(graph: Topology) -> tuple[int, float]:
    """Rounds until the product of all matrices is 1/n everywhere, and by how much it differs."""
    product = np.eye(graph.n)
    for number in range(10 * ceil(log(graph.n, 2))):
        product = graph.matrix(number) @ product
        left = float(np.abs(product - 1 / graph.n).max())
        if left < 1e-12:
            return number + 1, left
    return 0, left


def _degree(graph: Topology, rounds: int) -> int:
    return max(
        len(graph.neighbors(node, number)) for node in range(graph.n) for number in range(rounds)
    )


_EQUI_ETA: Final = 0.5
_EQUI_ROUNDS: Final = 15


def reproduce_equitopo(*, quick: bool = False) -> Result:
    """How fast the error of an average shrinks on EquiTopo graphs as they grow.

    Their figure says that the error after as many rounds hardly depends on n, where each node has
    M = 5 ln n shifts. The published curve of 300 nodes is the reference of all: what is compared is
    the mean factor by which a round shrinks the error.

    Args:
        quick: Up to 2,000 nodes.

    Source: Song et al., NeurIPS 2022, section 6.
    """
    sizes = (300, 1000, 2000) if quick else (300, 1000, 2000, 3000, 4000, 5000)
    rows = []
    for family in ("d-equi-static", "equi-static"):
        first = 0.0
        for n in sizes:
            shifts = round(5 * log(n))
            factor = _factor(parse(f"{family}:m={shifts}", n), stream(n, family, "values"))
            first = first or factor
            name = f"{family}, n {n:,}"
            rows.append(Row(name=name, ours=factor, reference=first, unit="", note=f"M {shifts}"))
    return Result(
        name="equitopo",
        title="EquiTopo, M = 5 ln n: the mean factor by which a round shrinks the error",
        columns=("graph", "measured", "measured at 300", "ratio", "unit", "note"),
        rows=tuple(rows),
    )


def _factor(graph: Topology, rng: np.random.Generator) -> float:
    values = rng.standard_normal(graph.n)
    values -= values.mean()
    before = np.linalg.norm(values)
    matrix = graph.matrix()
    for _ in range(_EQUI_ROUNDS):
        values = matrix @ values
        values -= values.mean()
    return float((np.linalg.norm(values) / before) ** (1 / _EQUI_ROUNDS))
