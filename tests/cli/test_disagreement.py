"""Consensus distance over a run, estimated from sketches."""

import numpy as np
import pytest

from rumor.cli.disagreement import estimate


def rows(sketches: dict[float, list[float]], steps_per_s: float = 10) -> list[dict[str, object]]:
    made: list[dict[str, object]] = []
    for unix_s, sketch in sketches.items():
        made.append({"step": unix_s * steps_per_s, "unix_s": unix_s, "sketch": sketch})
        made.append({"step": unix_s * steps_per_s + 1, "unix_s": unix_s, "sketch": None})
    return made


def test_it_is_the_spread_around_the_mean_over_the_norm_of_the_mean() -> None:
    steps, distances = estimate([rows({1: [3.0, 1.0]}), rows({1: [3.0, -1.0]})])
    assert steps.tolist() == [10]
    assert distances == pytest.approx([1 / 3])


def test_sketches_are_paired_by_the_nearest_time() -> None:
    one = rows({0.0: [1.0], 1.0: [1.0], 2.0: [1.0]})
    two = rows({0.1: [1.0], 1.1: [3.0]})
    steps, distances = estimate([one, two])
    assert steps.tolist() == [0, 10, 20]
    assert distances == pytest.approx([0, 0.5, 0.5])


def test_a_dead_peer_counts_until_its_death() -> None:
    one = rows({t: [1.0] for t in range(10)})
    two = rows({t: [1.0] for t in range(10)})
    dead = rows({t: [4.0] for t in range(4)})
    steps, distances = estimate([one, two, dead])
    assert len(steps) == 10
    assert (distances[:4] > 0).all() and (distances[6:] == 0).all()


def test_one_peer_has_nobody_to_disagree_with() -> None:
    nobody: list[list[dict[str, object]]] = [[], []]
    for peers in (nobody[:0], nobody, [rows({1: [1.0]})], [rows({1: [1.0]}), []]):
        steps, distances = estimate(peers)
        assert len(steps) == len(distances) == 0


def test_a_mean_of_zero_is_no_division_by_zero() -> None:
    _, distances = estimate([rows({1: [1.0]}), rows({1: [-1.0]})])
    assert np.isfinite(distances).all()
