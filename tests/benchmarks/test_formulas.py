"""What broadcasts take in theory, and other small sums of the benchmarks."""

import pytest

from rumor.benchmarks.exchange.stall import Burst
from rumor.benchmarks.memory import fitting
from rumor.benchmarks.swarm.joining import Wire, chain_s, tree_s, turns_s

__all__: list[str] = []

WIRE = Wire(start_s=0.001, bytes_s=1e9)
SIZE_BYTES = 10**8


def test_two_processes_are_one_transfer_whatever_the_way() -> None:
    for formula in (chain_s, tree_s, turns_s):
        assert formula(2, SIZE_BYTES, WIRE) == pytest.approx(0.101)


def test_a_chain_cut_into_chunks_takes_hardly_longer_than_one_hop() -> None:
    # C* = sqrt(7 * 0.1 / 0.001) = 26.5, so 26 chunks: (26 + 7) (0.001 + 0.1 / 26).
    assert chain_s(9, SIZE_BYTES, WIRE) == pytest.approx(33 * (0.001 + 0.1 / 26))
    best = chain_s(9, SIZE_BYTES, WIRE)
    for chunks in (1, 10, 100, 1000):
        assert best <= (chunks + 7) * (0.001 + 0.1 / chunks)


def test_a_tree_doubles_the_holders_each_round() -> None:
    assert tree_s(5, SIZE_BYTES, WIRE) == tree_s(8, SIZE_BYTES, WIRE) == pytest.approx(0.303)
    assert tree_s(9, SIZE_BYTES, WIRE) == pytest.approx(0.404)
    assert turns_s(9, SIZE_BYTES, WIRE) == pytest.approx(0.808)


def test_pushes_that_memory_would_not_hold_are_left_out() -> None:
    assert fitting(1000, 4, available=10**6) == 1000
    assert fitting(1000, 4, available=4000) == 500
    assert fitting(1000, 4, available=0) == 1


def test_a_burst_knows_its_steps_and_what_gossip_took_of_each() -> None:
    burst = Burst()
    gossiped: list[int] = []
    for _ in range(3):
        burst.step(lambda: gossiped.append(len(burst.steps_s)), lambda: None)
    assert gossiped == [0, 1, 2]
    assert len(burst.steps_s) == len(burst.stalls_s) == 3
    pairs = zip(burst.stalls_s, burst.steps_s, strict=True)
    assert all(0 <= stall_s <= step_s for stall_s, step_s in pairs)
    assert burst.rate == 3 / sum(burst.steps_s)
