"""The Base-(k+1) graph: the exact average in few rounds, for any n, with degree at most k.

Source: Takezawa, Sato, Bao, Niwa and Yamada, NeurIPS 2023, algorithms 1 to 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..schedules.schedule import Fixed
from .family import Family, count, whole

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["FAMILIES", "base_k"]

Nodes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Links:
    """Edges of one round: pairs of nodes, and the weight each gives the other."""

    left: Nodes
    right: Nodes
    weights: NDArray[np.float64]


Round = list[_Links]


def base_k(n: int, k: int) -> Fixed:
    """Build the shorter one of algorithms 2 and 3: rounds of degree at most k with product J."""
    nodes = np.arange(n)
    rounds = min(_simple(nodes, k), _over_groups(nodes, k), key=len)
    return Fixed(rounds=tuple(_matrix(n, links) for links in rounds or [[]]))


def _hyper_hypercube(nodes: Nodes, k: int) -> list[Round]:
    """Algorithm 1: groups along each digit of a mixed radix average exactly."""
    sizes = _factors(len(nodes), k)
    assert sizes is not None, "callers pass only numbers without a prime factor above k + 1"
    box = nodes.reshape(sizes)
    rounds: list[Round] = []
    for axis, size in enumerate(sizes):
        seats = np.moveaxis(box, axis, 0).reshape(size, -1)
        low, high = np.triu_indices(size, 1)
        rounds.append([_even(seats[low].ravel(), seats[high].ravel(), 1.0 / size)])
    return rounds


def _simple(nodes: Nodes, k: int) -> list[Round]:
    """Algorithm 2: blocks by the digits of n, joined one after another."""
    if _factors(len(nodes), k) is not None:
        return _hyper_hypercube(nodes, k)
    blocks, digits = _blocks(nodes, k)
    first = [_hyper_hypercube(block, k) for block in blocks]
    length = len(first[0])
    # Each part of the first block, the largest, averages again after the round of handing over.
    parts = [block.reshape(digit, -1) for block, digit in zip(blocks, digits, strict=True)]
    last = [_alike(part, _hyper_hypercube(np.arange(part.shape[1]), k)) for part in parts]
    rounds: list[Round] = [[] for _ in range(length + 1 + len(last[0]))]
    _lay(rounds, 0, first)
    # The last block has the average once all others have handed it over.
    for index in range(len(blocks) - 1):
        rest = np.concatenate(blocks[index + 1 :])
        rounds[length + index].append(_hand_over(parts[index], rest))
        _lay(rounds, length + index + 1, [last[index]])
    return rounds


def _over_groups(nodes: Nodes, k: int) -> list[Round]:
    """Algorithm 3: as many groups as n's smooth part average internally, then across groups."""
    groups = nodes.reshape(_smooth_part(len(nodes), k), -1)
    inside = _simple(np.arange(groups.shape[1]), k)
    across = _hyper_hypercube(np.arange(groups.shape[0]), k)
    return _alike(groups, inside) + _alike(groups.T, across)


def _alike(groups: Nodes, schedule: list[Round]) -> list[Round]:
    """Return a schedule for the nodes 0, 1, 2, ..., run in every row of *groups* at once."""
    return [
        [
            _Links(
                groups[:, links.left].ravel(),
                groups[:, links.right].ravel(),
                np.tile(links.weights, len(groups)),
            )
            for links in round
        ]
        for round in schedule
    ]


def _lay(rounds: list[Round], start: int, several: Sequence[list[Round]]) -> None:
    for schedule in several:
        for offset, links in enumerate(schedule):
            rounds[start + offset].extend(links)


def _hand_over(parts: Nodes, rest: Nodes) -> _Links:
    """Each node of *rest*, fewer than a part has, takes the average from one node of each part."""
    share = parts.size / (len(parts) * (parts.size + len(rest)))
    left = np.tile(rest, len(parts))
    return _even(left, parts[:, : len(rest)].ravel(), share)


def _even(left: Nodes, right: Nodes, weight: float) -> _Links:
    return _Links(left, right, np.full(len(left), weight))


def _matrix(n: int, links: Round) -> csr_array:
    """Build ``W`` from what both ends of each edge give; a node keeps the rest."""
    from scipy.sparse import csr_array, diags_array

    none = np.empty(0, np.int64)
    left = np.concatenate([none, *(link.left for link in links)])
    right = np.concatenate([none, *(link.right for link in links)])
    weights = np.concatenate([np.empty(0), *(link.weights for link in links)])
    one_way = csr_array((weights, (left, right)), shape=(n, n))
    both = one_way + one_way.T
    return (both + diags_array(np.maximum(0.0, 1.0 - both.sum(axis=1)))).tocsr()


def _blocks(nodes: Nodes, k: int) -> tuple[list[Nodes], list[int]]:
    """Split nodes by the digits of n in base k + 1, the largest block first."""
    powers, power = [], 1
    while power <= len(nodes):
        powers.append(power)
        power *= k + 1
    blocks, digits, start = [], [], 0
    for power in reversed(powers):
        digit = (len(nodes) - start) // power
        if digit:
            blocks.append(nodes[start : start + digit * power])
            digits.append(digit)
            start += digit * power
    return blocks, digits


def _smooth_part(n: int, k: int) -> int:
    """Return the largest divisor of n without a prime factor above k + 1."""
    part = 1
    for factor in range(2, k + 2):
        while n % factor == 0:
            n //= factor
            part *= factor
    return part


@cache
def _factors(n: int, k: int) -> tuple[int, ...] | None:
    """Return the fewest factors of at most k + 1 whose product is n; None if impossible."""
    if n == 1:
        return ()
    best: tuple[int, ...] | None = None
    for factor in range(min(k + 1, n), 1, -1):
        if n % factor == 0 and (rest := _factors(n // factor, k)) is not None:
            if best is None or len(rest) + 1 < len(best):
                best = (factor, *rest)
    return best


FAMILIES: Mapping[str, Family] = {
    "base-k": Family(
        summary="exact after about 2 log_{k+1}(n) rounds for any n, with degree at most k",
        source="Takezawa et al., NeurIPS 2023",
        build=lambda site, values: base_k(site.n, whole(values, "k")),
        layout="circle",
        parameters=(count("k", 1),),
        limits={"k": -1},
        fallback="k is at most n - 1",
    ),
}
