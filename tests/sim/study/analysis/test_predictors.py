"""Correlations, held against scipy, and what counts as a prediction at all."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from scipy import stats

from rumor.sim.study.analysis.predictors import Prediction, graph_axis, predictions
from rumor.sim.study.metrics import FACTS
from rumor.sim.study.study import Point

from ..made_up import Course, results_of

GRAPHS = ["ring", "torus", "exponential", "star", "complete", "path", "grid", "tree"]


def by_fact(found: tuple[Prediction, ...], metric: str, **at: str) -> dict[str, Prediction]:
    return {one.fact: one for one in found if one.metric.name == metric and one.at == at}


def ranked(slowness: Mapping[str, float], **course: float) -> Callable[[Mapping[str, str]], Course]:
    """Each graph is as slow as it says, and has that gap."""
    return lambda labels: Course(
        rate_s=slowness[labels["topology"]],
        noise=0.0,
        facts={"spectral_gap": 1 / slowness[labels["topology"]]},
        **course,
    )


def test_a_graph_that_mixes_better_is_sooner_in_results_that_were_made_so() -> None:
    found = by_fact(predictions(results_of({"topology": GRAPHS})), "time_to_target_s")
    assert set(found) <= set(FACTS)
    assert found["contraction"].rho > 0.8
    assert found["spectral_gap"].rho < -0.8
    assert len(found["spectral_gap"].spots) == len(GRAPHS)
    assert found["contraction"].words == "contraction"


def test_a_perfect_order_is_a_correlation_of_one() -> None:
    slowness = {graph: 1.0 + 0.4 * rank for rank, graph in enumerate(GRAPHS)}
    found = predictions(results_of({"topology": GRAPHS}, ranked(slowness), points=2001))
    one = by_fact(found, "time_to_target_s")["spectral_gap"]
    assert one.rho == pytest.approx(-1.0)
    assert one.p < 1e-6
    assert one.censored == ()


def test_rank_correlations_are_those_of_scipy() -> None:
    found = predictions(results_of({"topology": GRAPHS}))
    for one in found:
        y = [math.inf if spot.found is None else spot.found.mean for spot in one.spots]
        if len(set(y)) < 2:
            assert math.isnan(one.rho)
            continue
        wanted = stats.spearmanr([spot.x for spot in one.spots], y)
        assert one.rho == pytest.approx(wanted.statistic)
        assert one.p == pytest.approx(wanted.pvalue)


def test_of_few_graphs_the_p_is_counted_out() -> None:
    slowness = {graph: 1.0 + 0.4 * rank for rank, graph in enumerate(GRAPHS[:4])}
    found = predictions(results_of({"topology": GRAPHS[:4]}, ranked(slowness)))
    one = by_fact(found, "time_to_target_s")["spectral_gap"]
    # Of 24 orders two are perfect.
    assert one.p == pytest.approx(2 / 24)


def test_those_that_never_arrive_count_as_the_slowest() -> None:
    slowness = {graph: 1.0 + 2.0 * rank for rank, graph in enumerate(GRAPHS)}
    one = by_fact(
        predictions(results_of({"topology": GRAPHS}, ranked(slowness))), "time_to_target_s"
    )["spectral_gap"]
    assert one.censored == tuple(GRAPHS[4:])
    assert len(one.spots) == len(GRAPHS)
    assert one.rho < -0.9
    assert [spot.found is None for spot in one.spots] == [False] * 4 + [True] * 4


def test_where_nobody_arrives_only_the_end_is_looked_at() -> None:
    found = predictions(
        results_of({"topology": GRAPHS}, ranked(dict.fromkeys(GRAPHS, 2.0), ceiling=0.5))
    )
    assert {one.metric.name for one in found} == {"accuracy", "consensus_distance", "loss"}


def test_each_place_is_looked_at_by_itself() -> None:
    results = results_of({"topology": GRAPHS[:5], "partition": ["shared", "dirichlet:0.1"]})
    found = predictions(results)
    assert {one.at["partition"] for one in found} == {"shared", "dirichlet:0.1"}
    one = by_fact(found, "consensus_distance", partition="shared")["diameter"]
    assert [spot.label for spot in one.spots] == GRAPHS[:5]


def test_the_graphs_need_not_be_the_first_axis() -> None:
    results = results_of({"partition": ["shared", "dirichlet:0.1"], "topology": GRAPHS[:5]})
    axis = graph_axis(results.study)
    assert axis is not None and axis.name == "topology"
    assert {one.at["partition"] for one in predictions(results)} == {"shared", "dirichlet:0.1"}


@pytest.mark.parametrize("what", ["rule", "workers"])
def test_graphs_that_differ_in_more_are_not_compared(what: str) -> None:
    values: Mapping[str, list[str | int]] = {
        "rule": ["gosgd", "sgp", "dpsgd", "gosgd"],
        "workers": [8, 16, 32, 64],
    }
    points = [
        Point(graph, {"topology": graph, what: value})
        for graph, value in zip(GRAPHS, values[what], strict=False)
    ]
    assert predictions(results_of({"method": points})) == ()


def test_of_graphs_under_several_rules_those_of_the_most_usual_are_compared() -> None:
    points = [Point(graph, {"topology": graph, "rule": "dpsgd"}) for graph in GRAPHS[:4]]
    other = Point("pushed", {"topology": "exponential", "rule": "gosgd"})
    found = predictions(results_of({"graph": [other, *points]}))
    assert {spot.label for one in found for spot in one.spots} == set(GRAPHS[:4])


def test_all_reduce_is_averaging_on_the_complete_graph() -> None:
    points = [Point(graph, {"topology": graph, "rule": "dpsgd"}) for graph in GRAPHS[:4]]
    same = Point("all", {"topology": "complete", "rule": "allreduce"})
    found = predictions(results_of({"graph": [*points, same]}))
    assert "all" in {spot.label for one in found for spot in one.spots}


def test_what_all_points_set_alike_changes_nothing() -> None:
    points = [Point(graph, {"topology": graph, "rule": "sgp"}) for graph in GRAPHS[:4]]
    assert predictions(results_of({"method": points}))


def test_without_an_axis_of_graphs_there_is_nothing_to_predict() -> None:
    assert predictions(results_of({"p": [0.1, 0.2, 0.5, 1.0]})) == ()


def test_three_graphs_are_too_few() -> None:
    assert predictions(results_of({"topology": GRAPHS[:3]})) == ()


def test_a_fact_that_a_graph_does_not_have_leaves_it_out() -> None:
    results = results_of(
        {"topology": GRAPHS},
        lambda labels: Course(facts={"diameter": None} if labels["topology"] == "ring" else None),
    )
    one = by_fact(predictions(results), "consensus_distance")["diameter"]
    assert len(one.spots) == len(GRAPHS) - 1
    assert "ring" not in [spot.label for spot in one.spots]


def test_facts_of_random_graphs_are_means_over_seeds() -> None:
    results = results_of({"topology": GRAPHS[:4]})
    changed = tuple(
        replace(result, facts={**result.facts, "degree_mean": float(result.trial.seed)})
        if result.trial.labels["topology"] == "ring"
        else result
        for result in results.results
    )
    one = by_fact(predictions(replace(results, results=changed)), "accuracy")["degree_mean"]
    assert next(spot.x for spot in one.spots if spot.label == "ring") == pytest.approx(1.0)


def test_tasks_without_accuracy_predict_disagreement() -> None:
    found = predictions(results_of({"topology": GRAPHS[:5]}, task="consensus"))
    assert {one.metric.name for one in found} == {"disagreement", "consensus_distance"}


def test_who_has_no_accuracy_at_the_end_is_the_least_accurate() -> None:
    results = results_of(
        {"topology": GRAPHS},
        lambda labels: Course(
            ceiling=0.8 - 0.05 * GRAPHS.index(labels["topology"]),
            noise=0.0,
            facts={"spectral_gap": 1.0 - 0.1 * GRAPHS.index(labels["topology"])},
        ),
    )
    last = tuple(
        replace(result, summary={**result.summary, "accuracy": None})
        if result.trial.labels["topology"] == GRAPHS[-1]
        else result
        for result in results.results
    )
    one = by_fact(predictions(replace(results, results=last)), "accuracy")["spectral_gap"]
    assert one.rho == pytest.approx(1.0)
    assert one.spots[-1].found is None


def test_graphs_that_lack_seeds_have_no_mean_time() -> None:
    results = results_of(
        {"topology": GRAPHS},
        ranked({graph: 2.0 for graph in GRAPHS}),
        leave_out=lambda trial: trial.seed == 2 and trial.labels["topology"] == "star",
    )
    one = by_fact(predictions(results), "time_to_target_s")["degree_mean"]
    assert one.censored == ("star",)
