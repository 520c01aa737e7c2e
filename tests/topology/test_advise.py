"""Advice: all families within a budget, the fastest first, and why the others are not."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.topology import FAMILIES, TopologyError
from rumor.topology.advise import Advice, advise


@cache
def advice_on(n: int, degree: int) -> tuple[Advice, ...]:
    return advise(n, degree)


@pytest.mark.extended
@pytest.mark.parametrize(("n", "degree"), [(2, 1), (12, 3), (13, 1), (16, 2)])
def test_what_fits_keeps_the_budget_and_comes_first_by_rounds_then_messages(
    n: int, degree: int
) -> None:
    several = advice_on(n, degree)
    assert sorted(each.family for each in several) == sorted(set(FAMILIES) - {"hosts", "file"})
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
@pytest.mark.parametrize(
    ("n", "degree", "spec", "reason"),
    [
        (13, 1, "hypercube", "n must be a power of 2"),
        (13, 1, "torus", "n must be rows x cols"),
        (13, 1, "star", "a node pushes to 12 others in a round, more than 1"),
        (13, 1, "one-peer-exponential", "a round leaves"),
        (16, 1, "base-k:k=1", "exact after 4 rounds with 1 message per node and round"),
        (12, 3, "base-k:k=3", "exact after 2 rounds with 2.5 messages"),
        (16, 2, "path", "losing any of 14 nodes splits it"),
        (16, 2, "hypercube-matching", "needs a power of 2"),
        (16, 2, "one-peer-exponential", "works for any n; directed: not for rules"),
        (16, 2, "random-regular:d=2", "needs n x d to be even"),
        (16, 2, "random-matching", "a round leaves 0.47 of the squared disagreement"),
        (16, 2, "epidemic-local:s=2", "the mean drifts"),
        (5, 4, "star", "losing node 0 splits it"),
    ],
)
def test_what_speaks_for_a_family_and_against_it_is_said(
    n: int, degree: int, spec: str, reason: str
) -> None:
    (advice,) = (each for each in advice_on(n, degree) if each.spec == spec)
    assert reason in advice.why


@pytest.mark.parametrize(
    ("n", "degree", "message"),
    [(1, 1, "n=1: it must be from 2 to 2,048"), (2049, 1, "n=2,049: it"), (8, 0, "degree=0")],
)
def test_what_cannot_be_advised_on_is_said(n: int, degree: int, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        advise(n, degree)


@given(st.integers(2, 300), st.integers(1, 100))
def test_each_family_always_has_parameters_to_try(n: int, degree: int) -> None:
    several = [family.candidates for family in FAMILIES.values() if family.candidates is not None]
    assert all(list(candidates(n, degree)) for candidates in several)
