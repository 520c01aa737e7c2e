"""Which topologies are a tree, the same in every round."""

import networkx as nx
import numpy as np
import pytest

from rumor.topology import parse

from .samples import FIXED, dense

TREES = ("path", "star", "tree", "spanning-tree", "scale-free:m=1")


@pytest.mark.parametrize(("spec", "n"), FIXED)
def test_a_graph_is_a_tree_where_networkx_says_so(spec: str, n: int) -> None:
    topology = parse(spec, n)
    edges = dense(topology) != 0
    is_tree = bool((edges == edges.T).all()) and nx.is_tree(
        nx.from_numpy_array(edges & ~np.eye(n, dtype=bool))
    )
    if topology.period == 1 or n == 1:
        assert topology.is_tree == is_tree
    assert topology.is_tree or not spec.startswith(TREES)


@pytest.mark.parametrize("spec", ["random-matching", "one-peer-exponential", "base-k:k=1"])
def test_rounds_that_change_are_no_tree(spec: str) -> None:
    assert not parse(spec, 8).is_tree
