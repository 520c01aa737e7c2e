"""Metrics: complete rows are read back, a row that a kill cut short is dropped."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip.errors import TrainingError
from rumor.train.storage.jsonl import MetricsLog, read_metrics

ROWS: list[dict[str, object]] = [
    {"step": 1, "loss": 0.5, "a": None},
    {"step": 2, "b": [0.25, -1.0]},
]


def test_non_finite_numbers_become_null_at_any_depth(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "m") as log:
        log.write({"a": math.nan, "b": [math.inf, 1], "c": {"d": (-math.inf, np.float64("nan"))}})
    assert read_metrics(tmp_path / "m") == [{"a": None, "b": [None, 1], "c": {"d": [None, None]}}]


@given(cut=st.integers(0, 80))
def test_a_truncated_file_is_read_and_appended_to(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "m"
    assert read_metrics(path) == []
    with MetricsLog(path) as log:
        for row in ROWS:
            log.write(row)
    text = path.read_bytes()
    path.write_bytes(text[:cut])
    whole = text[:cut].count(b"\n")
    assert read_metrics(path) == ROWS[:whole]
    with MetricsLog(path) as log:
        log.write({"step": 3})
    assert read_metrics(path) == [*ROWS[:whole], {"step": 3}]


@pytest.mark.parametrize("line", ["nonsense", "[1]", "3", ""])
def test_the_error_for_a_broken_line_names_its_number(tmp_path: Path, line: str) -> None:
    (tmp_path / "m").write_text(f'{{"step":1}}\n{line}\n{{"step":2}}\n')
    with pytest.raises(TrainingError, match="m:2 is not a row"):
        read_metrics(tmp_path / "m")


def test_a_value_that_json_lacks_is_refused_and_not_written(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "m") as log:
        with pytest.raises(TypeError):
            log.write({"a": 1, "b": object()})
        log.write(ROWS[0])
    assert read_metrics(tmp_path / "m") == ROWS[:1]
