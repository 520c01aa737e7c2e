"""The three sentences, for every shape of study."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from rumor.sim.study.analysis.findings import findings
from rumor.sim.study.results import Results
from rumor.sim.study.study import Point

from ..made_up import Course, results_of

GRAPHS = ["complete", "ring", "exponential", "torus", "star", "path"]
DATA = [
    Point("iid", {"partition": "shared"}),
    Point("skewed", {"partition": "dirichlet:0.1"}),
]


def of_rules(**courses: Course | None) -> Callable[[Mapping[str, str]], Course | None]:
    return lambda labels: courses[labels["rule"]]


def along_p(rate_s: Callable[[float], float]) -> Callable[[Mapping[str, str]], Course]:
    return lambda labels: Course(rate_s=rate_s(float(labels["p"])), noise=0.02)


SHAPES: dict[str, Callable[[], Results]] = {
    "graphs": lambda: results_of({"topology": GRAPHS}),
    "graphs and data": lambda: results_of({"topology": GRAPHS, "data": DATA}),
    "two rules": lambda: results_of({"rule": ["gosgd", "sgp"]}),
    "one seed": lambda: results_of({"topology": GRAPHS}, seeds=1),
    "one seed, two axes": lambda: results_of({"rule": ["gosgd", "sgp"], "data": DATA}, seeds=1),
    "two seeds": lambda: results_of({"topology": GRAPHS}, seeds=2),
    "one point": lambda: results_of({"topology": ["ring"]}),
    "one point, one seed": lambda: results_of({"topology": ["ring"]}, seeds=1),
    "one point at each place": lambda: results_of({"topology": ["ring"], "data": DATA}),
    "numbers": lambda: results_of({"p": [0.01, 0.1, 1.0]}, along_p(lambda p: 2 / p**0.2)),
    "numbers at places": lambda: results_of(
        {"p": [0.01, 0.1, 1.0], "wire": ["float32", "int8", "float16", "bfloat16"]},
        along_p(lambda p: 2 + abs(p - 0.1) * 4),
    ),
    "three axes": lambda: results_of(
        {"rule": ["gosgd", "sgp"], "loss": [0, 0.2], "latency_s": [0.001, 0.1]}
    ),
    "never": lambda: results_of({"topology": GRAPHS}, lambda labels: Course(ceiling=0.6)),
    "never, two axes": lambda: results_of(
        {"topology": GRAPHS, "data": DATA}, lambda labels: Course(ceiling=0.6)
    ),
    "never at one place": lambda: results_of(
        {"rule": ["gosgd", "sgp"], "data": DATA},
        lambda labels: Course(ceiling=0.97 if labels["data"] == "iid" else 0.6),
    ),
    "sometimes": lambda: results_of({"topology": GRAPHS}, lambda labels: Course(ceiling=0.9)),
    "consensus": lambda: results_of({"topology": GRAPHS}, task="consensus"),
    "consensus, two axes": lambda: results_of(
        {"topology": GRAPHS, "p": [0.1, 0.5]}, task="consensus"
    ),
    "noise": lambda: results_of({"topology": GRAPHS[:3]}, task="noise"),
    "one rule failed": lambda: results_of(
        {"rule": ["gosgd", "sgp"]}, of_rules(gosgd=Course(), sgp=None)
    ),
    "one place failed": lambda: results_of(
        {"rule": ["gosgd", "sgp"], "data": DATA},
        lambda labels: None if labels["data"] == "skewed" else Course(),
    ),
    "first place failed": lambda: results_of(
        {
            "rule": ["gosgd", "sgp"],
            "data": [*DATA, Point("worse", {"partition": "dirichlet:0.01"})],
        },
        lambda labels: None if labels["data"] == "iid" else Course(),
    ),
    "all failed": lambda: results_of({"rule": ["gosgd", "sgp"]}, lambda labels: None),
    "only loss": lambda: _without_accuracy(results_of({"rule": ["gosgd", "sgp"]})),
    "no figure": lambda: _without_figures(results_of({"rule": ["gosgd", "sgp"]})),
    "no figure at one place": lambda: _without_figures(
        results_of({"rule": ["gosgd", "sgp"], "data": DATA}), "skewed"
    ),
    "no figure, two axes": lambda: _without_figures(
        results_of({"rule": ["gosgd", "sgp"], "data": DATA})
    ),
    "losses below zero": lambda: _with_losses(results_of({"rule": ["gosgd", "sgp"]})),
    "losses below zero, two axes": lambda: _with_losses(
        results_of({"rule": ["gosgd", "sgp"], "data": DATA})
    ),
    "losses below zero, many points": lambda: _with_losses(
        results_of({"rule": ["gosgd", "sgp"], "p": [0.1, 0.2, 0.3, 0.4, 0.5]})
    ),
    "survivors": lambda: _failing(results_of({"rule": ["gosgd", "sgp"]}), "gosgd, seed 0"),
    "survivors, two axes": lambda: _failing(
        results_of({"rule": ["gosgd", "sgp"], "data": DATA}), "gosgd, iid, seed 0"
    ),
    "survivors only": lambda: _failing(
        results_of({"rule": ["gosgd", "sgp"]}), "gosgd, seed 0", "sgp, seed 1"
    ),
    "interrupted": lambda: results_of(
        {"topology": GRAPHS},
        leave_out=lambda trial: trial.seed == 2 or (trial.seed == 1 and trial.group != ("ring",)),
    ),
    "interrupted, two axes": lambda: results_of(
        {"topology": GRAPHS, "data": DATA},
        leave_out=lambda trial: trial.seed == 2 and trial.labels["data"] == "skewed",
    ),
    "no seeds in common": lambda: results_of(
        {"rule": ["gosgd", "sgp"]},
        leave_out=lambda trial: (trial.seed < 2) == (trial.labels["rule"] == "sgp"),
        seeds=4,
    ),
    "line breaks": lambda: results_of(
        {"way": [Point("a\nb", {"p": 0.1}), Point("c\r\n d", {"p": 0.2})], "data": DATA}
    ),
    "all alike, one axis": lambda: results_of(
        {"rule": ["gosgd", "sgp", "dpsgd"]}, lambda labels: Course(noise=0.0)
    ),
    "one seed late": lambda: _late(results_of({"rule": ["gosgd", "sgp"]}), "sgp, seed 0"),
    "ties and late ones at many places": lambda: _late(
        results_of(
            {"rule": ["gosgd", "sgp", "dpsgd"], "p": [0.1, 0.2, 0.3, 0.4]},
            lambda labels: Course(noise=0.0),
        ),
        "sgp, 0.1, seed 0",
        "dpsgd, 0.4, seed 0",
        "dpsgd, 0.4, seed 1",
        "dpsgd, 0.4, seed 2",
    ),
    "all alike": lambda: results_of(
        {"rule": ["gosgd", "sgp"], "data": DATA}, lambda labels: Course(noise=0.0)
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_study_has_three_sentences(shape: str) -> None:
    found = findings(SHAPES[shape]())
    assert len(set(found)) == 3
    for sentence in found:
        assert sentence.endswith(".") and not sentence.endswith("..")
        assert sentence[0].isupper()
        assert "\n" not in sentence
        assert not re.search(r"\b(nan|inf|None)\b|—|  | ,|\{|\}|;\.| ;", sentence), sentence
        # No full stop but at the end: one sentence.
        assert not re.search(r"\. [A-Z]", sentence), sentence


@pytest.mark.parametrize("shape", SHAPES)
def test_findings_are_the_same_each_time(shape: str) -> None:
    assert findings(SHAPES[shape]()) == findings(SHAPES[shape]())


def test_the_best_is_named_with_its_figure_and_its_margin_with_the_uncertainty() -> None:
    first, second, third = findings(
        results_of(
            {"rule": ["gosgd", "sgp"]},
            of_rules(gosgd=Course(rate_s=4), sgp=Course(rate_s=2)),
        )
    )
    number = r"[\d.]+"
    assert re.fullmatch(
        rf"The lowest mean virtual time to target 0\.9 is that of sgp: {number} ± {number} s\.",
        first,
    )
    assert re.fullmatch(
        rf"The margin of sgp over gosgd is {number} times \(95 %: {number} to {number}, "
        rf"p [=<] {number}\)\.",
        second,
    )
    assert third == "All reach accuracy 0.9 with every seed."


def test_the_margin_of_who_is_ahead_is_never_less_than_nothing() -> None:
    def course(labels: Mapping[str, str]) -> Course:
        return Course(ceiling=0.8 if labels["rule"] == "sgp" else 0.7)

    _, second, _ = findings(results_of({"rule": ["gosgd", "sgp"]}, course))
    assert re.match(r"The margin of sgp over gosgd is [\d.]+ points \(95 %: [\d.]+ to", second)


def test_what_is_not_told_apart_is_not_called_as_good() -> None:
    _, second, _ = findings(
        results_of({"rule": ["gosgd", "sgp"]}, lambda labels: Course(noise=0.1))
    )
    assert re.fullmatch(
        r"Not told apart from gosgd by 3 seeds is sgp \(a difference of \d+ % would have been "
        r"seen\)\.",
        second,
    )


def test_a_tie_is_called_one() -> None:
    first, second, _ = findings(SHAPES["all alike, one axis"]())
    assert first.startswith(
        "The lowest mean virtual time to target 0.9 is shared by gosgd, sgp and"
    )
    assert second == "A tie, the same with every seed: gosgd, sgp and dpsgd."


def test_the_highest_is_first_where_more_is_better() -> None:
    first, _, _ = findings(SHAPES["never"]())
    assert first.startswith("The highest mean final accuracy is that of ")


def test_one_seed_claims_nothing_about_noise() -> None:
    _, second, _ = findings(SHAPES["one seed"]())
    assert second == "One seed only: which differences are noise is not known."


def test_those_that_never_arrive_are_named_and_those_that_sometimes_do() -> None:
    ceilings = {"gosgd": 0.97, "sgp": 0.6, "dpsgd": 0.9}
    results = results_of(
        {"rule": list(ceilings)}, lambda labels: Course(ceiling=ceilings[labels["rule"]]), seeds=6
    )
    _, _, third = findings(results)
    assert third == (
        "Accuracy 0.9 is never reached by sgp; accuracy 0.9 is not reached with every seed by "
        "dpsgd; that is more than chance."
    )


def test_that_some_seeds_do_not_arrive_is_called_chance_where_it_may_be() -> None:
    _, second, third = findings(SHAPES["one seed late"]())
    assert third == (
        "Accuracy 0.9 is not reached with every seed by sgp; that may be chance: none of them is "
        "told apart from the first."
    )
    assert re.fullmatch(
        r"Not told apart from gosgd by 3 seeds is sgp \(a difference of [\d.]+ points of final "
        r"accuracy would have been seen\)\.",
        second,
    )


def test_of_several_places_each_has_its_clause_and_names_are_counted() -> None:
    def course(labels: Mapping[str, str]) -> Course:
        late = labels["data"] == "skewed" and labels["rule"] == "sgp"
        return Course(ceiling=0.6 if late else 0.97, rate_s=2 if labels["rule"] == "sgp" else 4)

    first, _, third = findings(results_of({"rule": ["gosgd", "sgp"], "data": DATA}, course))
    of = "the lowest mean virtual time to target 0.9 is that of"
    assert first.startswith(f"With data iid, {of} sgp: ")
    assert f"; with data skewed, {of} gosgd: " in first
    assert third == (
        "Accuracy 0.9 is never reached by sgp (at 1 of 2 places); that is more than chance."
    )


def test_many_places_are_counted() -> None:
    first, second, _ = findings(SHAPES["numbers at places"]())
    assert "is that of p = 0.1 (at 4 of 4 places)" in first
    assert second.startswith("The first is ahead of all others by more than the noise at ")


def test_a_study_without_accuracy_speaks_of_agreement_alone() -> None:
    first, _, third = findings(SHAPES["consensus"]())
    assert first.startswith("The lowest mean final disagreement is that of complete: ")
    assert third == "The task has no accuracy to reach."


def test_points_without_results_and_with_too_few_seeds_are_named() -> None:
    _, _, third = findings(SHAPES["one rule failed"]())
    assert third.endswith("results are missing of sgp.")
    _, second, third = findings(SHAPES["survivors"]())
    assert second == "Only sgp can be compared."
    assert third.endswith("results are missing of gosgd.")


def test_without_any_result_that_is_all_there_is_to_say() -> None:
    first, second, _ = findings(SHAPES["all failed"]())
    assert first == "There is nothing to say yet: no trial has a result."
    assert second == "The study asks for 6 trials, of which 6 failed."


def test_names_with_commas_are_quoted() -> None:
    points = [Point("1x:50%,4x:50%", {"p": 0.1}), Point("plain", {"p": 0.2})]
    first, second, _ = findings(results_of({"speeds": points}))
    assert '"1x:50%,4x:50%"' in first + second


def test_noise_that_is_not_known_puts_nobody_ahead() -> None:
    _, second, _ = findings(SHAPES["no seeds in common"]())
    assert "too few seeds in common to tell" in second.lower()


def _late(results: Results, *trials: str) -> Results:
    """Some trials come near the target, and do not reach it."""
    return replace(
        results,
        results=tuple(
            replace(
                one,
                series={
                    **one.series,
                    "accuracy": (0.1,) * (len(one.series["time_s"]) - 1) + (0.88,),
                },
                summary={**one.summary, "accuracy": 0.88},
            )
            if str(one.trial) in trials
            else one
            for one in results.results
        ),
    )


def _failing(results: Results, *trials: str) -> Results:
    kept = tuple(result for result in results.results if str(result.trial) not in trials)
    return replace(results, results=kept, failures=dict.fromkeys(trials, "diverged"))


def _without_figures(results: Results, data: str | None = None) -> Results:
    """Of trials that had nobody left to measure, at all places or one."""
    names = ("accuracy", "loss", "consensus_distance", "disagreement")
    none = dict.fromkeys((*names, "disagreement_stationary"))
    return replace(
        results,
        results=tuple(
            replace(result, series={"time_s": (0.0,)}, summary={**result.summary, **none})
            if data in (None, result.trial.labels.get("data"))
            else result
            for result in results.results
        ),
    )


def _with_losses(results: Results) -> Results:
    """As of a likelihood: loss alone, and less than zero."""
    losses = {"gosgd": -100.0, "sgp": -10.0}
    return replace(
        results,
        results=tuple(
            replace(
                result,
                summary={
                    **result.summary,
                    "loss": losses[result.trial.labels["rule"]] + result.trial.seed - 1,
                },
            )
            for result in _without_accuracy(results).results
        ),
    )


def _without_accuracy(results: Results) -> Results:
    """As of a regression: loss alone."""
    return replace(
        results,
        results=tuple(
            replace(
                result,
                series={name: c for name, c in result.series.items() if "accuracy" not in name},
                summary={**result.summary, "accuracy": None},
            )
            for result in results.results
        ),
    )
