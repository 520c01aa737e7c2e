"""Closed forms of what mixing does, from papers and from algebra, against what `facts` finds.

The formulas are written here only: the code computes eigenvalues.
"""

from math import ceil, cos, log2, pi, sqrt

import numpy as np
import pytest

from rumor.topology import Facts, TopologyError, facts, parse


def of(spec: str, n: int, **options: float) -> Facts:
    return facts(parse(spec, n), **options)


@pytest.mark.parametrize("n", [3, 4, 5, 8, 16, 33, 64, 1000])
def test_ring(n: int) -> None:
    """The eigenvalues of a circulant matrix: (1 + 2 cos(2 pi k/n)) / 3."""
    assert of("ring", n).spectral_gap == pytest.approx(2 / 3 * (1 - cos(2 * pi / n)), abs=1e-9)


@pytest.mark.parametrize("n", [3, 4, 7, 16, 64, 511])
def test_path(n: int) -> None:
    """Metropolis weights make it half of a ring of 2n."""
    assert of("path", n).spectral_gap == pytest.approx(2 / 3 * (1 - cos(pi / n)), abs=1e-9)


@pytest.mark.parametrize("n", [3, 4, 9, 64, 600])
def test_star(n: int) -> None:
    assert of("star", n).spectral_gap == pytest.approx(1 / n, abs=1e-9)


@pytest.mark.parametrize("n", [2, 3, 8, 33, 20_000])
def test_complete_agrees_after_one_round(n: int) -> None:
    found = of("complete", n)
    assert found.spectral_gap == pytest.approx(1, abs=1e-9)
    assert (found.rounds_to_exact, found.rounds_to_1e_3) == (1, 1)


@pytest.mark.parametrize("side", [3, 4, 5, 8, 100])
def test_square_torus(side: int) -> None:
    found = of(f"torus:rows={side},cols={side}", side**2)
    assert found.spectral_gap == pytest.approx(2 / 5 * (1 - cos(2 * pi / side)), abs=1e-9)


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4, 6, 10])
def test_hypercube(dimensions: int) -> None:
    found = of("hypercube", 2**dimensions)
    assert found.spectral_gap == pytest.approx(2 / (dimensions + 1), abs=1e-9)


@pytest.mark.parametrize("n", [2, 4, 6, 8, 10, 12, 16, 20, 34, 64, 100, 128, 5000])
def test_exponential_with_an_even_number_of_nodes(n: int) -> None:
    """Ying et al., NeurIPS 2021: exactly 2 / (1 + ceil(log2 n))."""
    assert of("exponential", n).spectral_gap == pytest.approx(2 / (1 + ceil(log2(n))), abs=1e-9)


@pytest.mark.parametrize("n", [3, 5, 7, 9, 15, 17, 31, 33, 63, 127])
def test_exponential_with_an_odd_number_of_nodes_does_better(n: int) -> None:
    """Ying et al., NeurIPS 2021."""
    assert of("exponential", n).spectral_gap > 2 / (1 + ceil(log2(n))) + 1e-9


@pytest.mark.parametrize("k", [1, 2, 3, 6, 10, pytest.param(13, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", ["one-peer-exponential", "hypercube-matching", "base-k"])
def test_pairs_are_exact_after_log2_n_rounds_at_powers_of_two(family: str, k: int) -> None:
    found = of(family, 2**k)
    assert (found.rounds_to_exact, found.degree_max) == (k, 1)
    assert (found.contraction, found.second_eigenvalue) == (0.0, 0.0)


@pytest.mark.parametrize("n", [5, 6, 7, 12])
def test_one_peer_exponential_is_never_exact_elsewhere(n: int) -> None:
    found = of("one-peer-exponential", n)
    assert found.rounds_to_exact is None
    assert 0 < found.contraction < 1


@pytest.mark.parametrize("n", [2, 3, 5, 6, 7, 11, 24, 25, 100, 1000])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_base_k_is_exact_for_any_n(n: int, k: int) -> None:
    """Takezawa et al., NeurIPS 2023: at most 2 log_{k+1}(n) + 2 rounds of degree at most k."""
    if k >= n:
        with pytest.raises(TopologyError, match="below n"):
            parse(f"base-k:k={k}", n)
        return
    found = of(f"base-k:k={k}", n)
    assert found.rounds_to_exact is not None
    assert found.rounds_to_exact <= 2 * np.log(n) / np.log(k + 1) + 2 + 1e-9
    assert found.degree_max <= k


@pytest.mark.parametrize("n", [2, 4, 10, 64, 1000])
def test_random_matching_of_all_nodes(n: int) -> None:
    """E[V'] / V = (n - 2) / (2 (n - 1)), V the sum of squared deviations."""
    found = of("random-matching", n)
    assert found.contraction == pytest.approx((n - 2) / (2 * (n - 1)), abs=1e-9)
    assert found.contraction_error == 0.0


@pytest.mark.parametrize(("n", "m"), [(12, 3), (64, 4), (64, 64), (10, 4), (7, 2)])
def test_random_groups_that_average_exactly(n: int, m: int) -> None:
    """A projection of rank r = ceil(n / m): (r - 1) / (n - 1) is left, whatever is drawn."""
    found = of(f"random-groups:m={m}", n)
    assert found.contraction == pytest.approx((ceil(n / m) - 1) / (n - 1), abs=1e-9)


@pytest.mark.parametrize(("n", "s"), [(8, 1), (16, 3), (64, 6), (64, 63), (1000, 2)])
def test_epidemic_with_an_oracle(n: int, s: int) -> None:
    """De Vos et al., NeurIPS 2023, EL-Oracle: (1 - s / (n - 1)) / (s + 1)."""
    found = of(f"epidemic:s={s}", n)
    assert found.contraction == pytest.approx((1 - s / (n - 1)) / (s + 1), abs=1e-9)


@pytest.mark.parametrize(
    ("n", "s"), [(8, 1), (16, 1), (64, 3), pytest.param(256, 8, marks=pytest.mark.slow)]
)
def test_epidemic_where_each_draws_alone(n: int, s: int) -> None:
    """De Vos et al., NeurIPS 2023, EL-Local: at most (1 - (1 - s/(n-1))^n) / s - 1 / (n-1).

    That counts deviations from the mean as it was, and the mean drifts: what is left around the
    new mean is a little less, by Monte Carlo within 5 standard errors.
    """
    found = of(f"epidemic-local:s={s}", n)
    published = (1 - (1 - s / (n - 1)) ** n) / s - 1 / (n - 1)
    assert 0 < found.contraction_error < 0.01 * published
    assert found.contraction < published + 5 * found.contraction_error
    drawn = [left_of_one_epidemic(n, s, seed) for seed in range(400)]
    error = float(np.hypot(np.std(drawn) / 20, found.contraction_error))
    assert found.contraction == pytest.approx(np.mean(drawn), abs=5 * error)
    assert (found.stochastic, found.doubly_stochastic) == ("row", False)


def left_of_one_epidemic(n: int, s: int, seed: int) -> float:
    """What one round leaves of the sum of squares around the new mean, over all directions."""
    rng = np.random.default_rng(seed)
    matrix = np.eye(n)
    for node in range(n):
        others = rng.choice(n - 1, s, replace=False)
        matrix[others + (others >= node), node] = 1.0
    matrix /= matrix.sum(axis=1, keepdims=True)
    centered = matrix - matrix.mean(axis=0)
    return float(np.square(centered).sum() / (n - 1))


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in (1, 2))])
def test_random_regular_graphs_are_near_the_best_there_is(seed: int) -> None:
    """Friedman 2008: the second eigenvalue of (I + A) / (d + 1) nears (1 + 2 sqrt(d-1)) / (d+1)."""
    found = facts(parse("random-regular:d=4", 2000, seed=seed))
    assert found.second_eigenvalue == pytest.approx((1 + 2 * sqrt(3)) / 5, abs=0.01)


@pytest.mark.parametrize("n", [2, 9, 100])
def test_the_complete_graph_has_n_effective_neighbors(n: int) -> None:
    """Vogels et al., NeurIPS 2022."""
    assert of("complete", n).effective_neighbors == pytest.approx(n, rel=1e-9)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.95, 0.999])
@pytest.mark.parametrize("spec", ["ring", "torus", "exponential", "star", "grid"])
def test_effective_neighbors_by_the_published_formula(spec: str, gamma: float) -> None:
    """[1 / (1 - g)] / [mean_k l_k^2 / (1 - g l_k^2)], Vogels et al., NeurIPS 2022."""
    n = 36
    squares = np.linalg.svd(parse(spec, n).matrix().toarray(), compute_uv=False) ** 2
    published = 1 / (1 - gamma) / np.mean(squares / (1 - gamma * squares))
    assert of(spec, n, gamma=gamma).effective_neighbors == pytest.approx(published, rel=1e-9)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("n", [16, 101])
def test_noise_settles_where_the_contraction_says(n: int, seed: int) -> None:
    """Unit noise at each step of a random scheme: V / d = (n - 1) r / (1 - r) after mixing."""
    topology = parse("random-matching", n, seed=seed)
    left = facts(topology).contraction
    rng = np.random.default_rng(seed)
    width = 400
    x = np.zeros((n, width))
    spreads = []
    for round in range(60):
        x = topology.matrix(round) @ (x + rng.normal(size=x.shape))
        spreads.append(float(np.square(x - x.mean(axis=0)).sum() / width))
    expected = (n - 1) * left / (1 - left)
    # 40 rounds of 400 coordinates, correlated over two rounds or so: 1 % of scatter.
    assert np.mean(spreads[20:]) == pytest.approx(expected, rel=0.05)
