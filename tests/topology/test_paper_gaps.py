"""Spectral gaps in closed form.

The mixing matrix gives a node and each of its out-neighbors the same weight, and the gap is 1
minus the second largest modulus of an eigenvalue: the part of a disagreement that one round takes
away.
"""

from math import ceil, cos, log2, pi

import networkx as nx
import numpy as np
import pytest

from rumor.topology import parse


def gap(spec: str, n: int) -> float:
    """Spectral gap of uniform mixing, dimensionless in [0, 1]."""
    matrix = nx.to_numpy_array(parse(spec, n).graph()) + np.eye(n)
    matrix /= matrix.sum(axis=1, keepdims=True)
    moduli = np.sort(np.abs(np.linalg.eigvals(matrix)))
    return float(1 - moduli[-2])


@pytest.mark.parametrize("n", [3, 4, 5, 8, 16, 33, 64])
def test_ring(n: int) -> None:
    """The eigenvalues of a circulant matrix: (1 + 2 cos(2 pi k/n)) / 3."""
    assert gap("ring", n) == pytest.approx(2 / 3 * (1 - cos(2 * pi / n)), abs=1e-9)


@pytest.mark.parametrize("n", [2, 3, 8, 33])
def test_complete_agrees_after_one_round(n: int) -> None:
    assert gap("complete", n) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("n", [2, 4, 6, 8, 10, 12, 16, 20, 34, 64, 100, 128])
def test_exponential_with_an_even_number_of_nodes(n: int) -> None:
    """Ying et al., NeurIPS 2021: exactly 2 / (1 + ceil(log2 n))."""
    assert gap("exponential", n) == pytest.approx(2 / (1 + ceil(log2(n))), abs=1e-9)


@pytest.mark.parametrize("n", [3, 5, 7, 9, 15, 17, 31, 33, 63, 127])
def test_exponential_with_an_odd_number_of_nodes_does_better(n: int) -> None:
    """Ying et al., NeurIPS 2021."""
    assert gap("exponential", n) > 2 / (1 + ceil(log2(n))) + 1e-9
