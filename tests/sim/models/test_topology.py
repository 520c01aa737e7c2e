"""A topology by names agrees with the topology by numbers."""

import pytest

from rumor.sim.models.topology import WorkerTopology
from rumor.topology import parse

SPECS = ["ring", "exponential", "one-peer-exponential", "base-k:k=1", "random-matching", "star"]


@pytest.mark.parametrize("spec", SPECS)
def test_neighbors_and_weights_match_the_topology(spec: str) -> None:
    n = 6
    topology = parse(spec, n, seed=3)
    ids = tuple(f"peer-{index}" for index in range(n))
    neighborhood = WorkerTopology(topology, ids)
    for round in (0, 1, 2, 7, 1):
        matrix = topology.matrix(round).toarray()
        for node, id in enumerate(ids):
            expected = tuple(ids[other] for other in topology.neighbors(node, round))
            assert neighborhood(ids, id, round) == expected
            weights = neighborhood.weights(ids, id, round)
            row = {ids[other]: matrix[node, other] for other in range(n) if matrix[node, other]}
            assert weights == row
            assert list(weights) == sorted(weights)
