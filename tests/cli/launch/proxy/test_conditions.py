"""What holds on the ways between peers."""

from math import inf

import pytest

from rumor.cli.launch.proxy.conditions import (
    Condition,
    Terms,
    Ways,
    between,
    from_peer,
    of_peer,
    terms,
)

PEERS = "abcd"


def ways(holds: Ways) -> set[str]:
    """The ordered pairs on which it holds, as "ab" for from a to b."""
    return {x + y for x in PEERS for y in PEERS if x != y and holds(x, y)}


@pytest.mark.parametrize(
    ("holds", "expected"),
    [
        (of_peer("a"), {"ab", "ac", "ad", "ba", "ca", "da"}),
        (from_peer("a", "b", one_way=True), {"ab"}),
        (from_peer("a", "b", one_way=False), {"ab", "ba"}),
        (from_peer("a", None, one_way=True), {"ab", "ac", "ad"}),
        (from_peer("a", None, one_way=False), {"ab", "ac", "ad", "ba", "ca", "da"}),
        (between([["a", "b"], ["c", "d"]]), {"ac", "ad", "bc", "bd", "ca", "cb", "da", "db"}),
        # Those that none names are one more group.
        (between([["a"]]), {"ab", "ac", "ad", "ba", "ca", "da"}),
        (between([["a"], ["b"]]), {"ab", "ba", "ac", "ca", "ad", "da", "bc", "cb", "bd", "db"}),
    ],
)
def test_a_condition_holds_on_some_ways(holds: Ways, expected: set[str]) -> None:
    assert ways(holds) == expected


def test_without_a_peer_it_holds_on_all() -> None:
    assert len(ways(of_peer(None))) == 12


def test_what_holds_is_taken_together() -> None:
    conditions = [
        Condition(ways=of_peer("a"), loss=0.5, delay_s=0.25, bytes_s=1e6),
        Condition(ways=of_peer(None), loss=0.5, delay_s=0.5, duplicate=0.25, bytes_s=2e6),
        Condition(ways=from_peer("a", "b", one_way=True), cut=True),
    ]
    assert terms(conditions, "a", "b") == Terms(
        cut=True, loss=0.75, duplicate=0.25, delay_s=0.75, bytes_s=1e6
    )
    assert not terms(conditions, "b", "a").cut
    assert terms(conditions, "c", "d").loss == 0.5
    assert terms([], "a", "b") == Terms(bytes_s=inf)
