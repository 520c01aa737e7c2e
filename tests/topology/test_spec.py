"""Specs and the topologies they stand for."""

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.topology import FAMILIES, TopologyError, parse

names = st.sampled_from(sorted(FAMILIES))
sizes = st.integers(1, 64)
rounds = st.integers(0, 2**40)


@given(names, sizes, rounds)
def test_the_graph_has_an_edge_for_every_push_that_is_allowed(
    name: str, n: int, round: int
) -> None:
    topology = parse(name, n)
    graph = topology.graph(round)
    assert list(graph) == list(range(n))
    for node in range(n):
        assert set(graph.adj[node]) == set(topology.neighbors(node, round))


@given(names, sizes)
def test_every_node_can_reach_every_other(name: str, n: int) -> None:
    graph = parse(name, n).graph()
    assert nx.is_strongly_connected(graph) if graph.is_directed() else nx.is_connected(graph)


@given(names, sizes, rounds)
def test_rounds_repeat_after_the_period(name: str, n: int, round: int) -> None:
    topology = parse(name, n)
    for node in range(n):
        later = topology.neighbors(node, round + topology.period)
        assert topology.neighbors(node, round) == later


@given(names, sizes)
def test_the_same_spec_and_size_make_an_equal_topology(name: str, n: int) -> None:
    assert parse(name, n) == parse(name, n)
    assert (parse(name, n).spec, parse(name, n).n) == (name, n)


def test_a_ring_is_the_cycle_and_complete_is_complete() -> None:
    assert nx.utils.graphs_equal(parse("ring", 7).graph(), nx.cycle_graph(7))
    assert nx.utils.graphs_equal(parse("complete", 7).graph(), nx.complete_graph(7))


def test_only_the_exponential_graph_is_directed() -> None:
    directed = {name for name in FAMILIES if parse(name, 8).graph().is_directed()}
    assert directed == {"exponential"}


@pytest.mark.parametrize("spec", ["", "ring,complete", "Ring", " ring", "torus", "7"])
def test_an_unknown_name_is_answered_with_the_valid_ones(spec: str) -> None:
    with pytest.raises(TopologyError) as caught:
        parse(spec, 4)
    assert str(caught.value).startswith(f"unknown topology {spec!r}")
    assert str(caught.value).endswith("Valid names: complete, exponential, ring")


def test_a_slip_of_the_finger_is_met_with_a_guess() -> None:
    with pytest.raises(TopologyError, match="'rnig', did you mean 'ring'"):
        parse("rnig", 4)


@pytest.mark.parametrize("parameters", ["", "k=2", "rows=4,cols=8"])
def test_a_parameter_that_nobody_takes_is_refused(parameters: str) -> None:
    with pytest.raises(TopologyError) as caught:
        parse(f"ring:{parameters}", 4)
    assert str(caught.value) == (
        f"topology 'ring' takes no parameters, but 'ring:{parameters}' gives {parameters!r}: "
        "write 'ring'"
    )


@pytest.mark.parametrize("n", [0, -3])
def test_a_topology_of_nobody_is_refused(n: int) -> None:
    with pytest.raises(TopologyError, match=f"'ring' with n={n}: n must be at least 1"):
        parse("ring", n)


@pytest.mark.parametrize("node", [-1, 4])
def test_a_node_that_is_not_there_is_refused(node: int) -> None:
    with pytest.raises(TopologyError, match=f"ring with n=4 has no node {node}: nodes are 0 to 3"):
        parse("ring", 4).neighbors(node, 0)


def test_a_round_before_the_first_is_refused() -> None:
    with pytest.raises(TopologyError, match="round -1 is negative"):
        parse("ring", 4).graph(-1)


def test_every_family_is_described_in_one_line() -> None:
    assert all(summary and "\n" not in summary for summary in FAMILIES.values())
