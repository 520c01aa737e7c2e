"""Pace: durations are pure functions of seed, worker and step, with the requested mean."""

import numpy as np
import pytest

from rumor.gossip.errors import ConfigError
from rumor.sim.models.step_time import StepTime, make_step_time

IDS = ["peer-0", "peer-1", "peer-2"]
DRAWN = ["lognormal", "lognormal:cv=0.3", "pareto", "pareto:shape=3"]


def pace(spec: str, *, step_s: float = 0.1, slow: tuple[str, ...] = (), seed: int = 0) -> StepTime:
    return make_step_time(spec, ids=IDS, step_s=step_s, slow=slow, seed=seed)


def durations(pace: StepTime, worker: int, steps: int) -> list[float]:
    return [pace.step_s(worker, step) for step in range(steps)]


def test_steps_have_the_requested_mean_and_variation() -> None:
    constant = pace("constant", slow=("1:10",))
    assert durations(constant, 0, 3) == [0.1] * 3 and durations(constant, 1, 2) == [1.0] * 2
    assert constant.mean_s(1) == 1.0
    found = durations(pace("lognormal:cv=0.5"), 0, 50_000)
    assert np.std(found) / np.mean(found) == pytest.approx(0.5, rel=0.03)
    assert durations(pace("lognormal:cv=0"), 0, 3) == [0.1] * 3


@pytest.mark.parametrize("spec", DRAWN)
def test_drawn_durations_have_the_requested_mean(spec: str) -> None:
    drawn = pace(spec, slow=("1:10",))
    assert drawn.mean_s(0) == 0.1 and drawn.mean_s(1) == 1.0
    found = durations(drawn, 1, 50_000)
    assert min(found) > 0 and np.mean(found) == pytest.approx(1.0, rel=0.02)


def test_pareto_has_the_tail_of_its_shape() -> None:
    found = np.array(durations(pace("pareto:shape=2"), 0, 50_000))
    assert found.min() >= 0.05
    for times in (2, 4, 8):
        assert (found > times * 0.05).mean() == pytest.approx(times**-2.0, rel=0.1)


@pytest.mark.parametrize("spec", DRAWN)
def test_a_duration_does_not_depend_on_earlier_calls(spec: str) -> None:
    in_order, backwards = pace(spec), pace(spec)
    forth = [durations(in_order, worker, 200) for worker in range(3)]
    back = {(w, s): backwards.step_s(w, s) for s in reversed(range(200)) for w in range(3)}
    assert all(back[w, s] == forth[w][s] for w in range(3) for s in range(200))
    assert len({duration for row in forth for duration in row}) == 600
    assert durations(pace(spec, seed=1), 0, 200) != forth[0]


def test_durations_depend_on_ids_and_not_on_other_workers() -> None:
    alone = make_step_time("lognormal", ids=["peer-2"], step_s=0.1, seed=0)
    assert durations(alone, 0, 100) == durations(pace("lognormal"), 2, 100)


def test_a_step_must_take_time_and_end() -> None:
    for step_s in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match=f"step_s is {step_s}"):
            pace("constant", step_s=step_s)
    with pytest.raises(ConfigError, match="steps would take inf"):
        pace("constant", step_s=1e308, slow=("0:100",))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("lognormall", "unknown pace 'lognormall', did you mean 'lognormal'?"),
        ("lognormal:cv=-1", r"cv=-1: it must be in \[0, 100\]"),
        ("pareto:shape=1", "shape=1: it must be above 1"),
    ],
)
def test_an_invalid_pace_is_refused_with_a_hint(spec: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        pace(spec)
