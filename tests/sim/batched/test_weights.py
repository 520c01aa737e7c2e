"""Weights of a fleet as arrays: integers for whole units, floats below a unit."""

from typing import Any

import numpy as np
import pytest

from rumor.gossip.weight import ONE, UNIT, from_units
from rumor.sim import simulate
from rumor.sim.batched.schedule import as_units, in_proportion

from ...faults import fault


def test_whole_units_are_integers_and_enter_means_unscaled() -> None:
    units = as_units([[ONE, 3 * UNIT], [0, 5 * UNIT]])
    assert units.dtype == np.int64 and units.tolist() == [[2**40, 3], [0, 5]]
    assert in_proportion(units) is units


def test_the_sum_of_a_workers_shards_fits_the_array() -> None:
    units = as_units([[2**62 * UNIT] * 4])
    assert units.dtype == np.float64 and units.sum(axis=1).tolist() == [2.0**64]


def test_weights_far_below_a_unit_are_floats_and_scaled_for_means() -> None:
    units = as_units([[2**12], [3 * 2**12]])
    assert units.dtype == np.float64 and units.tolist() == [[2.0**-948], [3 * 2.0**-948]]
    assert in_proportion(units).tolist() == [[0.25], [0.75]]


@pytest.mark.extended
@pytest.mark.parametrize("rule", ["gosgd", "adpsgd"])
def test_a_fleet_that_lost_nearly_all_weight_keeps_training(rule: str) -> None:
    faults = [
        fault(1.0 + 0.5 * number + gap_s, kind, peer=number % 2)
        for number in range(70)
        for gap_s, kind in ((0.0, "crash"), (0.01, "restart"))
    ]
    settings: dict[str, Any] = {"steps": 400, "step_s": 0.1, "p": 1.0, "timing": "local"}
    run = simulate(task="quadratic", workers=2, rule=rule, faults=faults, **settings)
    summary, units = run.summary, run.workers["weight_units"]
    assert summary["weight_units_total"] == summary["weight_units_expected"] == 2 * 2**40
    assert units.dtype == np.float64 and 0 < units.sum() < 2.0**-10
    lost = sum(from_units(summary[f"weight_units_{how}"]) for how in ("died", "burned"))
    assert isinstance(summary["weight_units_died"], str) and 0 < 2 * ONE - lost < UNIT >> 10
    assert summary["mixed"] > 100 and 0 < summary["loss"] < 1
    assert 0 < run.series["weight_quantiles"][-1][-1] < 2.0**-50
