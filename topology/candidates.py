"""Parameters worth trying for a family, given how many pushes a node may send in a round."""

from collections.abc import Callable, Iterable, Mapping
from math import log
from types import MappingProxyType

from .lattices import sides

__all__ = ["candidates"]

ALL_UP_TO = 12
"""Whole numbers that are all tried; above, each is a quarter larger than the one before."""

INSIDE = ("torus", "grid", "random-regular:d=3", "exponential")
"""Where a spanning tree is looked for."""

REWIRED = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Parts of a small world's links that are rewired."""

Choose = Callable[[int, int], Iterable[str]]
"""Parameters as a spec has them, for n nodes and a degree."""


def candidates(name: str, n: int, degree: int) -> tuple[str, ...]:
    """Specs of a family that may keep to a degree; some do not, and some do not fit n.

    Args:
        name: Of a family of the catalog.
        n: Number of nodes.
        degree: Pushes of a node in a round, at most.

    Returns:
        At least one spec, each once; the first is the plainest.

    >>> candidates("base-k", 64, 3)
    ('base-k:k=1', 'base-k:k=2', 'base-k:k=3')
    """
    choose = _CHOICES.get(name)
    if choose is None:
        return (name,)
    return tuple(dict.fromkeys(f"{name}:{given}" if given else name for given in choose(n, degree)))


def _counts(key: str, least: int = 1, more: int = 0) -> Choose:
    """A parameter that is a number of neighbors, up to the degree and *more*."""

    def choose(n: int, degree: int) -> Iterable[str]:
        most = min(degree + more, n - 1 + more)
        return [f"{key}={value}" for value in _some(least, max(least, most))]

    return choose


def _some(least: int, most: int) -> list[int]:
    values = list(range(least, min(most, ALL_UP_TO) + 1)) or [least]
    while values[-1] < most:
        values.append(min(most, values[-1] * 5 // 4))
    return values


def _boxes(n: int, degree: int) -> Iterable[str]:
    """The box nearest to a square, then all others."""
    widest = sides(n)[0]
    others = (rows for rows in range(2, widest) if n % rows == 0)
    return ["", *(f"rows={rows},cols={n // rows}" for rows in others)]


def _shifts(n: int, degree: int) -> Iterable[str]:
    """Of a pool that one is drawn from each round, which costs nobody a push."""
    powers = [2**power for power in range((n - 1).bit_length())]
    return [f"m={m}" for m in (*powers, n - 1) if m < n]


def _probabilities(n: int, degree: int) -> Iterable[str]:
    """The default, then sparser and denser ones that may still be connected."""
    threshold = log(n) / n
    means = (degree * part / 10 for part in range(4, 11))
    return ["", *(f"p={p:.4g}" for mean in means if threshold <= (p := mean / n) <= 1)]


def _rings(n: int, degree: int) -> Iterable[str]:
    neighbors = [2 * half for half in _some(1, max(1, min(degree, n - 1) // 2))]
    return [f"k={k},p={p:g}" for k in neighbors for p in REWIRED]


_CHOICES: Mapping[str, Choose] = MappingProxyType(
    {
        "grid": _boxes,
        "torus": _boxes,
        "spanning-tree": lambda n, degree: [f"of={inner}" for inner in INSIDE],
        "p-peer-exponential": _counts("p"),
        "base-k": _counts("k"),
        "random-regular": _counts("d"),
        "erdos-renyi": _probabilities,
        "small-world": _rings,
        "scale-free": _counts("m"),
        "random-groups": _counts("m", 2, more=1),
        "epidemic": _counts("s"),
        "epidemic-local": _counts("s"),
        "equi-static": _counts("m"),
        "d-equi-static": _counts("m"),
        "equi-dyn": _shifts,
        "od-equi-dyn": _shifts,
    }
)
