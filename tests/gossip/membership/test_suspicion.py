"""Silence: who says nothing for a while is suspected, then considered dead, and may come back."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.events import PeerDied, PeerRecovered, PeerSuspected
from rumor.gossip.membership.table import Change, MemberTable
from rumor.gossip.wire.messages import Member, Phase


def member(id: str, heartbeat: int = 1, incarnation: int = 1) -> Member:
    return Member(
        id=id,
        incarnation=incarnation,
        heartbeat=heartbeat,
        phase=Phase.TRAINING,
        step=0,
        addresses=(f"tcp://{id}:1",),
    )


B = member("b")


WARY = ProtocolConfig(suspect_s=4.0, dead_s=10.0)


def wary(config: ProtocolConfig = WARY) -> MemberTable:
    """One that suspects before it holds for dead, and has met b."""
    view = MemberTable(member("a"), config)
    list(view.learn(B, 0.0, direct=True))
    return view


def ids(view: MemberTable) -> list[str]:
    return [other.id for other in view.live()]


def ticked(view: MemberTable, times: Iterable[float]) -> list[tuple[float, Change]]:
    """What changes, and when, while nobody is heard."""
    return [(now, change) for now in times for change in view.tick(now)]


def seconds(first: int, last: int) -> list[float]:
    return [float(second) for second in range(first, last + 1)]


def test_a_peer_that_falls_silent_is_suspected_once_and_then_considered_dead_once() -> None:
    changes = ticked(wary(), seconds(1, 60))
    assert changes == [(5.0, PeerSuspected("b")), (11.0, PeerDied("b"))]


def test_one_that_is_suspected_is_passed_over_but_belongs_to_the_swarm() -> None:
    view = wary()
    ticked(view, seconds(1, 5))
    assert not view.is_reachable("b", 5.0) and view.reachable(["b"], 5.0) == []
    assert view.is_alive("b") and ids(view) == ["a", "b"] and view.takers() == ("a", "b")
    assert view.members() == (view.me, B), "what is only suspected is not told"


@pytest.mark.parametrize("until", [6, 30])
@pytest.mark.parametrize("how", ["heard", "a hello", "hearsay"])
def test_one_that_is_heard_again_recovers_exactly_once(how: str, until: int) -> None:
    view = wary()
    ticked(view, seconds(1, until))
    now = float(until)
    for heartbeat in (2, 3):
        if how == "heard":
            view.heard("b", 1, now)
        else:
            list(view.learn(member("b", heartbeat), now, direct=how == "a hello"))
    assert view.take_news() == [PeerRecovered("b")]
    assert view.take_news() == [] == view.news
    assert view.is_reachable("b", now) and ids(view) == ["a", "b"]
    assert ticked(view, seconds(until, until + 5)) == [(now + 5.0, PeerSuspected("b"))]


def test_hearsay_that_is_no_news_brings_nobody_back() -> None:
    view = wary()
    ticked(view, seconds(1, 6))
    list(view.learn(B, 6.0, direct=False))
    assert view.take_news() == [] and not view.is_reachable("b", 6.0)


def test_the_dead_are_not_recovered_by_a_word_of_an_earlier_life() -> None:
    view = MemberTable(member("a"), WARY)
    list(view.learn(member("b", incarnation=2), 0.0, direct=True))
    ticked(view, seconds(1, 20))
    assert not view.heard("b", 1, 20.0)
    list(view.learn(member("b", heartbeat=99), 20.0, direct=False))
    assert view.take_news() == [] and not view.is_alive("b")


def test_one_that_has_left_does_not_recover_whatever_it_still_says() -> None:
    view = wary()
    list(view.left("b"))
    for now in (1.0, 50.0):
        assert view.heard("b", 1, now)
        assert view.take_news() == [] and not view.is_alive("b")


def test_one_that_is_only_known_from_hearsay_does_not_recover_when_it_speaks() -> None:
    view = MemberTable(member("a"), WARY)
    list(view.learn(B, 0.0, direct=False))
    assert ids(view) == ["a"]
    view.heard("b", 1, 1.0)
    assert view.take_news() == [] and ids(view) == ["a", "b"]


def test_hearsay_never_kills_one_that_is_heard() -> None:
    """Others may have lost sight of it: their news are old, and its own word is not."""
    view = wary()
    for now in seconds(1, 60):
        view.heard("b", 1, now)
        list(view.learn(B, now, direct=False))
        assert not list(view.tick(now))


def test_a_rising_heartbeat_from_hearsay_keeps_one_alive_who_is_never_heard() -> None:
    view = wary()
    for beat, now in enumerate(seconds(1, 60)):
        list(view.learn(member("b", 2 + beat), now, direct=False))
        assert not list(view.tick(now))


def test_one_that_is_late_itself_waits_longer_with_its_verdicts() -> None:
    in_time = ticked(wary(), seconds(1, 200))
    view = MemberTable(member("a"), WARY)
    late = [2.0 * n for n in range(100)]
    before, after = late[:50], late[50:]
    ticked(view, before)
    list(view.learn(B, before[-1], direct=True))
    changes = ticked(view, after)
    assert [change for _, change in changes] == [change for _, change in in_time]
    suspected_s, died_s = (now - before[-1] for now, _ in changes)
    assert 8.0 <= suspected_s <= 10.0 and 20.0 <= died_s <= 22.0, "twice as long as usual"


@pytest.mark.parametrize("stall_s", [10.0, 60.0, 3600.0])
def test_the_time_of_ones_own_stall_counts_for_nobody(stall_s: float) -> None:
    view = wary()
    ticked(view, seconds(1, 3))
    end = 3.0 + stall_s
    changes = ticked(view, [end])
    assert changes == []
    changes = ticked(view, [end + second for second in range(1, 100)])
    assert [change for _, change in changes] == [PeerSuspected("b"), PeerDied("b")]


def test_a_stall_forgives_nobody_more_than_its_silence() -> None:
    """Words that came meanwhile are read first: from then on silence counts as ever."""
    view = wary()
    ticked(view, seconds(1, 2))
    view.heard("b", 1, 1000.0)
    changes = ticked(view, [1000.0 + second for second in range(100)])
    assert [change for _, change in changes] == [PeerSuspected("b"), PeerDied("b")]
    assert changes[-1][0] <= 1000.0 + 8 * WARY.dead_s


def test_where_suspicion_would_take_longer_than_death_there_is_none() -> None:
    changes = ticked(wary(replace(WARY, suspect_s=50.0)), seconds(1, 60))
    assert changes == [(11.0, PeerDied("b"))]
