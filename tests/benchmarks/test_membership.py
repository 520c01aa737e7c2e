"""The benchmark of membership on four peers; no timing is asserted."""

import pytest

from rumor.benchmarks.swarm.membership import measure_membership

from .checked import checked

__all__: list[str] = []

pytestmark = [pytest.mark.live, pytest.mark.slow]


def test_membership_kills_joins_cuts_and_heals() -> None:
    result = checked(measure_membership(peers=4, timings=("local",), rounds=1, held_s=0.1))
    assert [row.unit for row in result.rows] == ["s"] * 6 + ["bytes/s"]
    assert all(row.name.startswith("local: ") for row in result.rows)
