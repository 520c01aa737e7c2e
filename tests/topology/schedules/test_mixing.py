"""Other mixing weights on the edges of every family."""

import numpy as np
import pytest

from rumor.topology import Topology, parse
from rumor.topology.schedules.mixing import MIXINGS

from ..samples import FIXED, dense, out_degrees, some_rounds

each = pytest.mark.parametrize(("spec", "n"), FIXED)


def pushes(topology: Topology, round: int) -> list[list[int]]:
    return [sorted(topology.neighbors(node, round)) for node in range(topology.n)]


@each
def test_lazy_keeps_half_of_what_the_family_gives(spec: str, n: int) -> None:
    own, lazy = parse(spec, n), parse(spec, n, mixing="lazy")
    assert lazy.mixing == "lazy" and lazy.period == own.period and lazy != own
    for round in some_rounds(own):
        half = (np.eye(n) + dense(own, round)) / 2
        assert np.allclose(dense(lazy, round), half, rtol=0, atol=1e-12)
        assert pushes(lazy, round) == pushes(own, round)
        if not own.directed:
            assert np.linalg.eigvalsh(dense(lazy, round)).min() >= -1e-12


@each
def test_uniform_splits_what_a_node_has_between_itself_and_its_neighbors(spec: str, n: int) -> None:
    own, uniform = parse(spec, n), parse(spec, n, mixing="uniform")
    for round in some_rounds(own):
        matrix = dense(uniform, round)
        assert np.allclose(matrix.sum(axis=0), 1, rtol=0, atol=1e-12)
        for node, degree in enumerate(out_degrees(own, round)):
            column = matrix[:, node]
            assert set(np.flatnonzero(column)) == {*own.neighbors(node, round), node}
            assert np.allclose(column[column > 0], 1 / (degree + 1), rtol=0, atol=1e-12)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("spec", "n"), [(spec, n) for spec, n in FIXED if not parse(spec, n).directed]
)
def test_metropolis_goes_by_the_larger_degree_of_two(spec: str, n: int) -> None:
    own, metropolis = parse(spec, n), parse(spec, n, mixing="metropolis")
    for round in some_rounds(own):
        matrix, degrees = dense(metropolis, round), out_degrees(own, round)
        assert np.allclose(matrix.sum(axis=1), 1, rtol=0, atol=1e-12)
        assert np.array_equal(matrix, matrix.T)
        for a, b in own.graph(round).edges:
            assert matrix[a, b] == pytest.approx(1 / (1 + max(degrees[a], degrees[b])), abs=1e-12)


def test_families_of_one_degree_have_even_shares_already() -> None:
    for spec in ("ring", "complete", "torus", "hypercube", "exponential", "random-regular:d=3"):
        assert np.allclose(dense(parse(spec, 16)), dense(parse(spec, 16, mixing="uniform")))


def test_an_uneven_split_on_a_star_drifts_and_says_so_in_its_rows() -> None:
    matrix = dense(parse("star", 5, mixing="uniform"))
    assert np.allclose(matrix.sum(axis=0), 1)
    assert matrix.sum(axis=1).tolist() == pytest.approx([1 / 5 + 4 / 2, *[1 / 5 + 1 / 2] * 4])


def test_every_way_to_mix_is_described_in_one_line() -> None:
    assert set(MIXINGS) == {"metropolis", "uniform", "lazy"}
    assert all(words and "\n" not in words for words in MIXINGS.values())
