"""Two papers on graphs: base-(k+1) graphs average exactly, EquiTopo's as fast at any size.

Sources: Takezawa et al., NeurIPS 2023, theorem 1; Song et al., NeurIPS 2022, section 6.
"""

from collections.abc import Iterator
from math import log

import numpy as np
from table import show

from rumor.gossip.types import stream
from rumor.topology import Topology, parse

BASE_K = ((25, 1), (25, 2), (48, 1), (48, 3), (100, 1), (100, 2), (100, 4))
SIZES = (300, 1000, 2000, 3000, 4000, 5000)
ROUNDS = 15


def base_k() -> Iterator[tuple[str, float, float, str]]:
    """Rounds until the product of all matrices is 1/n everywhere, next to the theorem's bound."""
    for n, k in BASE_K:
        graph = parse(f"base-k:k={k}", n)
        product, rounds, left = np.eye(n), 0, 1.0
        while left > 1e-12:
            product = graph.matrix(rounds) @ product
            left = float(np.abs(product - 1 / n).max())
            rounds += 1
        degree = max(len(graph.neighbors(i, round)) for i in range(n) for round in range(rounds))
        note = f"largest degree {degree}; {left:.1e} of a unit is left"
        yield f"n {n}, k {k}", 2 * log(n) / log(k + 1) + 2, rounds, note


def equitopo() -> Iterator[tuple[str, float, float, str]]:
    """The mean factor by which a round shrinks the error of an average, with M = 5 ln n shifts."""
    for family in ("d-equi-static", "equi-static"):
        first = 0.0
        for n in SIZES:
            shifts = round(5 * log(n))
            found = factor(parse(f"{family}:m={shifts}", n), stream(n, family, "values"))
            first = first or found
            yield f"{family}, n {n:,}", first, found, f"M {shifts}"


def factor(graph: Topology, rng: np.random.Generator) -> float:
    """Of a vector whose mean is zero, over some rounds."""
    values = rng.standard_normal(graph.n)
    values -= values.mean()
    before, matrix = np.linalg.norm(values), graph.matrix()
    for _ in range(ROUNDS):
        values = matrix @ values
        values -= values.mean()
    return float((np.linalg.norm(values) / before) ** (1 / ROUNDS))


if __name__ == "__main__":
    title = "Base-(k+1) graphs: rounds until all have the exact average"
    show("base-k", title, ("graph", "published bound", "measured"), base_k())
    title = "EquiTopo, M = 5 ln n: the mean factor by which a round shrinks the error"
    show("equitopo", title, ("graph", "measured at 300", "measured"), equitopo())
