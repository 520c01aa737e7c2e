"""Join storms under virtual time, on something small: what is exact is the schedule."""

import pytest

from rumor.benchmarks.swarm.joining import measure_joining_simulated, storm_s
from rumor.sim import NetworkConfig

from .checked import checked

__all__: list[str] = []

TEN_MBIT = NetworkConfig(latency_s=0.0005, bandwidth_mbit=10)


def test_storms_are_held_against_three_formulas() -> None:
    result = checked(measure_joining_simulated(joiners=(1, 3), size_mb=2, bandwidth_mbit=10))
    names = [row.name for row in result.rows]
    assert names[0] == "1 joiner, beside tree"
    assert names[-1] == "3 joiners, beside turns"


def test_one_copy_takes_the_time_of_its_bytes() -> None:
    # 2 MB at 1.25 MB/s, and a step until the donor takes its turn.
    assert storm_s(1, 2_000_000, TEN_MBIT, 0.1) == pytest.approx(1.6, abs=0.25)


def test_copies_are_passed_on_by_those_who_have_just_got_them() -> None:
    one_s, seven_s = (storm_s(count, 2_000_000, TEN_MBIT, 0.1) for count in (1, 7))
    # Eight have it after three rounds of a binomial tree; one after another it would be seven.
    assert 2.5 * one_s < seven_s < 4.5 * one_s
