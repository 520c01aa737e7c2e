"""What is measured on a GPU, measured on the CPU on something tiny; no timing is asserted."""

import pytest

from rumor.benchmarks.exchange.stall import products
from rumor.benchmarks.gpu import AIMS, PARTS, Aim, measure_copies, measure_workers
from rumor.benchmarks.results import Row

from .checked import checked

__all__: list[str] = []


def test_copies_are_timed_both_ways_and_so_is_mixing() -> None:
    result = checked(measure_copies("cpu", (1,), 1))
    assert [row.name for row in result.rows] == ["1 MB, leaving", "1 MB, arriving", "1 MB, mixing"]
    ours = {aim.row.replace("400", "1") for aim in AIMS if aim.result == "copies"}
    assert ours <= {row.name for row in result.rows}


def test_workers_are_simulated_on_both_devices() -> None:
    result = checked(measure_workers("cpu", (8,), 2, 1))
    assert [row.name for row in result.rows] == ["digits, n = 8"]


def test_a_step_on_a_device_is_work() -> None:
    products("cpu", 1e-4)()


def test_aims_are_of_what_is_measured() -> None:
    assert {aim.result for aim in AIMS} <= set(PARTS)


@pytest.mark.parametrize(("unit", "counts"), [("GB/s", 30.0), ("", 1.5)])
def test_an_aim_is_of_a_figure_or_of_a_ratio(unit: str, counts: float) -> None:
    row = Row(name="leaving", ours=30.0, reference=20.0, unit="GB/s")
    assert Aim(result="copies", row="leaving", least=20, unit=unit).of(row) == counts
