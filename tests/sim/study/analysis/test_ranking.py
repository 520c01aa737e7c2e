"""Rankings: the order, significant differences, and points that never reach the target."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rumor.sim.study.analysis.ranking import SIGNIFICANT, Verdict, by_metric, compare, comparisons
from rumor.sim.study.analysis.verdicts import detectable_words, verdict_words
from rumor.sim.study.metrics import METRICS, values_of
from rumor.sim.study.results import Result, Results
from rumor.sim.study.study import Point, Trial

from ..made_up import Course, results_of

Ends = Mapping[str, float | tuple[float, ...]]


def of_rules(leave_out: Callable[[Trial], bool] | None = None, **found: Course | None) -> Results:
    return results_of(
        {"rule": list(found)}, lambda labels: found[labels["rule"]], leave_out=leave_out
    )


def test_the_fastest_point_to_the_target_is_first() -> None:
    paces = {"gosgd": 5, "sgp": 2, "dpsgd": 3}
    courses: Any = {rule: Course(rate_s=rate_s) for rule, rate_s in paces.items()}
    found = compare(of_rules(**courses))
    assert [row.label for row in found.rows] == ["sgp", "dpsgd", "gosgd"]
    assert (found.metric.name, found.axis) == ("time_to_target_s", "rule")
    best, *others = found.rows
    assert best.verdict is Verdict.FIRST and best.gap is None
    assert all(row.verdict is Verdict.WORSE for row in others)
    assert verdict_words(best, found) == "the best"
    times = values_of(found.groups["sgp"], METRICS["time_to_target_s"], 0.9).values()
    assert len(times) == 3
    assert best.figures["time_to_target_s"].mean == pytest.approx(sum(times) / 3)
    assert "disagreement" not in best.figures


def test_a_gap_in_time_is_a_factor_and_in_accuracy_a_difference() -> None:
    gap = compare(_exact({"gosgd": (4.0, 5.0, 6.0), "sgp": (8.0, 10.0, 12.0)})).rows[1].gap
    assert gap is not None and gap.mean == pytest.approx(2.0)
    assert gap.low < 2.0 < gap.high
    found = compare(of_rules(gosgd=Course(ceiling=0.8), sgp=Course(ceiling=0.7)))
    gap = found.rows[1].gap
    assert found.metric.name == "accuracy"
    assert gap is not None and gap.mean == pytest.approx(-0.1, abs=0.02)


def test_a_difference_below_the_noise_is_not_significant() -> None:
    found = compare(_exact({"gosgd": (4.0, 5.0, 6.0), "sgp": (5.5, 4.5, 6.5)}))
    first, other = found.rows
    assert (first.verdict, other.verdict) == (Verdict.FIRST, Verdict.UNDECIDED)
    assert other.p > 0.05
    assert verdict_words(first, found) == "first"
    assert verdict_words(other, found) == "no significant difference (detectable: 100 %)"


@pytest.mark.extended
def test_a_detectable_difference_is_found_in_four_of_five_studies() -> None:
    rng, noise, significant, least = np.random.default_rng(3), 0.1, 0, []
    one = compare(_drawn_times(rng, noise, 1.0)).rows[1]
    # Three seeds give a rough estimate of the noise; many such studies give a good one.
    for _ in range(60):
        least.append(math.log(compare(_drawn_times(rng, noise, 1.0)).rows[1].detectable))
    factor = math.exp(float(np.sqrt(np.mean(np.square(least)))))
    assert 1.5 < factor < 4 and one.detectable > 1
    for _ in range(60):
        found = compare(_drawn_times(rng, noise, factor))
        significant += found.rows[1].verdict is Verdict.WORSE
    assert 0.65 * 60 < significant < 0.95 * 60


@pytest.mark.extended
def test_equal_points_are_rarely_called_worse() -> None:
    """About one trial in ten does not reach the target."""
    rng, wrong, missed = np.random.default_rng(5), 0, 0
    for _ in range(60):
        drawn = 5 * np.exp(0.1 * rng.standard_normal((5, 3)))
        times = {str(n): tuple(s if s < 5.7 else None for s in row) for n, row in enumerate(drawn)}
        wrong += any(row.verdict is Verdict.WORSE for row in compare(_exact(times)).rows)
        missed += int((drawn >= 5.7).sum())
    assert 0.04 < missed / (60 * 5 * 3) < 0.2
    # At a rate of 5 %, more are wrong at most once in a hundred times.
    assert wrong <= stats.binom.ppf(0.99, 60, 0.05)


def test_the_same_figure_with_every_seed_is_a_tie() -> None:
    times = {"gosgd": (4.0, 5.0, 6.0), "sgp": (4.0, 5.0, 6.0), "dpsgd": (6.0, 4.0, 5.0)}
    found = compare(_exact(times))
    assert [row.verdict for row in found.rows] == [Verdict.FIRST, Verdict.TIE, Verdict.UNDECIDED]
    assert verdict_words(found.rows[1], found) == "tie: the same with every seed"


TIMES = {
    "gosgd": (4.0, 5.0, 6.0), "sgp": (5.6, 6.2, 7.7), "dpsgd": (5.6, 6.3, 7.6),
    "adpsgd": (5.7, 6.2, 7.5), "relaysgd": (5.5, 6.4, 7.6), "swap": (5.7, 6.3, 7.4),
}  # fmt: skip


def _with_reference(reference: str) -> Results:
    results = _exact(TIMES)
    return replace(results, study=replace(results.study, reference=reference))


def test_a_leading_reference_needs_fewer_comparisons_than_all_pairs() -> None:
    plain, named = compare(_with_reference("")), compare(_with_reference("gosgd"))
    # Six points have 15 pairs, and each point is in 5 of them.
    least, other = (min(row.p for row in found.rows[1:]) for found in (plain, named))
    assert other == pytest.approx(least / 3)
    assert all(row.verdict is Verdict.WORSE for row in named.rows[1:])
    seen = [[row.detectable for row in found.rows[1:]] for found in (plain, named)]
    assert all(finer < coarse for coarse, finer in zip(*seen, strict=True))


def test_a_reference_without_results_is_ignored() -> None:
    results = _with_reference("gosgd")
    rest = tuple(one for one in results.results if one.trial.group[0] != "gosgd")
    found = compare(replace(results, results=rest))
    wanted = compare(replace(_with_reference(""), results=rest))
    assert [row.p for row in found.rows[1:]] == [row.p for row in wanted.rows[1:]]


def test_a_study_ranks_by_the_metric_that_it_names() -> None:
    results = results_of({"rule": ["gosgd", "sgp"]}, seeds=2)
    named = replace(results, study=replace(results.study, metrics=("bytes_sent", "accuracy")))
    assert compare(named).metric.name == "bytes_sent"
    worst = replace(results, study=replace(results.study, metrics=("time_to_target_least_s",)))
    # The worst worker reaches four fifths of the merged model's accuracy, and never the target.
    assert compare(worst).metric.name == "accuracy_least"
    near = replace(worst, study=replace(worst.study, target=0.7))
    assert compare(near).metric.name == "time_to_target_least_s"


def test_points_that_do_not_always_arrive_are_compared_by_how_many_seeds_do() -> None:
    soon = tuple(5.0 + 0.1 * seed for seed in range(8))
    times = {"gosgd": soon, "sgp": tuple(s if n == 0 else None for n, s in enumerate(soon))}
    found = compare(_exact(times))
    late = found.rows[1]
    assert late.verdict is Verdict.WORSE
    assert late.p == pytest.approx(stats.fisher_exact([[1, 7], [8, 0]]).pvalue)
    assert verdict_words(late, found) == "1 of 8 arrive, p = 0.0014"
    few = {"gosgd": (4.0, 5.0, 6.0), "sgp": (None, None, None), "dpsgd": (7.0, 8.0, None)}
    found = compare(_exact(few))
    assert [verdict_words(row, found) for row in found.rows] == [
        "first",
        "2 of 3 arrive; no significant difference",
        "0 of 3 arrive; no significant difference",
    ]


def test_a_point_that_arrives_with_only_some_seeds_has_no_mean_time() -> None:
    found = compare(_exact({"gosgd": (9.0, 9.5, 10.0), "sgp": (1.0, 1.0, None)}))
    assert [row.label for row in found.rows] == ["gosgd", "sgp"]
    lucky = found.rows[1]
    assert (found.reached(lucky), lucky.n, lucky.missing) == (2, 3, 0)
    assert not {"time_to_target_s", "bytes_to_target", "steps_to_target"} & lucky.figures.keys()
    assert lucky.verdict is Verdict.UNDECIDED


def test_points_are_ordered_by_arrivals_and_then_by_accuracy() -> None:
    never = (None, None, None)
    times: dict[str, tuple[float | None, ...]] = {
        "never, poor": never,
        "once": (3.0, None, None),
        "never, good": never,
        "twice": (9.0, 9.0, None),
        "always": (9.0, 9.1, 9.2),
    }
    found = compare(_exact(times, accuracy={"never, poor": 0.3, "never, good": 0.8}))
    order = ["always", "twice", "once", "never, good", "never, poor"]
    assert [row.label for row in found.rows] == order


def test_tasks_without_accuracy_are_compared_by_disagreement() -> None:
    found = compare(results_of({"topology": ["ring", "complete"]}, task="consensus"))
    assert found.metric.name == "disagreement"
    assert [row.label for row in found.rows] == ["complete", "ring"]


def test_one_seed_says_nothing_about_noise() -> None:
    found = compare(results_of({"topology": ["ring", "complete"]}, seeds=1))
    assert not found.noise_known
    assert [row.verdict for row in found.rows] == [Verdict.FIRST, Verdict.NOISE_UNKNOWN]
    assert verdict_words(found.rows[1], found).endswith("; noise unknown")
    assert detectable_words(found.rows[1], found) == "—"
    assert math.isnan(found.rows[1].p)


def test_failed_trials_are_counted_and_points_without_results_named() -> None:
    left_out = lambda trial: trial.labels["rule"] == "sgp" and trial.seed == 2  # noqa: E731
    results = of_rules(left_out, gosgd=Course(), sgp=Course(), dpsgd=None)
    failures = {**results.failures, "sgp, seed 2": "diverged"}
    found = compare(replace(results, failures=failures))
    assert found.missing == ("dpsgd",)
    counts = {row.label: (row.n, row.missing) for row in found.rows}
    assert counts == {"gosgd": (3, 0), "sgp": (2, 1)}


def test_every_place_of_the_other_axes_is_compared_separately() -> None:
    results = results_of(
        {"topology": ["ring", "complete"], "partition": ["shared", "dirichlet:0.1"], "p": [0.1, 1]},
        leave_out=lambda trial: trial.labels["p"] == "1" and trial.labels["partition"] == "shared",
    )
    found = comparisons(results)
    assert [one.at for one in found] == [
        {"partition": "shared", "p": "0.1"},
        {"partition": "dirichlet:0.1", "p": "0.1"},
        {"partition": "dirichlet:0.1", "p": "1"},
    ]
    assert all(len(one.rows) == 2 for one in found)
    assert found[1].metric.name == "time_to_target_s"


def test_without_results_a_comparison_is_empty() -> None:
    results = of_rules(gosgd=None, sgp=None)
    assert comparisons(results) == ()
    found = compare(results)
    assert (found.rows, found.ranked, found.late) == ((), (), ())
    assert found.missing == ("gosgd", "sgp")


def test_a_point_without_a_figure_is_last_and_compared_by_arrivals() -> None:
    metric = METRICS["bytes_to_target"]
    found = by_metric(compare(_exact({"gosgd": (None, None), "sgp": (4.0, 5.0)})), metric)
    assert found.rows[1].label == "gosgd"
    assert found.rows[1].gap is None
    never = by_metric(compare(_exact({"gosgd": (None, None), "sgp": (None, None)})), metric)
    assert all(row.verdict is Verdict.NOT_COMPARED for row in never.rows)
    assert verdict_words(never.rows[1], never) == "0 of 2 arrive"


def test_a_point_with_failed_seeds_is_not_ranked_first() -> None:
    # gosgd is faster with the seeds that do not diverge.
    results = _exact({"gosgd": (1.0, 1.1, 1.2), "sgp": (4.0, 5.0, 6.0)})
    (gone,) = (t for t in results.study.trials() if t.group == ("gosgd",) and t.seed == 2)
    kept = tuple(result for result in results.results if result.trial != gone)
    results = replace(results, results=kept, failures={str(gone): "diverged"})
    ends: Ends = {"gosgd": 0.99, "sgp": 0.9}
    found = by_metric(compare(_with(results, "accuracy", ends)), METRICS["accuracy"])
    assert [row.label for row in found.rows] == ["sgp", "gosgd"]
    assert found.rows[1].figures["accuracy"].mean == 0.99
    assert found.rows[1].gap is None and found.rows[1].verdict is Verdict.NOT_COMPARED
    assert verdict_words(found.rows[1], found) == "2 of 3 seeds have a result"


def test_a_seed_that_has_not_run_is_not_counted() -> None:
    paces = {"gosgd": Course(rate_s=2), "sgp": Course(rate_s=4)}
    found = compare(of_rules(lambda trial: trial.seed == 2, **paces))
    assert [row.missing for row in found.rows] == [0, 0]
    assert found.metric.name == "time_to_target_s"
    assert found.rows[0].figures["time_to_target_s"].n == 2


def test_losses_below_zero_differ_by_no_factor() -> None:
    results = _exact({"gosgd": (4.0, 5.0, 6.0), "sgp": (5.0, 6.0, 7.0)})
    losses = {"gosgd": (-100.0, -101.0, -99.0), "sgp": (-10.0, -11.0, -9.5)}
    found = by_metric(compare(_with(results, "loss", losses)), METRICS["loss"])
    best, behind = found.rows
    assert best.label == "gosgd"
    assert not found.metric.is_ratio
    assert behind.gap is not None
    assert behind.gap.mean == pytest.approx(89.83, abs=0.01)
    assert behind.p < SIGNIFICANT and behind.verdict is Verdict.WORSE


def test_differences_by_rounding_errors_are_not_significant() -> None:
    results = _exact({"gosgd": (4.0,) * 3, "sgp": (5.0,) * 3, "dpsgd": (6.0,) * 3})
    ends: Ends = {"gosgd": 0.0, "sgp": (1e-16, 1.1e-16, 1.2e-16), "dpsgd": (0.1, 0.11, 0.12)}
    found = by_metric(
        compare(_with(results, "consensus_distance", ends)), METRICS["consensus_distance"]
    )
    assert [row.label for row in found.rows if row.verdict is Verdict.UNDECIDED] == ["sgp"]
    assert found.rows[2].p < SIGNIFICANT


def _with(results: Results, name: str, values: Ends) -> Results:
    """*results* with other final figures, by point, or by point and seed."""

    def changed(result: Result) -> Result:
        value = values.get(result.trial.group[0], result.summary[name])
        value = value[result.trial.seed] if isinstance(value, tuple) else value
        return replace(result, summary={**result.summary, name: value})

    return replace(results, results=tuple(map(changed, results.results)))


def _exact(
    times: Mapping[str, tuple[float | None, ...]], accuracy: Mapping[str, float] | None = None
) -> Results:
    """Results that reach accuracy 0.9 at exactly *times*, so that the resolution adds no error."""
    points = [Point(label, {"p": 0.1 + n / 100}) for n, label in enumerate(times)]
    results = results_of({"way": points}, seeds=len(next(iter(times.values()))))

    def at(result: Result) -> Result:
        (way,) = result.trial.group
        at_s = times[way][result.trial.seed]
        end = (accuracy or {}).get(way, 0.95 if at_s is not None else 0.85)
        time_s = (0.0, 20.0, 20.0) if at_s is None else (at_s - 1e-6, at_s, 20.0)
        series = {
            "time_s": time_s,
            "accuracy": (0.1, 0.2 if at_s is None else 0.9, end),
            "steps": tuple(10 * s for s in time_s),
            "bytes_sent": tuple(1e6 * s for s in time_s),
        }
        return replace(result, series=series, summary={**result.summary, "accuracy": end})

    return replace(results, results=tuple(map(at, results.results)))


def _drawn_times(rng: np.random.Generator, noise: float, factor: float) -> Results:
    """Two points on three seeds, of which the second takes *factor* times as long."""
    draws = np.exp(noise * rng.standard_normal((2, 3)))
    return _exact({"gosgd": tuple(5 * draws[0]), "sgp": tuple(5 * factor * draws[1])})
