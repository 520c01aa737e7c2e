"""Advice: all families within a budget, the fastest first, and why the others are not."""

from functools import cache

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from rumor.topology import FAMILIES, TopologyError, parse
from rumor.topology.advise import Advice, advise, candidates
from rumor.topology.analysis.paths import bottleneck, seconds_per_round


@cache
def advice_on(n: int, degree: int) -> tuple[Advice, ...]:
    return advise(n, degree)


def named(several: tuple[Advice, ...]) -> dict[str, Advice]:
    return {advice.family: advice for advice in several}


@pytest.mark.extended
@pytest.mark.parametrize(("n", "degree"), [(2, 1), (12, 3), (13, 1), (16, 2)])
def test_every_family_that_stands_for_no_one_network_is_judged_once(n: int, degree: int) -> None:
    families = [advice.family for advice in advice_on(n, degree)]
    assert sorted(families) == sorted(set(FAMILIES) - {"hosts", "file"})


@pytest.mark.parametrize(("n", "degree"), [(12, 3), (13, 1), (16, 2)])
def test_what_fits_keeps_the_budget_and_comes_first_by_rounds_then_messages(
    n: int, degree: int
) -> None:
    several = advice_on(n, degree)
    fits = [advice.fits for advice in several]
    assert fits == sorted(fits, reverse=True)
    known = [advice.facts for advice in several if advice.facts is not None]
    assert all(facts.degree_max <= degree for facts in known)
    costs = [
        (facts.rounds_to_1e_3, facts.rounds_to_1e_3 * facts.messages_per_round)
        for facts in known
        if facts.rounds_to_1e_3 is not None
    ]
    assert len(costs) == len(known) and costs == sorted(costs)


def test_one_push_a_round_suffices_for_the_exact_average_of_a_power_of_two() -> None:
    best, *_ = advice_on(16, 1)
    assert best.facts is not None and best.facts.rounds_to_exact == 4
    assert best.why.startswith("exact after 4 rounds with 1 message per node and round")


def test_the_best_parameter_of_a_family_is_taken() -> None:
    assert named(advice_on(12, 3))["base-k"].spec == "base-k:k=3"


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("hypercube", "n must be a power of 2"),
        ("torus", "n must be rows x cols"),
        ("star", "a node pushes to 12 others in a round, more than 1"),
    ],
)
def test_what_does_not_fit_says_why(family: str, reason: str) -> None:
    advice = named(advice_on(13, 1))[family]
    assert not advice.fits and advice.why.startswith(reason)


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("path", "losing any of 14 nodes splits it"),
        ("base-k", "works for any n"),
        ("hypercube-matching", "needs a power of 2"),
        ("one-peer-exponential", "exact only where n is a power of 2; directed: not for rules"),
        ("random-regular", "needs n x d to be even"),
        ("random-matching", "a round leaves 0.47 of the squared disagreement"),
        ("epidemic-local", "the mean drifts"),
    ],
)
def test_what_speaks_for_a_family_and_against_it_is_said(family: str, reason: str) -> None:
    assert reason in named(advice_on(16, 2))[family].why


@pytest.mark.extended
def test_an_expander_needs_three_neighbors_and_a_star_its_middle() -> None:
    assert "losing node 0 splits it" in named(advice_on(5, 4))["star"].why
    assert named(advice_on(12, 3))["random-regular"].why.startswith("an expander: gap")
    assert named(advice_on(16, 2))["random-regular"].why.startswith("gap")


def test_a_family_that_is_not_exact_for_an_odd_n_does_not_claim_it() -> None:
    why = named(advice_on(13, 1))["one-peer-exponential"].why
    assert "exact" not in why and "works for any n" in why


@pytest.mark.parametrize(
    ("n", "degree", "bandwidth", "message"),
    [
        (1, 1, None, "n=1"),
        (100_001, 1, None, "n=100,001: it must be at most 100,000"),
        (5_001, 1, csr_array((5_001, 5_001)), "bandwidths for n=5,001: it must be at most 5,000"),
        (8, 0, None, "degree=0"),
        (8, 2, csr_array((4, 4)), "for 4 nodes"),
        (2, 1, csr_array(([1.0], ([0], [1])), shape=(2, 2)), "no way from node 1 to node 0"),
    ],
)
def test_what_cannot_be_advised_on_is_said(
    n: int, degree: int, bandwidth: csr_array | None, message: str
) -> None:
    with pytest.raises(TopologyError, match=message):
        advise(n, degree, bandwidth=bandwidth)


@given(st.integers(2, 24), st.integers(0, 2**32 - 1))
def test_unlinked_nodes_talk_as_fast_as_a_maximum_spanning_tree_lets_them(
    n: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    graph = nx.gnp_random_graph(n, 0.4, seed=seed)
    graph.add_edges_from(nx.path_graph(n).edges)
    for _, _, data in graph.edges(data=True):
        data["weight"] = float(rng.integers(1, 100))
    between = bottleneck(nx.to_scipy_sparse_array(graph, dtype=float))
    tree = nx.maximum_spanning_tree(graph)
    for j in range(n):
        for i in set(range(n)) - {j}:
            way = nx.shortest_path(tree, j, i)
            narrowest = min(tree.edges[pair]["weight"] for pair in nx.utils.pairwise(way))
            expected = graph.edges[j, i]["weight"] if graph.has_edge(j, i) else narrowest
            assert between[j, i] == expected


def two_racks(n: int, slow: float) -> csr_array:
    """Links of 1000 Mbit/s inside each half, and one slow link between."""
    half = n // 2
    graph = nx.disjoint_union(nx.complete_graph(half), nx.complete_graph(half))
    nx.set_edge_attributes(graph, 1000.0, "weight")
    graph.add_edge(0, half, weight=slow)
    return nx.to_scipy_sparse_array(graph, dtype=float)


def test_a_round_takes_as_long_as_its_slowest_push() -> None:
    between = bottleneck(two_racks(8, 10.0))
    # 4 MB over 1000 and over 10 Mbit/s; only one of the three rounds crosses over.
    matching = seconds_per_round(parse("hypercube-matching", 8), between, 4_000_000)
    assert matching == pytest.approx((0.032 + 0.032 + 3.2) / 3)
    assert seconds_per_round(parse("ring", 8), between, 4_000_000) == pytest.approx(3.2)


@pytest.mark.extended
def test_bandwidths_rank_by_seconds() -> None:
    several = [advice for advice in advise(8, 3, bandwidth=two_racks(8, 10.0)) if advice.fits]
    seconds = [advice.seconds for advice in several if advice.seconds is not None]
    assert len(seconds) == len(several) and seconds == sorted(seconds)
    # As many rounds either way, but pairs cross over in one of them only.
    matching, ring = (named(tuple(several))[name] for name in ("hypercube-matching", "ring"))
    assert several.index(matching) < several.index(ring)


@given(st.sampled_from(sorted(FAMILIES)), st.integers(2, 300), st.integers(1, 100))
def test_there_is_always_a_candidate_and_never_one_twice(name: str, n: int, degree: int) -> None:
    specs = candidates(name, n, degree)
    assert specs and len(set(specs)) == len(specs)
    assert all(spec.partition(":")[0] == name for spec in specs)
