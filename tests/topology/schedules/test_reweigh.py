"""The fastest mixing weights against the closed forms there are, and never worse than others."""

import sys
import warnings
from math import cos, pi

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from rumor.topology import TopologyError, parse
from rumor.topology.schedules.mixing import metropolis
from rumor.topology.schedules.reweigh import NODES_MAX, fastest

__all__: list[str] = []


@pytest.fixture(scope="module")
def solver() -> None:
    """Skips a test where cvxpy is not there."""
    pytest.importorskip("cvxpy")


def modulus(matrix: csr_array) -> float:
    """The second largest absolute eigenvalue of a symmetric W; 0 for a lonely node."""
    values = np.sort(np.abs(np.linalg.eigvalsh(matrix.toarray())))
    return float(values[-2]) if len(values) > 1 else 0.0


def adjacency(graph: nx.Graph) -> csr_array:
    return csr_array(nx.to_scipy_sparse_array(graph, weight=None, dtype=float, format="csr"))


def assert_feasible(matrix: csr_array, edges: csr_array) -> None:
    """Symmetric, doubly stochastic, no weight below 0, nothing off the edges."""
    dense = matrix.toarray()
    assert (dense == dense.T).all()
    assert (dense >= 0).all()
    np.testing.assert_allclose(dense.sum(axis=1), 1.0, rtol=0, atol=1e-15)
    off = ~np.eye(len(dense), dtype=bool)
    assert not dense[off & (edges.toarray() == 0)].any()
    links = matrix.tocoo()
    assert (links.data[links.coords[0] != links.coords[1]] > 0).all()


@pytest.mark.extended
@pytest.mark.usefixtures("solver")
@pytest.mark.parametrize("n", [3, 4, 9, 16])
def test_on_a_path_the_second_eigenvalue_is_the_cosine_of_pi_over_n(n: int) -> None:
    # Boyd, Diaconis, Sun and Xiao, Amer. Math. Monthly 2006: 1/2 on every edge is the best.
    matrix = parse("path", n, mixing="fastest").matrix()
    assert modulus(matrix) == pytest.approx(cos(pi / n), abs=1e-7)


@pytest.mark.usefixtures("solver")
@pytest.mark.parametrize("n", [3, 4, 9, 16])
def test_on_a_star_the_middle_splits_all_it_has_among_the_others(n: int) -> None:
    # All edges are alike, at w the leaves differ by 1 - w, and the middle has (n - 1) w to give.
    matrix = parse("star", n, mixing="fastest").matrix()
    assert modulus(matrix) == pytest.approx(1 - 1 / (n - 1), abs=1e-7)
    np.testing.assert_allclose(matrix.toarray()[0, 1:], 1 / (n - 1), rtol=0, atol=1e-6)


@pytest.mark.usefixtures("solver")
@pytest.mark.parametrize("n", [4, 6, 16])
def test_on_an_even_ring_both_ends_of_the_spectrum_are_as_far_from_zero(n: int) -> None:
    # All edges are alike: 1 - 2 w (1 - c) = 4 w - 1 at the best w, where c = cos(2 pi / n).
    c = cos(2 * pi / n)
    assert modulus(parse("ring", n, mixing="fastest").matrix()) == pytest.approx(
        (1 + c) / (3 - c), abs=1e-7
    )


@pytest.mark.parametrize("n", [1, 2, 3, 8, NODES_MAX + 1])
def test_a_complete_graph_is_exact_in_one_round_and_needs_no_solver(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    matrix = parse("complete", n, mixing="fastest").matrix()
    np.testing.assert_allclose(matrix.toarray(), 1 / n, rtol=0, atol=1e-14)


def test_pairs_of_a_matching_split_evenly_and_who_sits_out_keeps_all() -> None:
    pairs = parse("random-matching", 301, mixing="fastest")
    assert pairs.period is None
    for round in (0, 5):
        matrix = pairs.matrix(round)
        lonely = [node for node in range(301) if not pairs.neighbors(node, round)]
        assert len(lonely) == 1
        diagonal = matrix.diagonal()
        assert diagonal[lonely] == [1.0]
        assert (np.delete(diagonal, lonely) == 0.5).all()
        assert matrix.nnz == 601


@pytest.mark.usefixtures("solver")
def test_each_part_of_a_graph_mixes_as_fast_as_it_would_alone() -> None:
    # The parts' nodes are woven into one another.
    path, star = nx.path_graph(range(0, 10, 2)), nx.star_graph(range(1, 10, 2))
    edges = adjacency(nx.compose(nx.empty_graph(10), nx.compose(path, star)))
    matrix = fastest(edges)
    assert_feasible(matrix, edges)
    assert modulus(matrix[::2][:, ::2]) == pytest.approx(cos(pi / 5), abs=1e-7)
    assert modulus(matrix[1::2][:, 1::2]) == pytest.approx(3 / 4, abs=1e-7)


@pytest.mark.usefixtures("solver")
@settings(max_examples=20)
@given(st.integers(1, 10), st.floats(0.2, 0.8), st.integers(0, 2**32 - 1))
def test_weights_are_feasible_and_never_slower_than_those_of_metropolis(
    n: int, p: float, seed: int
) -> None:
    edges = adjacency(nx.gnp_random_graph(n, p, seed=seed))
    matrix = fastest(edges)
    assert_feasible(matrix, edges)
    assert modulus(matrix) <= modulus(metropolis(edges)) + 1e-7


@pytest.mark.usefixtures("solver")
def test_an_edge_that_only_slows_mixing_down_is_left_out() -> None:
    # Two nodes in the middle, linked, and four that both of them know: all that the two can give
    # is needed for the four.
    graph = nx.complete_bipartite_graph(2, 4)
    graph.add_edge(0, 1)
    matrix = fastest(adjacency(graph))
    assert_feasible(matrix, adjacency(graph))
    assert matrix[0, 1] == 0
    assert modulus(matrix) == pytest.approx(1 / 2, abs=1e-7)
    assert matrix[0, 2] == pytest.approx(1 / 4, abs=1e-6)


@pytest.mark.usefixtures("solver")
def test_the_same_edges_get_the_same_weights_each_time() -> None:
    first, second = (parse("tree", 12, mixing="fastest").matrix().toarray() for _ in range(2))
    assert (first == second).all()


@pytest.mark.usefixtures("solver")
def test_rounds_of_a_schedule_are_weighed_one_by_one() -> None:
    topology = parse("base-k:k=2", 7, mixing="fastest")
    plain = parse("base-k:k=2", 7)
    assert topology.period == plain.period
    for round in range(plain.period or 0):
        assert_feasible(topology.matrix(round), plain.matrix(round))


@pytest.mark.usefixtures("solver")
def test_nothing_warns_where_the_solver_stops_short_of_its_tolerance() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        matrix = parse("torus", 36, mixing="fastest").matrix()
    assert modulus(matrix) == pytest.approx(7 / 9, abs=1e-6)


def test_without_the_solver_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(TopologyError, match=r"needs cvxpy.*pip install 'rumor\[fastest\]'"):
        parse("ring", 5, mixing="fastest")


def test_too_many_linked_nodes_are_refused_with_a_way_out() -> None:
    with pytest.raises(TopologyError, match=f"at most {NODES_MAX} linked nodes.*'metropolis'"):
        parse("ring", NODES_MAX + 1, mixing="fastest")


@pytest.mark.usefixtures("solver")
def test_a_solver_that_gives_up_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    import cvxpy

    monkeypatch.setattr(cvxpy.Problem, "solve", lambda self, **_: None)
    with pytest.raises(TopologyError, match="the solver stopped with None"):
        parse("path", 3, mixing="fastest")


def test_edges_that_go_one_way_are_refused() -> None:
    with pytest.raises(TopologyError, match="needs undirected edges"):
        parse("exponential", 8, mixing="fastest")
