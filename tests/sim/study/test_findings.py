"""The three sentences, for every shape of study."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from rumor.sim.study.analysis.findings import findings
from rumor.sim.study.format import values_on
from rumor.sim.study.results import Results
from rumor.sim.study.study import Point

from .made_up import Course, results_of

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


def test_the_first_says_who_is_first_and_that_it_is_more_than_noise() -> None:
    first, *_ = findings(
        results_of(
            {"rule": ["gosgd", "sgp"]},
            of_rules(gosgd=Course(rate_s=4), sgp=Course(rate_s=2)),
        )
    )
    assert re.fullmatch(
        r"The fastest to accuracy 0\.9 is sgp, after 5\.\d+ s of virtual time \(mean of 3 seeds"
        r"(, 95 % interval [\d.]+ to [\d.]+ s)?\), ahead of the next, gosgd \(\d+(\.\d+)? s\), "
        r"by more than the noise\.",
        first,
    )


def test_a_tie_is_called_one() -> None:
    first, second, _ = findings(
        results_of({"rule": ["gosgd", "sgp"]}, lambda labels: Course(noise=0.1))
    )
    assert "is as fast within the noise" in first
    assert "which may be noise" in second


def test_a_wide_tie_asks_for_more_seeds() -> None:
    first, *_ = findings(
        results_of(
            {"rule": ["gosgd", "sgp"]},
            of_rules(gosgd=Course(rate_s=2, noise=0.3), sgp=Course(rate_s=3, noise=0.3)),
        )
    )
    assert "more seeds would tell" in first


def test_one_seed_claims_nothing_about_noise() -> None:
    first, *_ = findings(SHAPES["one seed"]())
    assert "from one seed it cannot be told what is noise" in first
    assert "by more than the noise" not in first


def test_those_that_never_arrive_are_named_and_those_that_sometimes_do_are_counted() -> None:
    results = results_of(
        {"rule": ["gosgd", "sgp", "dpsgd", "allreduce"]},
        of_rules(
            gosgd=Course(),
            sgp=Course(ceiling=0.7),
            dpsgd=Course(),
            allreduce=Course(rate_s=2.5),
        ),
    )
    unlucky = tuple(
        replace(result, series={**result.series, "accuracy": (0.1,) * 41})
        if result.trial.group == ("dpsgd",) and result.trial.seed == 0
        else result
        for result in results.results
    )
    _, second, _ = findings(replace(results, results=unlucky))
    assert "accuracy 0.9 is never reached by sgp within 20 s" in second
    assert "with some seeds only it is reached by dpsgd (2 of 3)" in second
    assert "dpsgd, takes" not in second


def test_where_nothing_arrives_that_is_said_first() -> None:
    first, second, _ = findings(SHAPES["never"]())
    assert first.startswith("Nothing reaches accuracy 0.9; the most accurate at the end is ")
    assert "percentage points lower" in second


def test_where_nothing_always_arrives_those_that_sometimes_do_are_named() -> None:
    results = results_of({"rule": ["gosgd", "sgp"]}, lambda labels: Course(ceiling=0.8))
    lucky = tuple(
        replace(result, series={**result.series, "accuracy": (0.91,) * 41})
        if result.trial.group == ("sgp",) and result.trial.seed == 0
        else result
        for result in results.results
    )
    first, *_ = findings(replace(results, results=lucky))
    assert first.startswith(
        "Nothing reaches accuracy 0.9 with every seed, sgp does with some; the most accurate"
    )


def test_a_study_without_accuracy_speaks_of_agreement_alone() -> None:
    for sentence in findings(SHAPES["consensus"]()):
        assert "accuracy" not in sentence
    assert findings(SHAPES["consensus"]())[0].startswith(
        "The one whose workers agree best at the end is complete, with a final disagreement of "
    )


def test_the_second_says_what_the_second_axis_does() -> None:
    _, second, _ = findings(SHAPES["graphs and data"]())
    assert second.startswith("With data skewed instead of iid, accuracy 0.9 takes 1.")
    assert "get there" in second


def test_an_axis_that_does_nothing_is_said_to_do_nothing() -> None:
    results = results_of(
        {"rule": ["gosgd", "sgp"], "loss": [0, 0.2]}, lambda labels: Course(noise=0.1)
    )
    _, second, _ = findings(results)
    assert "which may be noise" in second


def test_an_axis_that_costs_accuracy_says_how_many_points() -> None:
    results = results_of(
        {"rule": ["gosgd", "sgp"], "loss": [0, 0.2]},
        lambda labels: Course(
            ceiling=0.8 if labels["loss"] == "0" else 0.6 if labels["rule"] == "gosgd" else 0.7
        ),
    )
    _, second, _ = findings(results)
    assert re.match(
        r"With loss = 0\.2 instead of 0, the final accuracy is 15 percentage points lower on "
        r"average, from [\d.]+ for sgp to [\d.]+ for gosgd",
        second,
    )


def test_the_third_names_the_fact_that_foretells_best() -> None:
    slowness = dict(zip(GRAPHS, (1.0, 4.0, 2.0, 2.5, 3.0, 3.5), strict=True))
    results = results_of(
        {"topology": GRAPHS},
        lambda labels: Course(
            rate_s=slowness[labels["topology"]],
            noise=0.0,
            facts={"effective_neighbors": 16 / slowness[labels["topology"]]},
        ),
    )
    *_, third = findings(results)
    assert third.startswith(
        "Of the facts about the graphs, effective neighbors foretells the time to accuracy 0.9 "
        "best: the larger it is, the sooner, with a rank correlation of \N{MINUS SIGN}1.00 over "
        "6 graphs"
    )


def test_facts_that_foretell_nothing_are_not_praised() -> None:
    slowness = dict(zip(GRAPHS, (2.0, 2.1, 3.0, 2.9, 2.2, 2.0), strict=True))
    *_, third = findings(
        results_of({"topology": GRAPHS}, lambda labels: Course(rate_s=slowness[labels["topology"]]))
    )
    assert third.startswith(
        "No fact about the graphs foretells the time to accuracy 0.9 more surely"
    )


@pytest.mark.parametrize(
    ("rate_s", "words"),
    [
        (lambda p: 2 / p**0.2, "From p = 0.01 to p = 1.0 the time to accuracy 0.9 falls from"),
        (lambda p: 5 * p**0.2, "From p = 0.01 to p = 1.0 the time to accuracy 0.9 grows from"),
        (lambda p: 2 + abs(p - 0.1) * 4, "is best in between, "),
        (lambda p: 2 + (p == 0.1) * 3, "does not change by more than the noise|not steadily|same"),
    ],
    ids=["falls", "grows", "turns", "unsteady"],
)
def test_the_third_follows_numbers(rate_s: Callable[[float], float], words: str) -> None:
    results = results_of({"p": [0.01, 0.1, 1.0]}, along_p(rate_s))
    *_, third = findings(results)
    assert re.search(words, third), third


def test_of_many_places_it_is_counted_how_often_who_is_first() -> None:
    results = results_of(
        {"rule": ["gosgd", "sgp"], "loss": [0, 0.1, 0.2], "latency_s": [0.001, 0.1]},
        lambda labels: Course(
            rate_s=2.0 if (labels["rule"] == "sgp") == (labels["loss"] == "0") else 4.0
        ),
    )
    first, *_ = findings(results)
    assert first.startswith(
        "The fastest to accuracy 0.9, or as good within the noise, is gosgd at 4 of 6 places "
        "(alone at 4) and sgp at 2 (alone at 2); whoever is fastest "
    )


def test_whoever_is_first_at_every_place_of_many_is_so_at_all() -> None:
    first, *_ = findings(
        results_of(
            {"rule": ["gosgd", "sgp"], "loss": [0, 0.1, 0.2, 0.3]},
            lambda labels: Course(
                ceiling=(0.5 + float(labels["loss"])) * (1 if labels["rule"] == "sgp" else 0.5)
            ),
        )
    )
    assert re.match(
        r"Nothing reaches accuracy 0\.9; the most accurate at the end, or as good within the "
        r"noise, is sgp at all 4 places \(alone at each\); the best final accuracy is between "
        r"(49|50)[.\d]* % \(with loss = 0\) and (79|80)[.\d]* % \(with loss = 0\.3\)\.",
        first,
    )


def test_points_that_failed_are_named() -> None:
    _, second, _ = findings(SHAPES["one rule failed"]())
    assert second == "There are no results of sgp; until then 10.7 MB are sent."


def test_points_that_failed_everywhere_are_named_once() -> None:
    results = results_of(
        {"rule": ["gosgd", "sgp", "dpsgd"], "data": DATA},
        lambda labels: None if labels["rule"] == "dpsgd" else Course(),
    )
    _, second, _ = findings(results)
    assert second.endswith("; there are no results of dpsgd.")


def test_of_several_places_the_range_of_final_accuracies_is_said() -> None:
    *_, third = findings(
        results_of(
            {"rule": ["gosgd", "sgp"], "data": DATA},
            lambda labels: Course(
                ceiling=0.93 if labels == {"rule": "sgp", "data": "skewed"} else 0.97, noise=0.01
            ),
        )
    )
    assert re.search(
        r"final accuracies lie between 9[23][.\d]* % \(sgp with data skewed\) and 97[.\d]* % \(",
        third,
    )


def test_without_any_result_that_is_all_there_is_to_say() -> None:
    first, second, _ = findings(SHAPES["all failed"]())
    assert first == "There is nothing to say yet: no trial has a result."
    assert second == "The study asks for 6 trials, of which 6 failed."


def test_names_with_commas_are_quoted() -> None:
    first, *_ = findings(
        results_of({"speeds": ["1x:50%,4x:50%", "1x:100%"]}, lambda labels: Course())
    )
    assert '"1x:50%,4x:50%"' in first


def test_a_survivor_is_named_as_one_and_does_not_win() -> None:
    results = results_of(
        {"rule": ["gosgd", "sgp"]},
        of_rules(gosgd=Course(rate_s=2), sgp=Course(rate_s=4)),
    )
    first, second, _ = findings(_failing(results, "gosgd, seed 0", "gosgd, seed 2"))
    assert first.startswith(
        "Of those with results of all seeds, the first at accuracy 0.9 is sgp, "
    )
    assert second.startswith("Results are missing of gosgd (1 of 3 seeds have a result); ")


def test_where_seeds_are_missing_at_several_places_that_is_said() -> None:
    _, second, _ = findings(SHAPES["survivors, two axes"]())
    assert second.endswith(
        "results are missing of gosgd with data iid (2 of 3 seeds have a result)."
    )


def test_without_a_figure_there_is_nothing_to_compare() -> None:
    first, *_ = findings(SHAPES["no figure"]())
    assert first.startswith("There is no figure to compare")
    first, *_ = findings(SHAPES["no figure at one place"]())
    assert first.endswith("; there is no figure to compare with data skewed.")


def test_noise_that_is_not_known_puts_nobody_ahead() -> None:
    first, *_ = findings(SHAPES["no seeds in common"]())
    assert "noise not known" in first
    assert "more than the noise" not in first


def test_unknown_noise_makes_nobody_first_alone() -> None:
    results = results_of(
        {"rule": ["gosgd", "sgp"], "loss": [0, 0.1, 0.2, 0.3]},
        lambda labels: Course(ceiling=0.5 if labels["rule"] == "sgp" else 0.8),
        leave_out=lambda trial: (trial.seed < 2) == (trial.labels["rule"] == "sgp"),
        seeds=4,
    )
    first, *_ = findings(results)
    assert "at all 4 places" in first
    assert "alone" not in first


def test_losses_below_zero_keep_their_interval_and_their_order() -> None:
    first, second, _ = findings(SHAPES["losses below zero"]())
    minus = "\N{MINUS SIGN}"
    assert re.search(
        rf"is gosgd, with a final loss of {minus}100 \(mean of 3 seeds, 95 % interval "
        rf"{minus}102 to {minus}97\.5\), ahead of the next, sgp \({minus}10\), by more than",
        first,
    ), first
    assert second.startswith("The last is sgp, whose final loss is 90 larger; ")


@pytest.mark.parametrize(
    ("label", "number"),
    [
        *(("0.1", 0.1), ("-1", -1.0), ("+2", 2.0), ("1e-3", 1e-3), (".5", 0.5), (" 7 ", 7.0)),
        *(("1_0", None), ("\u0661", None), ("nan", None), ("1e999", None), ("0x10", None)),
        *(("-", None), ("", None), ("50 ms", None)),
    ],
)
def test_a_number_is_what_people_write_as_one(label: str, number: float | None) -> None:
    assert values_on((label,)) == (None if number is None else (number,))


def _failing(results: Results, *trials: str) -> Results:
    kept = tuple(result for result in results.results if str(result.trial) not in trials)
    return replace(results, results=kept, failures=dict.fromkeys(trials, "diverged"))


def _without_figures(results: Results, data: str | None = None) -> Results:
    """Of trials that had nobody left to metric, at all places or one."""
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
