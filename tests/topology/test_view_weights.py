"""Rows of the mixing matrix on a live view."""

import numpy as np
import pytest

from rumor.topology import TopologyError, View, over, parse

from .samples import dense, ids

SPECS = ["ring", "star", "exponential", "one-peer-exponential", "random-matching", "base-k"]


@pytest.mark.parametrize("spec", SPECS)
def test_weights_are_a_row_of_the_matrix_and_name_whom_a_peer_hears(spec: str) -> None:
    live = ids(7)
    view, topology = View(spec, 5), over(spec, 5, live)
    for round in (0, 1, 2, 30, 1):
        matrix = dense(topology, round)
        for node, peer in enumerate(live):
            weights = view.weights(live, peer, round)
            assert list(weights) == [p for i, p in enumerate(live) if matrix[node, i] or i == node]
            assert list(weights.values()) == [matrix[node, live.index(p)] for p in weights]
            senders = {other for other in live if peer in view(live, other, round)}
            assert senders == set(weights) - {peer}


def test_other_mixing_weights_may_be_asked_for() -> None:
    live = ids(5)
    weights = View("star", 0, "lazy").weights(live, live[0], 0)
    expected = dense(parse("star", 5, mixing="lazy"), 0)[0]
    np.testing.assert_allclose(list(weights.values()), expected, rtol=0, atol=1e-15)


def test_mixing_that_does_not_go_with_the_edges_is_refused() -> None:
    with pytest.raises(TopologyError, match="metropolis"):
        View("exponential", 0, "metropolis").weights(ids(8), ids(8)[0], 0)


def test_who_is_not_there_takes_nothing() -> None:
    assert View("ring", 0).weights(["a", "b"], "c", 0) == {}


def test_of_rounds_at_random_only_the_last_few_are_kept() -> None:
    live, view = ids(6), View("random-matching", 0)
    first = [view.weights(live, live[0], round) for round in range(40)]
    assert [view.weights(live, live[0], round) for round in range(40)] == first
    assert len(view._matrices) == 16


def test_when_somebody_dies_the_weights_are_those_of_the_others() -> None:
    view = View("complete", 0)
    assert set(view.weights(("a", "b", "c"), "a", 0)) == {"a", "b", "c"}
    assert view.weights(("a", "c"), "a", 0) == {"a": 0.5, "c": 0.5}
