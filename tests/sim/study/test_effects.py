"""What axes behind the first do, and how it is said."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from rumor.sim.study.changes import changes
from rumor.sim.study.study import Condition
from rumor.sim.study.effects import Effect, effect
from rumor.sim.study.results import Results
from rumor.sim.study.study import Point

from .made_up import Course, results_of

NETS = [
    Point("lan", {"latency_s": 0.001}),
    Point("50 ms", {"latency_s": 0.05}),
    Point("100 ms", {"latency_s": 0.1}),
    Point("200 ms", {"latency_s": 0.2}),
]
RULES = ["gosgd", "sgp"]


def known(results: Results, axis: int = 1) -> Effect:
    found = effect(results, results.study.axes[axis])
    assert found is not None
    return found


def slower(**rates: float) -> Callable[[Mapping[str, str]], Course]:
    """By how much each net is slower."""
    factors = {name.replace("_", " ").strip(): rate for name, rate in rates.items()}
    return lambda labels: Course(rate_s=2 * factors.get(labels["net"], 1.0), noise=0.0)


def test_an_effect_is_a_factor_of_the_time_to_the_target() -> None:
    results = results_of(
        {"rule": RULES, "net": NETS[:2]},
        lambda labels: Course(
            rate_s=2.0 * (1 if labels["net"] == "lan" else 3 if labels["rule"] == "sgp" else 2),
            noise=0.0,
            time_s=30.0,
        ),
        points=3001,
    )
    found = known(results)
    assert found.by == pytest.approx({"gosgd": 2.0, "sgp": 3.0}, rel=0.01)
    assert found.size == pytest.approx(math.sqrt(6.0), rel=0.01)
    assert (found.start, found.end) == ("lan", "50 ms")
    assert not found.is_noise


def test_of_several_points_the_one_that_does_most_is_the_effect() -> None:
    results = results_of({"rule": RULES, "net": NETS}, slower(_50_ms=1.2, _100_ms=2.5, _200_ms=2))
    assert known(results).end == "100 ms"


def test_what_loses_the_target_does_more_than_what_delays_it() -> None:
    def course(labels: Mapping[str, str]) -> Course:
        lost = labels == {"rule": "sgp", "net": "50 ms"}
        return Course(rate_s=3 if labels["net"] == "100 ms" else 2, ceiling=0.8 if lost else 0.97)

    found = known(results_of({"rule": RULES, "net": NETS}, course))
    assert (found.end, found.lost, found.gained) == ("50 ms", ("sgp",), ())
    # The one that is lost has no time to compare.
    assert set(found.by) == {"gosgd"}


def test_who_was_left_out_is_not_lost() -> None:
    full = results_of({"rule": RULES, "net": NETS[:2]}, lambda labels: Course())
    study = replace(full.study, skip=(Condition({"rule": "sgp", "net": "50 ms"}),))
    kept = tuple(one for one in full.results if one.trial.group != ("sgp", "50 ms"))
    found = known(Results(study=study, results=kept, failures={}))
    assert found.lost == ()
    assert set(found.by) == {"gosgd"}


def test_seeds_that_failed_are_left_out_of_the_pairs() -> None:
    results = results_of(
        {"rule": RULES, "net": NETS[:2]},
        slower(_50_ms=2),
        leave_out=lambda trial: trial.seed == 1 and trial.labels["net"] == "lan",
    )
    assert known(results).overall.pairs == 2


def test_without_anybody_at_the_target_it_is_accuracy_that_differs() -> None:
    results = results_of(
        {"rule": RULES, "net": NETS[:2]},
        lambda labels: Course(ceiling=0.8 if labels["net"] == "lan" else 0.7, noise=0.0),
    )
    found = known(results)
    assert found.metric.name == "accuracy"
    assert found.size == pytest.approx(-0.1, abs=0.01)


def test_the_more_points_an_axis_has_the_surer_each_must_be() -> None:
    def course(labels: Mapping[str, str]) -> Course:
        return Course(rate_s=2.6 if labels["net"] == "50 ms" else 2, noise=0.05)

    alone = known(results_of({"rule": RULES, "net": NETS[:2]}, course))
    of_several = known(results_of({"rule": RULES, "net": NETS}, course))
    assert alone.end == of_several.end == "50 ms"
    assert alone.overall == of_several.overall
    assert of_several.p == pytest.approx(min(1.0, 3 * alone.p))


def test_with_nothing_to_start_from_there_is_no_effect() -> None:
    results = results_of(
        {"rule": RULES, "net": NETS[:2]},
        lambda labels: None if labels["net"] == "lan" else Course(),
    )
    assert effect(results, results.study.axes[1]) is None
    assert changes(results) == ""


def test_the_effects_of_few_points_are_said_one_by_one() -> None:
    results = results_of({"rule": RULES, "net": NETS[:3]}, slower(_50_ms=1.5, _100_ms=2))
    assert re.fullmatch(
        r"With net 50 ms instead of lan, accuracy 0\.9 takes 1\.\d times as long on average; with "
        r"net 100 ms instead of lan, accuracy 0\.9 takes (1\.9|2|2\.1) times as long on average\.",
        changes(results),
    )


def test_the_effects_of_many_points_stand_in_a_row() -> None:
    def course(labels: Mapping[str, str]) -> Course:
        lost = labels == {"rule": "sgp", "net": "50 ms"}
        slow = 2 if labels["net"] == "100 ms" and labels["rule"] == "sgp" else 1
        return Course(rate_s=2 * slow, ceiling=0.8 if lost else 0.97, noise=0.02)

    assert re.fullmatch(
        r"Against net lan, the time to accuracy 0\.9 is multiplied in the mean by 1(\.\d+)? \(50 "
        r"ms, maybe noise\), 1\.\d+ \(100 ms\) and (1|0\.9\d?)(\.\d+)? \(200 ms, maybe "
        r"noise\); net 100 ms does most, from (1|0\.9\d?) for gosgd to [12](\.\d)? for sgp; the "
        r"target is no longer always reached by sgp \(50 ms\)\.",
        changes(results_of({"rule": RULES, "net": NETS}, course)),
    )


def test_of_several_axes_each_has_its_largest_effect() -> None:
    results = results_of(
        {"rule": RULES, "net": NETS, "p": [0.1, 1.0]},
        lambda labels: Course(
            rate_s=(2 if labels["net"] == "lan" else 3) / float(labels["p"]) ** 0.2, noise=0.0
        ),
    )
    said = changes(results)
    assert said.count("instead of") == 2
    assert "p = 1.0 instead of 0.1" in said


def test_many_points_that_cost_accuracy_cost_points() -> None:
    def course(labels: Mapping[str, str]) -> Course:
        ceilings = {"lan": 0.8, "50 ms": 0.75, "100 ms": 0.7, "200 ms": 0.6}
        return Course(ceiling=ceilings[labels["net"]] - 0.1 * (labels["rule"] == "sgp"), noise=0.01)

    said = changes(results_of({"rule": RULES, "net": NETS}, course))
    minus = "\N{MINUS SIGN}"
    assert re.match(
        rf"Against net lan, the final accuracy moves in the mean by {minus}[45](\.\d)? percentage "
        rf"points \(50 ms\), {minus}(9|10)(\.\d)? percentage points \(100 ms\) and {minus}20? ?",
        said,
    ), said


def test_one_seed_is_said_to_be_one() -> None:
    for nets in (NETS, NETS[:2]):
        results = results_of({"rule": RULES, "net": nets}, slower(_50_ms=2), seeds=1)
        assert "one seed: which part is noise cannot be told" in changes(results)


def test_agreement_is_compared_where_there_is_no_accuracy() -> None:
    results = results_of(
        {"rule": RULES, "net": NETS[:2]},
        lambda labels: Course(consensus_distance=0.1 if labels["net"] == "lan" else 0.2),
        task="consensus",
    )
    assert re.match(
        r"With net 50 ms instead of lan, the final disagreement is [\d.]+ times as large on",
        changes(results),
    )


def test_who_arrives_only_at_another_point_is_won() -> None:
    results = results_of(
        {"rule": RULES, "net": NETS[:2]},
        lambda labels: Course(ceiling=0.8 if labels == {"rule": "sgp", "net": "lan"} else 0.97),
    )
    found = known(results)
    assert (found.lost, found.gained) == ((), ("sgp",))
    assert changes(results).endswith("and only then sgp always gets there.")


@pytest.mark.parametrize("nets", [NETS[:2], NETS], ids=["two", "four"])
def test_losses_at_or_below_zero_differ_by_an_amount(nets: list[Point]) -> None:
    losses = {"lan": -1.0, "50 ms": 0.0, "100 ms": 2.0, "200 ms": 0.5}
    results = results_of({"rule": RULES, "net": nets}, lambda labels: Course())
    changed = tuple(
        replace(
            result,
            series={name: c for name, c in result.series.items() if "accuracy" not in name},
            summary={
                **result.summary,
                "accuracy": None,
                "loss": losses[result.trial.labels["net"]] * (1 + result.trial.seed / 10),
            },
        )
        for result in results.results
    )
    results = replace(results, results=changed)
    found = known(results)
    assert found.metric.name == "loss" and not found.metric.is_ratio
    assert found.overall.pairs == 3
    size, end = {2: (1.1, "50 ms"), 4: (3.3, "100 ms")}[len(nets)]
    assert found.size == pytest.approx(size)
    assert found.end == end
    said = changes(results)
    assert "percentage points" not in said and "times" not in said
    assert ("the final loss is 1.1 larger" if len(nets) == 2 else "by 1.1 (50 ms), 3.3") in said
