"""Advice: all families within a budget, the fastest first, and why the others are not."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.topology import FAMILIES, TopologyError
from rumor.topology.advise import Advice, advise, candidates


@cache
def advice_on(n: int, degree: int) -> tuple[Advice, ...]:
    return advise(n, degree)


def named(several: tuple[Advice, ...]) -> dict[str, Advice]:
    return {advice.family: advice for advice in several}


@pytest.mark.extended
@pytest.mark.parametrize(("n", "degree"), [(2, 1), (12, 3), (13, 1), (16, 2)])
def test_every_family_that_stands_for_no_one_network_is_judged_once(n: int, degree: int) -> None:
    families = [advice.family for advice in advice_on(n, degree)]
    assert sorted(families) == sorted(set(FAMILIES) - {"hosts", "file"})


@pytest.mark.extended
@pytest.mark.parametrize(("n", "degree"), [(12, 3), (13, 1), (16, 2)])
def test_what_fits_keeps_the_budget_and_comes_first_by_rounds_then_messages(
    n: int, degree: int
) -> None:
    several = advice_on(n, degree)
    fits = [advice.fits for advice in several]
    assert fits == sorted(fits, reverse=True)
    known = [advice.facts for advice in several if advice.facts is not None]
    assert all(facts.degree_max <= degree for facts in known)
    costs = [
        (facts.rounds_to_1e_3, facts.rounds_to_1e_3 * facts.messages_per_round)
        for facts in known
        if facts.rounds_to_1e_3 is not None
    ]
    assert len(costs) == len(known) and costs == sorted(costs)


@pytest.mark.extended
def test_one_push_a_round_suffices_for_the_exact_average_of_a_power_of_two() -> None:
    best, *_ = advice_on(16, 1)
    assert best.facts is not None and best.facts.rounds_to_exact == 4
    assert best.why.startswith("exact after 4 rounds with 1 message per node and round")


@pytest.mark.extended
def test_the_best_parameter_of_a_family_is_taken() -> None:
    assert named(advice_on(12, 3))["base-k"].spec == "base-k:k=3"


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("hypercube", "n must be a power of 2"),
        ("torus", "n must be rows x cols"),
        ("star", "a node pushes to 12 others in a round, more than 1"),
    ],
)
def test_what_does_not_fit_says_why(family: str, reason: str) -> None:
    advice = named(advice_on(13, 1))[family]
    assert not advice.fits and advice.why.startswith(reason)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("path", "losing any of 14 nodes splits it"),
        ("base-k", "works for any n"),
        ("hypercube-matching", "needs a power of 2"),
        ("one-peer-exponential", "works for any n; directed: not for rules"),
        ("random-regular", "needs n x d to be even"),
        ("random-matching", "a round leaves 0.47 of the squared disagreement"),
        ("epidemic-local", "the mean drifts"),
    ],
)
def test_what_speaks_for_a_family_and_against_it_is_said(family: str, reason: str) -> None:
    assert reason in named(advice_on(16, 2))[family].why


@pytest.mark.extended
def test_a_star_needs_its_middle() -> None:
    assert "losing node 0 splits it" in named(advice_on(5, 4))["star"].why


def test_a_family_that_is_not_exact_for_an_odd_n_does_not_claim_it() -> None:
    why = named(advice_on(13, 1))["one-peer-exponential"].why
    assert "exact" not in why and "works for any n" in why


@pytest.mark.parametrize(
    ("n", "degree", "message"),
    [(1, 1, "n=1: it must be from 2 to 2,048"), (2049, 1, "n=2,049: it"), (8, 0, "degree=0")],
)
def test_what_cannot_be_advised_on_is_said(n: int, degree: int, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        advise(n, degree)


@given(st.sampled_from(sorted(FAMILIES)), st.integers(2, 300), st.integers(1, 100))
def test_there_is_always_a_candidate_and_never_one_twice(name: str, n: int, degree: int) -> None:
    specs = candidates(name, n, degree)
    assert specs and len(set(specs)) == len(specs)
    assert all(spec.partition(":")[0] == name for spec in specs)
