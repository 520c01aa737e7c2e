"""Closed forms of mixing rates, from papers and algebra, compared with `facts`.

The formulas occur only here: the code computes eigenvalues.
"""

from collections.abc import Callable
from math import ceil, cos, log, log2, pi, sqrt

import numpy as np
import pytest

from rumor.topology import facts, parse

GAPS: dict[str, tuple[Callable[[int], float], tuple[int, ...]]] = {
    # The eigenvalues of a circulant matrix: (1 + 2 cos(2 pi k/n)) / 3.
    "ring": (lambda n: 2 / 3 * (1 - cos(2 * pi / n)), (3, 4, 5, 8, 16, 33, 64, 1000)),
    # With Metropolis weights a path is half of a ring of 2n nodes.
    "path": (lambda n: 2 / 3 * (1 - cos(pi / n)), (3, 4, 7, 16, 64, 511)),
    "star": (lambda n: 1 / n, (3, 4, 9, 64, 600)),
    "complete": (lambda n: 1, (2, 3, 8, 33, 20_000)),
    "torus": (lambda n: 2 / 5 * (1 - cos(2 * pi / n**0.5)), (9, 16, 25, 64, 10_000)),
    "hypercube": (lambda n: 2 / (log2(n) + 1), (2, 4, 8, 16, 64, 1024)),
    # Ying et al., NeurIPS 2021, for an even n.
    "exponential": (lambda n: 2 / (1 + ceil(log2(n))), (2, 4, 6, 8, 10, 12, 20, 34, 128, 5000)),
}


@pytest.mark.parametrize(("spec", "n"), [(spec, n) for spec, (_, ns) in GAPS.items() for n in ns])
def test_the_spectral_gap_matches_the_closed_form(spec: str, n: int) -> None:
    assert facts(parse(spec, n)).spectral_gap == pytest.approx(GAPS[spec][0](n), abs=1e-9)


@pytest.mark.parametrize("n", [3, 5, 7, 9, 15, 17, 31, 33, 63, 127])
def test_exponential_has_a_larger_gap_for_an_odd_number_of_nodes(n: int) -> None:
    """Ying et al., NeurIPS 2021."""
    assert facts(parse("exponential", n)).spectral_gap > 2 / (1 + ceil(log2(n))) + 1e-9


CONTRACTIONS: dict[str, tuple[Callable[[int], float], tuple[int, ...]]] = {
    # E[V'] / V, V the sum of squared deviations.
    "random-matching": (lambda n: (n - 2) / (2 * (n - 1)), (2, 4, 10, 64, 1000)),
    # A projection of rank r = ceil(n / m): (r - 1) / (n - 1) is left for any draw.
    "random-groups:m=3": (lambda n: (ceil(n / 3) - 1) / (n - 1), (12, 7, 64)),
    # De Vos et al., NeurIPS 2023, EL-Oracle.
    "epidemic:s=1": (lambda n: (1 - 1 / (n - 1)) / 2, (8, 64)),
    "epidemic:s=6": (lambda n: (1 - 6 / (n - 1)) / 7, (7, 64, 1000)),
}


@pytest.mark.parametrize(
    ("spec", "n"), [(spec, n) for spec, (_, ns) in CONTRACTIONS.items() for n in ns]
)
def test_random_rounds_contract_as_published(spec: str, n: int) -> None:
    found = facts(parse(spec, n))
    assert found.contraction == pytest.approx(CONTRACTIONS[spec][0](n), abs=1e-9)
    assert found.contraction_error == 0.0


@pytest.mark.extended
@pytest.mark.parametrize(("n", "s"), [(8, 1), (16, 1), (64, 3)])
def test_epidemic_local_contracts_as_published(n: int, s: int) -> None:
    """De Vos et al., NeurIPS 2023, EL-Local: at most (1 - (1 - s/(n-1))^n) / s - 1 / (n-1)."""
    found = facts(parse(f"epidemic-local:s={s}", n))
    published = (1 - (1 - s / (n - 1)) ** n) / s - 1 / (n - 1)
    assert 0 < found.contraction_error < 0.01 * published
    # The contraction counts deviations from the initial mean, which drifts.
    assert 0.8 * published < found.contraction < published + 5 * found.contraction_error
    assert (found.stochastic, found.doubly_stochastic) == ("row", False)


@pytest.mark.parametrize("k", [1, 2, 3, 6, 10])
@pytest.mark.parametrize("family", ["one-peer-exponential", "hypercube-matching", "base-k"])
def test_pairs_are_exact_after_log2_n_rounds_at_powers_of_two(family: str, k: int) -> None:
    found = facts(parse(family, 2**k))
    assert (found.period, found.rounds_to_exact, found.degree_max) == (k, k, 1)
    assert (found.contraction, found.second_eigenvalue) == (0.0, 0.0)


@pytest.mark.parametrize("n", [5, 6, 7, 12])
def test_one_peer_exponential_is_never_exact_at_other_sizes(n: int) -> None:
    found = facts(parse("one-peer-exponential", n))
    assert found.rounds_to_exact is None and 0 < found.contraction < 1


@pytest.mark.extended
@pytest.mark.parametrize("n", [4, 5, 6, 7, 11, 24, 25, 100, 1000])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_base_k_is_exact_for_any_n(n: int, k: int) -> None:
    """Takezawa et al., NeurIPS 2023: at most 2 log_{k+1}(n) + 2 rounds of degree at most k."""
    found = facts(parse(f"base-k:k={k}", n))
    assert found.rounds_to_exact is not None and found.degree_max <= k
    assert found.rounds_to_exact <= 2 * log(n) / log(k + 1) + 2 + 1e-9


@pytest.mark.extended
def test_random_regular_graphs_are_near_optimal() -> None:
    """Friedman 2008: the second eigenvalue of (I + A) / (d + 1) nears (1 + 2 sqrt(d-1)) / (d+1)."""
    found = facts(parse("random-regular:d=4", 2000))
    assert found.second_eigenvalue == pytest.approx((1 + 2 * sqrt(3)) / 5, abs=0.01)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.95, 0.999])
@pytest.mark.parametrize("spec", ["complete", "ring", "torus", "exponential", "star", "grid"])
def test_effective_neighbors_match_the_published_formula(spec: str, gamma: float) -> None:
    """[1 / (1 - g)] / [mean_k l_k^2 / (1 - g l_k^2)], Vogels et al., NeurIPS 2022."""
    squares = np.linalg.svd(parse(spec, 36).matrix().toarray(), compute_uv=False) ** 2
    published = 1 / (1 - gamma) / np.mean(squares / (1 - gamma * squares))
    found = facts(parse(spec, 36), gamma=gamma).effective_neighbors
    assert found == pytest.approx(published, rel=1e-9)
