"""Facts, compared with dense matrices and with simulated rounds."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array

from rumor.topology import Topology, TopologyError, facts, parse
from rumor.topology.analysis.spectral import rate_of_fixed
from rumor.topology.schedules.mixing import edges, metropolis, uniform
from rumor.topology.schedules.schedule import Fixed, RandomCirculant

from ..samples import product

STATIC = ["ring", "path", "star", "complete", "grid", "torus", "tree", "exponential"]
STATIC += ["random-regular", "erdos-renyi", "small-world", "scale-free", "spanning-tree:of=grid"]
STATIC += ["equi-static", "d-equi-static", "hosts:sizes=4x12x8", "hypercube"]
PERIODIC = ["one-peer-exponential", "p-peer-exponential:p=2", "p-peer-exponential:p=4"]
PERIODIC += ["base-k", "base-k:k=3", "hypercube-matching"]

FIXED_KEYS = {
    "spec",
    "n",
    "directed",
    "degree_max",
    "diameter",
    "doubly_stochastic",
    "period",
    "spectral_gap",
    "second_eigenvalue",
    "contraction",
    "rounds_to_exact",
    "effective_neighbors",
    "articulation_points",
}


def size(spec: str) -> int:
    return 32 if "hypercube" in spec else 24


@pytest.mark.parametrize("spec", STATIC + PERIODIC)
def test_eigenvalue_and_contraction_match_the_dense_product(spec: str) -> None:
    topology = parse(spec, size(spec))
    assert topology.period is not None
    dense = product(topology, range(topology.period)) - 1 / topology.n
    found = facts(topology)
    second = np.abs(np.linalg.eigvals(dense)).max() ** (1 / topology.period)
    stretch = np.linalg.norm(dense, 2) ** (2 / topology.period)
    # An exact 0 becomes the root of a rounding error.
    assert found.second_eigenvalue == pytest.approx(second, abs=1e-9 if second > 0.1 else 1e-2)
    assert found.contraction == pytest.approx(stretch, abs=1e-9 if stretch > 0.1 else 1e-2)
    assert found.spectral_gap == 1 - found.second_eigenvalue


RANDOM = ["random-matching", "random-groups:m=5", "epidemic:s=3", "epidemic-local:s=3"]


@pytest.mark.extended
@pytest.mark.parametrize("spec", RANDOM)
def test_a_random_round_contracts_as_stated_on_average(spec: str) -> None:
    """This holds for any direction, up to 5 standard errors."""
    topology = parse(spec, 24, seed=1)
    directions = np.eye(24) - 1 / 24
    left = [topology.matrix(round) @ directions for round in range(100)]
    ratios = [((x - x.mean(axis=0)) ** 2).sum(axis=0) / (1 - 1 / 24) for x in left]
    error = (np.std(ratios, axis=0) / 10).mean()
    assert facts(topology).contraction == pytest.approx(np.mean(ratios), abs=5 * error + 1e-9)


@pytest.mark.extended
@pytest.mark.parametrize("spec", ["equi-dyn:m=5", "od-equi-dyn:m=5"])
def test_random_circulants_contract_the_worst_direction_as_stated(spec: str) -> None:
    """This holds on average, up to 5 standard errors."""
    topology = parse(spec, 24, seed=1)
    directions = np.exp(2j * np.pi * np.outer(np.arange(1, 24), np.arange(24)) / 24)
    left = [topology.matrix(round) @ directions.T for round in range(100)]
    ratios = [(np.abs(x - x.mean(axis=0)) ** 2).sum(axis=0) / 24 for x in left]
    worst = int(np.mean(ratios, axis=0).argmax())
    mean, error = np.mean(ratios, axis=0)[worst], np.std(ratios, axis=0)[worst] / 10
    assert facts(topology).contraction == pytest.approx(mean, abs=5 * error + 1e-9)


def remaining_disagreement(topology: Topology) -> Iterator[float]:
    """The fraction left of the worst disagreement after 0, 1, 2, ... rounds."""
    x = np.eye(topology.n) - 1 / topology.n
    round = 0
    while True:
        yield float(np.linalg.norm(x, 2))
        x = topology.matrix(round) @ x
        round += 1


@pytest.mark.parametrize("spec", [*STATIC, *PERIODIC])
def test_all_nodes_first_hold_the_mean_after_the_exact_rounds(spec: str) -> None:
    topology = parse(spec, size(spec))
    found = facts(topology).rounds_to_exact
    left = list(islice(remaining_disagreement(topology), 40))
    steps = enumerate(pairwise(left), 1)
    exact = next((round for round, (a, b) in steps if b < 1e-12 < 1e-6 < a), None)
    assert found == exact


@pytest.mark.extended
@pytest.mark.parametrize("spec", [*STATIC, *PERIODIC])
@pytest.mark.parametrize("gamma", [0.5, 0.95])
def test_effective_neighbors_match_simulated_random_walks(spec: str, gamma: float) -> None:
    topology = parse(spec, size(spec))
    n = topology.n
    x, mean_square = np.eye(n), 0.0
    # Later terms weigh less than 1e-12.
    for round in range(int(np.log(1e-12) / np.log(gamma))):
        x = topology.matrix(round) @ x
        mean_square += gamma**round * float(np.square(x).sum()) / n
    found = facts(topology, gamma=gamma)
    assert found.effective_neighbors == pytest.approx(1 / (1 - gamma) / mean_square, rel=1e-7)


@pytest.mark.extended
@pytest.mark.parametrize(
    "spec", ["random-matching", "epidemic:s=3", "epidemic-local", "equi-dyn:m=5", "od-equi-dyn"]
)
def test_effective_neighbors_match_random_rounds_on_average(spec: str) -> None:
    topology = parse(spec, 24, seed=2)
    found = facts(topology, gamma=0.8)
    mean_square = []
    for walk in range(10):
        x, sums = np.eye(24), 0.0
        # 0.8**50 is negligible.
        for round in range(50):
            x = topology.matrix(10_000 + 50 * walk + round) @ x
            sums += 0.8**round * float(np.square(x).sum()) / 24
        mean_square.append(sums)
    expected = 5 / np.mean(mean_square)
    error = expected * np.std(mean_square) / np.sqrt(10) / np.mean(mean_square)
    assert found.effective_neighbors == pytest.approx(expected, abs=5 * error + 1e-6)


def digraph(n: int, links: list[tuple[int, int]]) -> csr_array:
    sources, targets = np.array(links).T
    return uniform(edges(n, sources, targets))


CYCLE = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
BACK = [(1, 0), (2, 1), (3, 2), (0, 3), (3, 1), (2, 0)]


@pytest.mark.parametrize("edge_lists", [[CYCLE], [CYCLE, BACK]], ids=["one", "two in turn"])
def test_push_sum_on_digraphs_counts_deviations_by_stationary_weights(
    edge_lists: list[list[tuple[int, int]]],
) -> None:
    """Two alternating digraphs have different stationary weights, so each round is balanced."""
    rounds = tuple(digraph(4, links) for links in edge_lists)
    rate = rate_of_fixed(Fixed(rounds=rounds, directed=True), 0.9)
    dense = np.linalg.multi_dot([np.eye(4), *(w.toarray() for w in reversed(rounds))])
    moduli = np.sort(np.abs(np.linalg.eigvals(dense)))
    assert rate.second_eigenvalue == pytest.approx(moduli[-2] ** (1 / len(rounds)), abs=1e-9)
    values, vectors = np.linalg.eig(dense)
    stationary = np.real(vectors[:, np.argmax(np.real(values))])
    root = np.sqrt(stationary / stationary.sum())
    scaled = dense * root[None, :] / root[:, None] - np.outer(root, root)
    stretch = np.linalg.norm(scaled, 2) ** (2 / len(rounds))
    assert rate.contraction == pytest.approx(stretch, abs=1e-9)


@pytest.mark.parametrize("spec", ["equi-dyn", "od-equi-dyn"])
def test_the_second_eigenvalue_of_random_circulants_is_that_of_the_mean_over_turns(
    spec: str,
) -> None:
    topology = parse(spec, 12)
    assert isinstance(topology.schedule, RandomCirculant)
    drawn = [matrix.toarray() for matrix in topology.schedule.representatives()]
    turned = [np.roll(matrix, (turn, turn), (0, 1)) for matrix in drawn for turn in range(12)]
    moduli = np.sort(np.abs(np.linalg.eigvals(np.mean(turned, axis=0))))
    assert moduli[-1] == pytest.approx(1.0) and moduli[-2] < 0.999
    assert facts(topology).second_eigenvalue == pytest.approx(moduli[-2], abs=1e-9)


def test_a_de_bruijn_digraph_is_exact_after_log2_n_rounds() -> None:
    """A walk that shifts in one bit after another forgets its start."""
    n = 16
    nodes = np.arange(n)
    rows = np.concatenate([2 * nodes % n, (2 * nodes + 1) % n])
    matrix = csr_array((np.full(2 * n, 0.5), (rows, np.tile(nodes, 2))), shape=(n, n))
    rate = rate_of_fixed(Fixed(rounds=(matrix,), directed=True), 0.95)
    assert rate.rounds_to_exact == 4
    assert rate.second_eigenvalue == 0.0
    # One round only moves some disagreements, as the second singular value shows.
    assert rate.contraction == pytest.approx(1.0, abs=1e-9)


def test_a_matrix_that_drains_weight_from_nodes_is_refused() -> None:
    matrix = csr_array(np.array([[1.0, 0.5], [0.0, 0.5]]))
    with pytest.raises(TopologyError, match="gather"):
        rate_of_fixed(Fixed(rounds=(matrix,), directed=True), 0.9)


def test_facts_of_a_disconnected_graph_are_refused() -> None:
    half = edges(4, np.array([0, 1, 2, 3]), np.array([1, 0, 3, 2]))
    topology = parse("ring", 4)
    assert facts(topology).connected
    with pytest.raises(TopologyError, match="falls into parts"):
        facts(replace(topology, schedule=Fixed(rounds=(metropolis(half),))))


@pytest.mark.parametrize("spec", ["ring", "path", "base-k", "random-matching", "equi-dyn", "star"])
def test_a_single_node_agrees_with_itself(spec: str) -> None:
    found = facts(parse(spec, 1))
    assert (found.degree_max, found.diameter, found.messages_per_round) == (0, 0, 0.0)
    assert (found.rounds_to_exact, found.effective_neighbors) == (0, 1.0)


def test_json_has_the_documented_keys() -> None:
    found = facts(parse("grid", 6))
    document = json.loads(json.dumps(found.as_json()))
    assert set(document) >= FIXED_KEYS
    assert document["rounds_to_exact"] is None
    assert document["spec"] == "grid"


def test_invalid_gamma_and_too_many_nodes_are_refused() -> None:
    for gamma in (-0.1, 1.0, 1 - 1e-12, float("nan")):
        with pytest.raises(TopologyError, match=r"gamma is .*: it must be in \[0, 1\)"):
            facts(parse("ring", 4), gamma=gamma)
    for spec in ("path", "equi-dyn"):
        with pytest.raises(TopologyError, match="at most 2,048 nodes, not 2,049"):
            facts(parse(spec, 2049))
    assert facts(parse("torus", 10_000)).diameter == 100
