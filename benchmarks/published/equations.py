"""Four rules as their papers write them, for searches that take thousands of runs."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import networkx as nx
import numpy as np
from numpy.typing import NDArray

__all__ = ["EQUATIONS", "mixing_matrix"]

Array = NDArray[np.float64]
Rounds = Iterator[Array]
Gradient = Callable[[Array], Array]


def mixing_matrix(graph: "nx.Graph[int]") -> Array:
    """Metropolis weights: 1 / (1 + the larger degree of the two); axes (n, n)."""
    n = len(graph)
    matrix = np.zeros((n, n))
    for i, j in graph.edges:
        matrix[i, j] = matrix[j, i] = 1 / (1 + max(graph.degree[i], graph.degree[j]))
    np.fill_diagonal(matrix, 1 - matrix.sum(axis=1))
    return matrix


def _dpsgd(graph: "nx.Graph[int]", gradient: Gradient, x: Array, lr: float) -> Rounds:
    """x <- W (x - lr g). Source: Lian et al., NeurIPS 2017, adapt then combine."""
    w = mixing_matrix(graph)
    while True:
        x = w @ (x - lr * gradient(x))
        yield x


def _d2(graph: "nx.Graph[int]", gradient: Gradient, x: Array, lr: float) -> Rounds:
    """x+ = W (x - lr g + c), c = x+ - x + lr g. Source: Tang et al., ICML 2018."""
    w, c = mixing_matrix(graph), np.zeros_like(x)
    while True:
        stepped = x - lr * gradient(x)
        x = w @ (stepped + c)
        c = x - stepped
        yield x


def _gradient_tracking(graph: "nx.Graph[int]", gradient: Gradient, x: Array, lr: float) -> Rounds:
    """x+ = W (x - lr (g - c)), c+ = W (c - g) + g. Source: Koloskova et al., NeurIPS 2021."""
    w, c = mixing_matrix(graph), np.zeros_like(x)
    while True:
        g = gradient(x)
        x = w @ (x - lr * (g - c))
        c = w @ (c - g) + g
        yield x


def _relaysgd(graph: "nx.Graph[int]", gradient: Gradient, x: Array, lr: float) -> Rounds:
    """m_{i->j} = x_i + sum over k != j of m_{k->i}, counted alike; x = (sum + (n - count) x_0) / n.

    Source: Vogels et al., NeurIPS 2021, algorithm 1.
    """
    n, start = len(graph), x
    edges = [(i, j) for i in graph for j in graph[i]]
    number = {edge: index for index, edge in enumerate(edges)}
    # To an edge from i to j goes what came to i, but for what came from j.
    into = np.zeros((n, len(edges)))
    relayed = np.zeros((len(edges), len(edges)))
    for (i, j), index in number.items():
        into[j, index] = 1
        for k in graph[i]:
            if k != j:
                relayed[index, number[k, i]] = 1
    sources = [i for i, _ in edges]
    sums, counts = np.zeros((len(edges), x.shape[1])), np.zeros(len(edges))
    while True:
        stepped = x - lr * gradient(x)
        sums = stepped[sources] + relayed @ sums
        counts = 1 + relayed @ counts
        heard = 1 + into @ counts
        x = (stepped + into @ sums + (n - heard)[:, None] * start) / n
        yield x


EQUATIONS: Final[Mapping[str, Callable[["nx.Graph[int]", Gradient, Array, float], Rounds]]] = (
    MappingProxyType(
        {"dpsgd": _dpsgd, "d2": _d2, "gradient-tracking": _gradient_tracking, "relaysgd": _relaysgd}
    )
)
"""By the name of the rule. Each yields the models after one round after another, axes (n, dim)."""
