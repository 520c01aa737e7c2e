"""Advice ranks all families within a budget and gives reasons against the others."""

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
def test_fitting_families_are_ranked_by_rounds_then_messages(n: int, degree: int) -> None:
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


ANY, ONE_WAY = "works for any n", "directed: not for rules that average in pairs"

REASONS = {
    (13, 1): {
        "base-k:k=1": f"exact after 7 rounds with 0.835 messages per node and round; {ANY}",
        "one-peer-exponential": "a round leaves 0.42 of the squared disagreement, with 1 message "
        f"per node and round; {ANY}; {ONE_WAY}",
        "star": "a node pushes to 12 others in a round, more than 1",
        "torus": "n must be rows x cols, both at least 2: n=12 or n=14 would do",
        "hypercube": "n must be a power of 2: n=8 or n=16 would do",
    },
    (16, 1): {"moshpit:d=4": f"exact after 4 rounds with 1 message per node and round; {ANY}"},
    (12, 3): {"base-k:k=3": f"exact after 2 rounds with 2.5 messages per node and round; {ANY}"},
    (16, 2): {
        "hypercube-matching": "exact after 4 rounds with 1 message per node and round; "
        "needs a power of 2",
        "epidemic-local:s=2": "a round leaves 0.38 of the squared disagreement, with 2 messages "
        f"per node and round; {ANY}; {ONE_WAY}; the mean drifts",
        "random-matching": "a round leaves 0.47 of the squared disagreement, with 1 message per "
        f"node and round; {ANY}",
        "random-regular:d=2": "gap 0.051 with 2 messages per node and round; "
        "needs n x d to be even",
        "path": "gap 0.013 with 1.88 messages per node and round; "
        f"{ANY}; losing any of 14 nodes splits it",
    },
    (5, 4): {
        "star": f"gap 0.2 with 1.6 messages per node and round; {ANY}; losing node 0 splits it"
    },
}
"""Reasons for some families, the best first, by number of nodes and degree."""


@pytest.mark.extended
@pytest.mark.parametrize(("n", "degree"), REASONS)
def test_reasons_for_and_against_a_family_are_given(n: int, degree: int) -> None:
    expected = REASONS[n, degree]
    found = [(each.spec, each.why) for each in advice_on(n, degree) if each.spec in expected]
    assert found == [*expected.items()]


@pytest.mark.parametrize(
    ("n", "degree", "message"),
    [(1, 1, "n=1: it must be from 2 to 2,048"), (2049, 1, "n=2,049: it"), (8, 0, "degree=0")],
)
def test_invalid_sizes_and_budgets_are_refused(n: int, degree: int, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        advise(n, degree)


@given(st.integers(2, 300), st.integers(1, 100))
def test_each_family_always_has_candidate_parameters(n: int, degree: int) -> None:
    several = [family.candidates for family in FAMILIES.values() if family.candidates is not None]
    assert all(list(candidates(n, degree)) for candidates in several)
