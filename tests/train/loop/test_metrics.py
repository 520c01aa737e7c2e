"""Rows of metrics: what a step took, and how much of it went to the others."""

from pathlib import Path

import pytest
import torch

from rumor.train.loop.metrics import Recorder
from rumor.train.runtime.telling.counters import Counters
from rumor.train.runtime.telling.stats import PeerStats
from rumor.train.storage.jsonl import read_metrics
from rumor.train.tensors.buffers import MemoryUse


def recorder(path: Path) -> Recorder:
    stats = PeerStats(id="a", counters=Counters(), memory=MemoryUse(model_bytes=32))
    return Recorder(path, lambda: stats, (torch.zeros(8),), log_every=4)


def test_a_row_has_mean_and_spread_of_the_steps_since_the_row_before(tmp_path: Path) -> None:
    noted = recorder(tmp_path / "metrics.jsonl")
    for step, step_s in enumerate((9.0, 1.0, 3.0, 2.0), start=1):
        noted.note(0.5, step_s, 0.5 * step_s)
        if noted.is_due(step):
            noted.write(step)
    noted.close()
    first, second = read_metrics(tmp_path / "metrics.jsonl")
    assert (first["step_s"], first["step_s_sd"]) == (9.0, 0.0)
    assert second["step_s"] == pytest.approx(2.0)
    assert second["step_s_sd"] == pytest.approx((2 / 3) ** 0.5)
    assert second["own_s"] == pytest.approx(1.0)
    assert second["own_s_sd"] == pytest.approx((1 / 6) ** 0.5)
