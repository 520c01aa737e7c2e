"""What a study says of a target that is a loss."""

from pathlib import Path

import pytest

from rumor.gossip import ConfigError
from rumor.sim.study import read_study
from rumor.sim.study.metrics import METRICS
from rumor.sim.study.results import Result
from rumor.sim.study.study import Study, Trial

TEXT = """
question = "Who?"
target = 2.5
metrics = ["time_to_loss_s"]

[settings]
task = "quadratic"
steps = 10

[grid]
rule = ["gosgd", "allreduce"]
machines = [{ name = "alike" }, { name = "in a storm", storm = "spot", time_s = 60.0 }]
"""


def read(folder: Path, text: str) -> Study:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return read_study(path)


def result(loss: tuple[float | None, ...], **summary: float) -> Result:
    series = {"loss": loss, "time_s": (0.0, 1.0, 2.0, 3.0), "bytes_sent": (0.0, 5.0, 7.0, 9.0)}
    trial = Trial(labels={}, settings={"seed": 0})
    return Result(trial=trial, key="", summary=summary, series=series, facts={}, wall_s=0)


def test_a_loss_is_reached_from_above() -> None:
    found = result((4.0, None, 2.5, 2.0))
    assert METRICS["time_to_loss_s"].of(found, 2.5) == 2.0
    assert METRICS["bytes_to_loss"].of(found, 2.0) == 9.0
    assert METRICS["time_to_loss_s"].of(found, 1.9) is None


def test_bytes_are_divided_among_tokens_and_victims_are_back_either_way() -> None:
    found = result((), bytes_sent=900.0, tokens=300.0, restart_s_median=4.0)
    assert METRICS["bytes_per_token"].of(found, 1.0) == 3.0
    assert METRICS["back_s"].of(found, 1.0) == 4.0
    assert METRICS["back_s"].of(result((), join_s_median=6.0), 1.0) == 6.0
    assert METRICS["back_s"].of(result(()), 1.0) is None
    assert METRICS["bytes_per_token"].of(result((), bytes_sent=9.0), 1.0) is None


def test_only_a_loss_may_be_above_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"target is 2\.5"):
        read(tmp_path, TEXT.replace('metrics = ["time_to_loss_s"]', 'metrics = ["loss"]'))
