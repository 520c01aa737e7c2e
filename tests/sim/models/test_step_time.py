"""Pace: durations are pure functions of seed, worker and step, and have the mean they should."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rumor.gossip.errors import ConfigError
from rumor.sim.models.step_time import StepTime, make_step_time

IDS = ["peer-0", "peer-1", "peer-2"]
DRAWN = ["lognormal", "lognormal:cv=0.3", "pareto", "pareto:shape=3"]
ROWS = [("peer-0", 0, 0.1), ("1", 4, 0.2), (2, 0, 0.3), ("peer-0", 1, 0.4), ("1", 5, 0.5)]


def pace(spec: str, *, step_s: float = 0.1, slow: tuple[str, ...] = (), seed: int = 0) -> StepTime:
    return make_step_time(spec, ids=IDS, step_s=step_s, slow=slow, seed=seed)


def durations(pace: StepTime, worker: int, steps: int) -> list[float]:
    return [pace.step_s(worker, step) for step in range(steps)]


def write_csv(
    path: Path, rows: Sequence[tuple[object, ...]], header: str = "worker,step,seconds"
) -> str:
    lines = [header, *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n\n")
    return f"trace:path={path}"


def refusal(spec: str) -> str:
    with pytest.raises(ConfigError) as caught:
        pace(spec)
    text = str(caught.value)
    assert len(text.splitlines()) <= 2
    return text


def test_constant_steps_take_what_they_are_told_times_the_factor() -> None:
    constant = pace("constant", slow=("1:10",))
    assert durations(constant, 0, 3) == [0.1] * 3 and durations(constant, 1, 2) == [1.0] * 2
    assert constant.mean_s(1) == 1.0


@pytest.mark.parametrize("spec", DRAWN)
def test_drawn_durations_have_the_mean_that_was_asked_for(spec: str) -> None:
    drawn = pace(spec, slow=("1:10",))
    assert drawn.mean_s(0) == 0.1 and drawn.mean_s(1) == 1.0
    found = durations(drawn, 1, 50_000)
    assert min(found) > 0 and np.mean(found) == pytest.approx(1.0, rel=0.02)


def test_lognormal_has_the_coefficient_of_variation_that_was_asked_for() -> None:
    found = durations(pace("lognormal:cv=0.5"), 0, 50_000)
    assert np.std(found) / np.mean(found) == pytest.approx(0.5, rel=0.03)
    assert durations(pace("lognormal:cv=0"), 0, 3) == [0.1] * 3


def test_pareto_has_the_tail_of_its_shape() -> None:
    found = np.array(durations(pace("pareto:shape=2"), 0, 50_000))
    assert found.min() >= 0.05
    for times in (2, 4, 8):
        assert (found > times * 0.05).mean() == pytest.approx(times**-2.0, rel=0.1)


@pytest.mark.parametrize("spec", DRAWN)
def test_a_duration_does_not_depend_on_what_was_asked_before(spec: str) -> None:
    in_order, backwards = pace(spec), pace(spec)
    forth = [durations(in_order, worker, 200) for worker in range(3)]
    back = {(w, s): backwards.step_s(w, s) for s in reversed(range(200)) for w in range(3)}
    assert all(back[w, s] == forth[w][s] for w in range(3) for s in range(200))
    assert len({duration for row in forth for duration in row}) == 600
    assert durations(pace(spec, seed=1), 0, 200) != forth[0]


def test_draws_belong_to_ids_whatever_other_workers_there_are() -> None:
    alone = make_step_time("lognormal", ids=["peer-2"], step_s=0.1, seed=0)
    assert durations(alone, 0, 100) == durations(pace("lognormal"), 2, 100)


@pytest.mark.parametrize("step_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_step_must_take_time(step_s: float) -> None:
    with pytest.raises(ConfigError, match=f"step_s is {step_s}"):
        pace("constant", step_s=step_s)


def test_factors_that_make_steps_endless_are_refused() -> None:
    with pytest.raises(ConfigError, match="steps would take inf"):
        pace("constant", step_s=1e308, slow=("0:100",))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("lognormall", "did you mean 'lognormal'?"),
        ("uniform:a=1", "Valid names: constant, lognormal, pareto, trace"),
        ("constant:cv=1", "it takes no parameters: write 'constant'"),
        ("lognormal:sigma=1", "it takes cv= (in [0, 100]; default: 0.3), not 'sigma'"),
        ("lognormal:cv=-1", "cv=-1: it must be in [0, 100]"),
        ("pareto:shape=1", "shape=1: it must be above 1"),
        ("pareto:shape=inf", "shape=inf: it must be"),
        ("trace", "it needs path=, a file"),
        ("trace:path=", "path=: it must be a file"),
    ],
)
def test_a_spec_that_is_not_valid_is_answered_with_what_is(spec: str, words: str) -> None:
    assert words in refusal(spec)


def test_a_trace_is_repeated_row_by_row_and_starts_again(tmp_path: Path) -> None:
    recorded = pace(write_csv(tmp_path / "a,b=c.csv", ROWS), slow=("1:10",))
    assert durations(recorded, 0, 5) == [0.1, 0.4, 0.1, 0.4, 0.1]
    assert durations(recorded, 1, 3) == [2.0, 5.0, 2.0] and recorded.mean_s(1) == 3.5
    assert durations(recorded, 2, 2) == [0.3, 0.3]


def test_a_trace_of_json_lines_says_the_same_as_one_of_csv(tmp_path: Path) -> None:
    lines = [json.dumps({"worker": w, "step": n, "seconds": s, "loss": None}) for w, n, s in ROWS]
    (tmp_path / "trace.jsonl").write_text("\n" + "\n\n".join(lines))
    one, other = (
        pace(f"trace:path={tmp_path / 'trace.jsonl'}"),
        pace(write_csv(tmp_path / "t", ROWS)),
    )
    assert all(durations(one, w, 4) == durations(other, w, 4) for w in range(3))


def test_a_trace_may_have_start_times_and_short_pauses(tmp_path: Path) -> None:
    rows = [("0", 7.0, 0.5), ("1", 0, 1), ("2", 0, 1), ("0", 7.499, 0.25), ("0", 7.8, 0.5)]
    recorded = pace(write_csv(tmp_path / "t", rows, "worker,start_s,seconds"))
    assert durations(recorded, 0, 3) == [0.5, 0.25, 0.5]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (("peer-0", 3, 1), "line 7: worker peer-0 is at step 3 after step 1: it must be 2"),
        (("peer-0", 1, 1), "is at step 1 after step 1"),
        (("2", 0.5, 1), "is at step 0.5 after step 0"),
        (("peer-0", 2, -0.1), "line 7: seconds is -0.1: it must be a finite number above 0"),
        (("peer-0", 2, 0), "seconds is 0: it must"),
        (("peer-0", 2, "nan"), "seconds is nan: it must be a finite number"),
        (("peer-0", 2, ""), "seconds is : it must be a finite number"),
        (("peer-0", "x", 1), "step is x: it must be a finite number"),
        (("peer-3", 0, 1), "worker is peer-3: it must be an index, 0 to 2, or an id, peer-0 to"),
        ((3, 0, 1), "worker is 3: it must be an index"),
        (("peer-0", 2), "line 7 has 2 fields: it must have 3, worker, step, seconds"),
        (("peer-0", 2, '"1'), " is not CSV: "),
    ],
)
def test_a_row_that_cannot_be_is_named(tmp_path: Path, row: tuple[object, ...], words: str) -> None:
    text = refusal(write_csv(tmp_path / "trace.csv", [*ROWS, row]))
    assert f"trace {tmp_path / 'trace.csv'}" in text and words in text


@pytest.mark.parametrize("step", [-1, 1.5])
def test_a_first_step_is_a_whole_number(tmp_path: Path, step: float) -> None:
    spec = write_csv(tmp_path / "t", [("0", step, 1)])
    assert f"line 2: step is {step}: it must be a whole number of 0 or more" in refusal(spec)


@pytest.mark.parametrize(
    ("start_s", "words"),
    [
        (2.6, "of worker 0 nothing is known from 2 s to 2.6 s: a step is missing"),
        (1.5, "worker 0 starts a step at 1.5 s, before its last one ends at 2 s"),
    ],
)
def test_start_times_with_a_gap_or_an_overlap_are_refused(
    tmp_path: Path, start_s: float, words: str
) -> None:
    rows: list[tuple[object, ...]] = [("0", 1, 1), ("0", start_s, 1)]
    spec = write_csv(tmp_path / "t", rows, "worker,start_s,seconds")
    assert f"line 3: {words}" in refusal(spec)


def test_a_worker_without_rows_is_refused(tmp_path: Path) -> None:
    text = refusal(write_csv(tmp_path / "t", [("0", 0, 1), ("2", 0, 1)]))
    assert "has no row for worker peer-1: each of the 3 workers needs one" in text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty: its first line must name worker, step or start_s, and seconds"),
        ("0,0,0.1\n", "line 1 has the columns 0, 0, 0.1: the first line must name worker"),
        ("worker,seconds\n0,1\n", "the first line must name"),
        ('{"worker": 0,\n', "line 1 is not a JSON object"),
        ('{"worker": 0, "step": 0, "seconds": 1}\n[1]', "line 2 is not a JSON object"),
        ('{"worker": 0, "seconds": 1}', "line 1: there is neither step nor start_s"),
        ('{"worker": true, "step": 0, "seconds": 1}', "worker is True: it must be an index"),
        ('{"worker": 0, "step": 0, "seconds": true}', "seconds is True: it must be a finite"),
        ('{"worker": 0, "step": 0}', "seconds is None: it must be a finite number"),
        ('{"worker": 0, "step": 0, "seconds": 1' + "0" * 400 + "}", "line 1 is not a JSON object"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "trace"
    path.write_text(content)
    assert words in refusal(f"trace:path={path}")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing.csv"
    assert refusal(f"trace:path={missing}").startswith(f"trace {missing} cannot be read: No such")
    (tmp_path / "binary").write_bytes(b"worker\xff\xfe\n")
    assert "cannot be read: it is not UTF-8" in refusal(f"trace:path={tmp_path / 'binary'}")
