"""What a study says of a target that is a loss."""

from rumor.sim.study.metrics import METRICS
from rumor.sim.study.results import Result
from rumor.sim.study.study import Trial


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
