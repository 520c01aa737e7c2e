"""Graphs on which nodes find their neighbors by arithmetic: rings, grids, hypercubes, Moshpit's.

If n does not fit, a live view builds the nearest graph that exists for every n.
"""

from collections.abc import Iterator, Mapping
from functools import reduce
from math import isqrt, prod
from operator import add
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...gossip.specs.parameter import Parameter
from ..errors import TopologyError
from ..hashing import key, shuffled
from ..schedules.cayley import Cayley, Step, circulant
from ..schedules.mixing import undirected
from ..schedules.schedule import Fixed, Schedule
from .family import Family, Site, Values, whole

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "FAMILIES",
    "complete",
    "dimensions",
    "grid",
    "hypercube",
    "incomplete_hypercube",
    "moshpit",
    "path",
    "ring",
    "star",
    "torus",
    "twisted_torus",
]


Nodes = NDArray[np.int64]

_DRAWS_MAX = 100
_CELLS_MAX = 2**20


def ring(n: int) -> Cayley:
    """A cycle: the next node and the previous one, which are the same when n = 2."""
    return circulant(n, [_both_ways(1, n)])


def complete(n: int) -> Cayley:
    """Every node mixes with every other: the exact average after one round."""
    return circulant(n, [range(1, n)])


def path(n: int) -> Fixed:
    """A ring with one edge removed."""
    return undirected(n, np.arange(n - 1), np.arange(1, n))


def star(n: int) -> Fixed:
    """Node 0 at the center, linked to all others."""
    return undirected(n, np.zeros(n - 1, np.int64), np.arange(1, n))


def grid(n: int, columns: int) -> Fixed:
    """Rows of *columns* nodes; the last row may be shorter."""
    nodes = np.arange(n)
    right = nodes[(nodes + 1 < n) & ((nodes + 1) % columns != 0)]
    below = nodes[nodes + columns < n]
    return undirected(
        n, np.concatenate([right, below]), np.concatenate([right + 1, below + columns])
    )


def torus(rows: int, columns: int) -> Cayley:
    """A grid whose rows and columns wrap around."""
    axes = ((1, columns), (0, rows))
    ways = [(shift, axis) for axis, size in axes for shift in _both_ways(1, size)]
    steps = tuple(Step(shift, 1.0 / (len(ways) + 1), axis) for shift, axis in ways)
    return Cayley(shape=(rows, columns), rounds=(steps,), directed=False)


def twisted_torus(n: int, columns: int) -> Cayley:
    """A torus for any n: a cycle with chords to the nodes *columns* places away on either side."""
    shifts = dict.fromkeys([*_both_ways(1, n), *_both_ways(columns, n)])
    return circulant(n, [tuple(shifts)])


def hypercube(dimensions: int) -> Cayley:
    """Nodes are neighbors if their numbers differ in exactly one bit."""
    share = 1.0 / (dimensions + 1)
    # The last axis is the lowest bit.
    steps = tuple(Step(1, share, axis) for axis in reversed(range(dimensions)))
    return Cayley(shape=(2,) * dimensions, rounds=(steps,), directed=False)


def incomplete_hypercube(n: int) -> Fixed:
    """The subgraph of a hypercube on the nodes 0 to n-1: connected for any n."""
    nodes, bits = np.arange(n), 2 ** np.arange((n - 1).bit_length())
    low, high = np.repeat(nodes, len(bits)), (nodes[:, None] ^ bits).ravel()
    keep = (low < high) & (high < n)
    return undirected(n, low[keep], high[keep])


def moshpit(n: int, side: int, dimensions: int, seed: int) -> Fixed:
    """Place nodes on cells of a box; the nodes of a line average, along one axis after another.

    With every cell occupied, the average is exact after as many rounds as there are axes. With more
    cells than nodes, the occupied cells are drawn at random, again until lines connect all.

    Source: Ryabinin, Gorbunov, Plokhotnyuk and Pekhimenko, NeurIPS 2021, algorithm 1, and the
    averaging experiment in their repository.
    """
    from scipy.sparse.csgraph import connected_components

    for draw in range(_DRAWS_MAX):
        cells = shuffled(key(seed, "moshpit", draw), side**dimensions)[:n]
        rounds = tuple(map(_averages, _lines(cells, side, dimensions)))
        if connected_components(reduce(add, rounds), directed=False, return_labels=False) == 1:
            return Fixed(rounds=rounds)
    # With very many cells a draw would hardly ever succeed, and the first cells in order do.
    return Fixed(rounds=tuple(map(_averages, _lines(np.arange(n), side, dimensions))))


def _lines(cells: Nodes, side: int, dimensions: int) -> Iterator[Nodes]:
    """For each axis, the number of the line along it that a node lies on, int64 ``(n_nodes,)``."""
    for axis in range(dimensions):
        step = side**axis
        yield np.unique(cells - cells // step % side * step, return_inverse=True)[1]


def _averages(group_of: Nodes) -> "csr_array":
    """Return ``W`` of groups that average, float64 ``(n, n)``."""
    from scipy.sparse import csr_array, diags_array

    n = len(group_of)
    belongs = csr_array((np.ones(n), (np.arange(n), group_of)))
    return (belongs @ diags_array(1.0 / np.bincount(group_of)) @ belongs.T).tocsr()


def dimensions(n: int) -> int:
    """Return the dimensions of a hypercube; raise TopologyError if n is not a power of 2."""
    # numpy's integers have no bit_length.
    found = int(n).bit_length() - 1
    if n != 2**found:
        raise TopologyError(
            f"n must be a power of 2: n={2**found} or n={2 ** (found + 1)} would do"
        )
    return found


def _both_ways(shift: int, size: int) -> tuple[int, ...]:
    return tuple(way for way in dict.fromkeys((shift % size, -shift % size)) if way)


def _sides(n: int) -> tuple[int, int]:
    """Return rows and columns of the rectangle nearest to a square, rows <= columns."""
    rows = isqrt(n)
    while n % rows:
        rows -= 1
    return rows, n // rows


def _live_torus(site: Site, values: Values) -> Schedule:
    columns = _columns(site.n, values)
    rows = site.n // columns
    fits = rows * columns == site.n and min(rows, columns) >= 2
    return torus(rows, columns) if fits else twisted_torus(site.n, columns)


def _live_hypercube(site: Site, values: Values) -> Schedule:
    if site.n & (site.n - 1):
        return incomplete_hypercube(site.n)
    return hypercube(dimensions(site.n))


def _box(n: int, values: Values, least: int) -> tuple[int, int]:
    if not values:
        rows, columns = _sides(n)
        if rows < least or (rows == 1 and n > 1):
            near = _composites_near(n)
            raise TopologyError(f"n must be rows x cols, both at least 2: {near} would do")
        return rows, columns
    # One of the two parameters may be left out.
    cells = prod(int(value) for value in values.values())
    if n % cells or (len(values) == 2 and n != cells):
        given = ", ".join(f"{name}={value}" for name, value in values.items())
        raise TopologyError(
            f"{given}: n must be {'' if len(values) == 2 else 'a multiple of '}{cells}"
        )
    rows = int(values.get("rows", n // cells))
    if min(rows, n // rows) < least:
        raise TopologyError(f"rows={rows}, cols={n // rows}: both must be at least 2")
    return rows, n // rows


def _size_of_box(values: Values) -> int | None:
    if "rows" in values and "cols" in values:
        return int(values["rows"]) * int(values["cols"])
    return None


def _columns(n: int, values: Values) -> int:
    if "cols" in values:
        return whole(values, "cols")
    if "rows" in values:
        return -(-n // whole(values, "rows"))
    # Sides that fit n exactly would change at n + 1, and all edges with them. The power of 2
    # nearest to sqrt(n) stays while the swarm grows or shrinks by half.
    return 1 << n.bit_length() // 2


def _composites_near(n: int) -> str:
    candidates = (m for distance in range(1, n + 4) for m in (n - distance, n + distance))
    near = [m for m in candidates if m >= 4 and min(_sides(m)) >= 2][:2]
    return " or ".join(f"n={m}" for m in sorted(near))


def _build_moshpit(site: Site, values: Values) -> Schedule:
    side = whole(values, "side") if "side" in values else _least_side(site.n, values)
    if side ** whole(values, "d") < site.n:
        raise TopologyError(
            f"side={side}, d={values['d']}: {side ** whole(values, 'd')} cells are too few; "
            f"side={_least_side(site.n, values)} would do"
        )
    return moshpit(site.n, side, whole(values, "d"), site.seed)


def _live_moshpit(site: Site, values: Values) -> Schedule:
    least = _least_side(site.n, values)
    return _build_moshpit(site, {**values, "side": max(least, int(values.get("side", least)))})


def _least_side(n: int, values: Values) -> int:
    side = 2
    while side ** whole(values, "d") < n:
        side += 1
    return side


def _check_moshpit(values: Values) -> None:
    cells = int(values.get("side", 2)) ** int(values.get("d", 2))
    if cells > _CELLS_MAX:
        raise TopologyError(
            f"{', '.join(f'{name}={value}' for name, value in values.items())}: these are more "
            f"than {_CELLS_MAX:,} cells"
        )


def _rows_and_columns(low: int) -> tuple[Parameter, ...]:
    return tuple(
        Parameter(name=name, kind=int, low=low, otherwise="nearest to a square")
        for name in ("rows", "cols")
    )


_ROWS = "rows of cols=, or of the power of 2 next to sqrt(n), which stays while peers come and go"

FAMILIES: Mapping[str, Family] = {
    "ring": Family(
        summary="a cycle: the next and the previous node",
        source="Lian et al., NeurIPS 2017",
        build=lambda site, _: ring(site.n),
        layout="circle",
    ),
    "path": Family(
        summary="a ring with one link cut",
        source="Xiao and Boyd, Systems & Control Letters 2004",
        build=lambda site, _: path(site.n),
        layout="circle",
    ),
    "star": Family(
        summary="one node in the middle: what a parameter server looks like",
        source="Vogels et al., NeurIPS 2021 (RelaySGD)",
        build=lambda site, _: star(site.n),
        layout="spring",
        fallback="any number of peers will do; the first id is the middle",
    ),
    "complete": Family(
        summary="everyone with everyone: exact after one round, n - 1 messages each",
        source="all-reduce as a graph",
        build=lambda site, _: complete(site.n),
        layout="circle",
    ),
    "grid": Family(
        summary="rows and columns without wrapping",
        source="Nedic, Olshevsky and Rabbat, Proceedings of the IEEE 2018",
        build=lambda site, values: grid(site.n, _box(site.n, values, least=1)[1]),
        layout="spring",
        parameters=_rows_and_columns(1),
        size=_size_of_box,
        live=lambda site, values: grid(site.n, _columns(site.n, values)),
        fallback=f"{_ROWS}; the last row is shorter",
    ),
    "torus": Family(
        summary="rows and columns that wrap around",
        source="Vogels et al., NeurIPS 2022",
        build=lambda site, values: torus(*_box(site.n, values, least=2)),
        layout="spring",
        parameters=_rows_and_columns(2),
        size=_size_of_box,
        live=_live_torus,
        fallback=f"{_ROWS}: a torus where they fit n, else a cycle with chords as long as a row, "
        "of the same degree and about the same diameter",
    ),
    "hypercube": Family(
        summary="numbers that differ in one bit; n a power of 2",
        source="Nedic, Olshevsky and Rabbat, Proceedings of the IEEE 2018",
        build=lambda site, _: hypercube(dimensions(site.n)),
        layout="circle",
        live=_live_hypercube,
        fallback="the incomplete hypercube (Katseff 1988): the next larger one without the nodes "
        "that are not there; undirected still, of degree and diameter at most ceil(log2 n)",
    ),
    "moshpit": Family(
        summary="cells of a box; lines along one axis after another average exactly",
        source="Ryabinin et al., NeurIPS 2021 (Moshpit)",
        build=_build_moshpit,
        layout="circle",
        parameters=(
            Parameter(name="side", kind=int, low=2, otherwise="the least that holds all"),
            Parameter(name="d", kind=int, low=1, default=2),
        ),
        live=_live_moshpit,
        fallback="any number of peers will do; side grows where cells are too few",
        check=_check_moshpit,
    ),
}
