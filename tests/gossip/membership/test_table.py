"""Which peers are alive: heartbeats, hearsay, silence, and a peer's own stalls."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Meet, Part
from rumor.gossip.effects.events import PeerDied, PeerLeft, PeerMet, PeerRecovered, PeerSuspected
from rumor.gossip.membership.table import FACTOR_MAX, Change, LocalHealth, MemberTable
from rumor.gossip.wire.messages import HEARTBEAT_MAX, Member, Phase

from ..scene import member

A, B, C = member("a"), member("b"), member("c")

WARY = ProtocolConfig(suspect_s=4.0, dead_s=10.0)

SILENT_S = 100.0
"""By then hearsay counts: nobody has spoken for so long."""


def learn(
    view: MemberTable, entry: Member, now: float = 0.0, *, direct: bool = True
) -> list[Change]:
    """Return the changes when a member, or with hearsay another peer, sends this entry."""
    view.learn(entry, now, direct=direct)
    return view.take_changes()


def met(*others: Member, me: Member = A, config: ProtocolConfig = WARY) -> MemberTable:
    """The table of a peer that has met these; it suspects peers before it considers them dead."""
    view = MemberTable(me, config)
    for other in others or (B,):
        learn(view, other)
    return view


def steps_at_end(view: MemberTable) -> int | None:
    known = view.known.get("b")
    return None if known is None else known.steps_at_end


def ids(view: MemberTable) -> list[str]:
    return [other.id for other in view.live()]


def left(view: MemberTable, peer: str = "b") -> list[Change]:
    view.left(peer)
    return view.take_changes()


def tick(view: MemberTable, now: float) -> list[Change]:
    view.tick(now)
    return view.take_changes()


def ticked(view: MemberTable, times: Iterable[float]) -> list[tuple[float, Change]]:
    """Return what changes, and when, while no peer is heard."""
    return [(now, change) for now in times for change in tick(view, now)]


def seconds(first: int, last: int) -> list[float]:
    return [float(second) for second in range(first, last + 1)]


def test_a_peer_is_met_when_it_speaks_or_its_heartbeat_has_risen_twice() -> None:
    view = MemberTable(A, WARY)
    assert learn(view, B) == [Meet("b", ("b",)), PeerMet("b")]
    assert ids(view) == ["a", "b"] and view.takers() == ("a", "b")
    moved = member("b", heartbeat=2, addresses=("tcp://b:2",))
    assert learn(view, moved) == [Meet("b", ("tcp://b:2",))]
    for heartbeat in (1, 2, 2):
        learn(view, member("c", heartbeat=heartbeat), direct=False)
    assert ids(view) == ["a", "b"]
    learn(view, member("c", heartbeat=3), direct=False)
    assert ids(view) == ["a", "b", "c"]


def test_a_leaver_takes_no_shares_and_an_unreachable_peer_is_skipped_for_a_while() -> None:
    view = met()
    for peer in ("b", "stranger"):
        view.pass_over(peer, 5.0)
    assert not view.reachable(["b"], 4.0) and view.reachable(["b"], 5.0)
    for peer in ("b", "stranger"):
        view.leaving(peer)
    assert view.takers() == ("a",) and ids(view) == ["a", "b"]


def test_a_silent_peer_is_suspected_once_and_then_considered_dead_once() -> None:
    view = met()
    assert ticked(view, seconds(1, 5)) == [(5.0, PeerSuspected("b"))]
    # A suspected peer is skipped, but still belongs to the swarm.
    assert view.reachable(["b"], 5.0) == []
    assert view.is_alive("b") and ids(view) == ["a", "b"] and view.takers() == ("a", "b")
    assert view.members() == (view.me, B), "a suspicion is not passed on"
    assert ticked(view, seconds(6, 60)) == [(11.0, PeerDied("b"))]
    assert view.others(alive=False) == (B,) and view.takers() == ("a",)
    # A suspicion timeout beyond that of death has no effect.
    hasty = met(config=replace(WARY, suspect_s=50.0))
    assert ticked(hasty, seconds(1, 60)) == [(11.0, PeerDied("b"))]


@pytest.mark.parametrize("until", [6, 30])
@pytest.mark.parametrize("how", ["heard", "a hello", "hearsay"])
def test_a_peer_that_is_heard_again_recovers_exactly_once(how: str, until: int) -> None:
    view = met()
    ticked(view, seconds(1, until))
    now, changes = float(until), list[Change]()
    for heartbeat in (2, 3):
        if how == "heard":
            view.heard("b", 1, now)
            changes += view.take_changes()
        else:
            entry = member("b", heartbeat=heartbeat)
            changes += learn(view, entry, now, direct=how == "a hello")
    assert changes == [PeerRecovered("b")]
    assert view.reachable(["b"], now) and ids(view) == ["a", "b"]
    assert ticked(view, seconds(until, until + 5)) == [(now + 5.0, PeerSuspected("b"))]


def test_old_news_revives_no_peer() -> None:
    view = met()
    ticked(view, seconds(1, 6))
    assert not learn(view, B, 6.0, direct=False) and not view.reachable(["b"], 6.0)
    view = met(member("b", incarnation=2))
    ticked(view, seconds(1, 20))
    assert not view.heard("b", 1, 20.0), "an earlier incarnation"
    assert not learn(view, member("b", heartbeat=99), 20.0, direct=False)
    assert not view.is_alive("b")


def test_a_peer_known_by_hearsay_does_not_recover_but_is_met_when_it_speaks() -> None:
    view = MemberTable(A, WARY)
    learn(view, B, direct=False)
    view.heard("b", 1, 1.0)
    assert view.take_changes() == [] and ids(view) == ["a", "b"]


def test_a_late_peer_waits_longer_before_it_judges_others() -> None:
    in_time = ticked(met(), seconds(1, 200))
    view = MemberTable(A, WARY)
    late = [2.0 * n for n in range(100)]
    before, after = late[:50], late[50:]
    ticked(view, before)
    learn(view, B, before[-1])
    changes = ticked(view, after)
    assert [change for _, change in changes] == [change for _, change in in_time]
    suspected_s, died_s = (now - before[-1] for now, _ in changes)
    assert 8.0 <= suspected_s <= 10.0 and 20.0 <= died_s <= 22.0, "twice the usual timeout"


@pytest.mark.parametrize("stall_s", [10.0, 60.0, 3600.0])
def test_a_peers_own_stall_does_not_count_as_silence_of_others(stall_s: float) -> None:
    view = met()
    ticked(view, seconds(1, 3))
    end = 3.0 + stall_s
    assert ticked(view, [end]) == []
    changes = ticked(view, [end + second for second in range(1, 100)])
    assert [change for _, change in changes] == [PeerSuspected("b"), PeerDied("b")]


def test_a_stall_excuses_no_more_silence_than_its_own_length() -> None:
    """Messages that arrived meanwhile are read first; from then on silence counts as usual."""
    view = met()
    ticked(view, seconds(1, 2))
    view.heard("b", 1, 1000.0)
    changes = ticked(view, [1000.0 + second for second in range(100)])
    assert [change for _, change in changes] == [PeerSuspected("b"), PeerDied("b")]
    assert changes[-1][0] <= 1000.0 + 8 * WARY.dead_s


def test_an_earlier_incarnation_is_stale_and_a_later_one_is_met_again() -> None:
    view = met()
    assert PeerMet("b") in learn(view, member("b", heartbeat=0, incarnation=2))
    assert view.incarnation("b") == 2 and not view.heard("b", 1, 0.0)
    assert view.heard("b", 3, 0.0) and view.heard("stranger", 1, 0.0)


def test_a_peer_that_has_left_stays_gone_whatever_arrives_later() -> None:
    view = met()
    assert left(view) == [Part("b"), PeerLeft("b")]
    assert not left(view) and view.departed() == ["b"]
    assert not learn(view, member("b", heartbeat=9), direct=False)
    for now in (1.0, 50.0):
        assert view.heard("b", 1, now)
        assert view.take_changes() == [] and ids(view) == ["a"]
    assert not view.others(alive=False)


def test_a_departure_spreads_by_hearsay_to_peers_that_knew_the_leaver() -> None:
    for gone in (
        member("b", Phase.LEFT, heartbeat=2),
        member("b", Phase.LEFT, incarnation=2),
    ):
        assert not learn(MemberTable(A, WARY), gone, direct=False)
        assert learn(met(), gone, SILENT_S, direct=False) == [Part("b"), PeerLeft("b")]


def test_unconfirmed_peers_are_neither_passed_on_nor_kept_and_dead_ones_are_remembered() -> None:
    """Otherwise peers that forget at different times would remind one another forever."""
    view = met(B, member("d"))
    learn(view, C, direct=False)
    left(view, "d")
    told, changes = [[known.id for known in view.members()]], []
    for second in seconds(1, 12):
        changes += ticked(view, [second])
        told.append([known.id for known in view.members()])
    assert told[0] == told[10] == ["a", "b", "d"] and told[12] == ["a"]
    assert [each for each in changes if isinstance(each[1], Part)] == [(11.0, Part("c"))]
    assert view.member("b") is not None and view.member("c") is None


def test_a_departure_is_remembered_for_long_but_not_forever() -> None:
    view = met()
    left(view)
    ticked(view, seconds(0, 99))
    assert view.member("b") is not None
    tick(view, 101.0)
    assert view.member("b") is None
    view = met(member("b", heartbeat=HEARTBEAT_MAX))
    left(view)
    known = view.member("b")
    assert known is not None and known.heartbeat == HEARTBEAT_MAX, "as a message can hold"


@pytest.mark.parametrize("direct", [False, True])
def test_an_incarnation_from_the_far_future_is_not_believed(direct: bool) -> None:
    view = MemberTable(member("a", incarnation=1000), replace(WARY, incarnation_ahead_max=500))
    assert view.is_plausible(1500, 0.0) and not view.is_plausible(1501, 0.0)
    for peer in ("b", "a"):
        assert not learn(view, member(peer, incarnation=1501), direct=direct)
    assert view.member("b") is None
    learn(view, member("b", incarnation=1400), direct=direct)
    assert not learn(view, member("b", incarnation=1501), direct=direct)
    assert view.incarnation("b") == 1400
    view = MemberTable(view.me, replace(WARY, incarnation_ahead_max=500))
    assert not view.is_plausible(2500, 7.0)
    assert view.is_plausible(2500, 8.0), "incarnations count milliseconds"
    assert PeerMet("c") in learn(view, member("c", incarnation=2500), 8.0, direct=direct)


def test_a_finished_peer_reports_its_number_of_steps_itself() -> None:
    """Others pass on the steps they believe so far, which may be fewer, and so may this peer."""
    view = MemberTable(A, WARY)
    done = member("b", Phase.FINISHED, step=2000)
    assert steps_at_end(view) is None
    learn(view, B)
    learn(view, replace(done, heartbeat=2, step=6), SILENT_S, direct=False)
    entry = view.member("b")
    assert entry is not None and entry.phase is Phase.FINISHED
    assert steps_at_end(view) is None
    learn(view, replace(done, heartbeat=3), SILENT_S + 0.1)
    entry = view.member("b")
    assert entry is not None and entry.step < 2000
    assert steps_at_end(view) == 2000
    learn(view, replace(done, heartbeat=4, phase=Phase.LEAVING), SILENT_S + 0.2)
    assert steps_at_end(view) is None
    learn(view, member("b", incarnation=2), SILENT_S + 0.3)
    assert steps_at_end(view) is None


def test_the_end_of_an_earlier_incarnation_says_nothing_about_a_later_one() -> None:
    done = member("b", Phase.FINISHED, heartbeat=2, step=5)
    view = met(done)
    learn(view, replace(done, incarnation=2, step=7), SILENT_S, direct=False)
    view.heard("b", 2, SILENT_S)
    assert steps_at_end(view) is None


def test_the_set_of_peers_that_only_dial_out_is_updated_at_once() -> None:
    view = MemberTable(replace(A, addresses=()), WARY)
    assert view.outward == {"a"}
    learn(view, replace(B, addresses=()))
    assert view.outward == {"a", "b"}
    learn(view, replace(B, heartbeat=2))
    assert view.outward == {"a"}
    learn(view, member("c", Phase.JOINING, addresses=()))
    assert view.outward == {"a"}, "only peers that take shares are paired"


ENTRIES = st.builds(
    Member,
    id=st.sampled_from("abc"),
    incarnation=st.integers(1, 2),
    heartbeat=st.integers(1, 6),
    phase=st.sampled_from([Phase.TRAINING, Phase.TRAINING, Phase.FINISHED, Phase.LEFT]),
    step=st.integers(0, 9),
    addresses=st.sampled_from([("tcp://x:1",), ("tcp://x:1",), ()]),
    anchored=st.booleans(),
)
EVENTS = st.lists(
    st.tuples(st.sampled_from(["view", "view", "speaks", "tick"]), st.lists(ENTRIES, max_size=4)),
    max_size=25,
)


@given(EVENTS)
def test_absorbing_a_view_gives_the_same_table_as_learning_each_entry(
    events: list[tuple[str, list[Member]]],
) -> None:
    slow, quick = MemberTable(A, WARY), MemberTable(A, WARY)
    for second, (what, entries) in enumerate(events):
        now, said = 1.5 * second, []
        for view in (slow, quick):
            if what == "tick":
                view.tick(now)
            elif what == "speaks":
                view.heard("b", 1, now)
            else:
                rest = entries if view is slow else view.absorb(entries, "", now)
                for entry in rest:
                    view.learn(entry, now, direct=False)
            said.append(view.take_changes())
        assert said[0] == said[1]
        for name in ("b", "c"):
            assert slow.reachable([name], now) == quick.reachable([name], now)
        assert (slow.me, slow.live(), slow.members()) == (quick.me, quick.live(), quick.members())
        assert (slow.takers(), slow.outward) == (quick.takers(), quick.outward)
        assert (slow.clock.rows(), slow.clock.total) == (quick.clock.rows(), quick.clock.total)
        for alive in (False, True):
            assert slow.others(alive=alive) == quick.others(alive=alive)


def test_peers_are_listed_by_id_in_whatever_order_they_came_and_went() -> None:
    view = MemberTable(member("m"), WARY)
    for id in "zbqa":
        learn(view, member(id))
        assert ids(view) == sorted(ids(view))
    view.disown("q")
    learn(view, member("z", Phase.FINISHED, incarnation=2))
    assert ids(view) == ["a", "b", "m", "z"]
    lives = [(m.id, m.incarnation) for m in view.others(alive=True)]
    assert lives == [("a", 1), ("b", 1), ("z", 2)]
    assert [m.id for m in view.members()] == ["m", "a", "b", "z"], "its own entry comes first"


def late(*times: float, interval_s: float = 1.0) -> tuple[LocalHealth, list[float]]:
    health = LocalHealth(interval_s)
    return health, [health.ticked(now) for now in times]


def test_lateness_is_forgotten_once_ticks_are_on_time_again() -> None:
    health, _ = late(*(20.0 * n for n in range(60)))
    assert health.factor == FACTOR_MAX
    for n in range(40):
        health.ticked(1180.0 + 1.0 + n)
        assert n < 12 or health.factor < 1.3
    assert health.factor == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("gap_s", "stalled_s"), [(2.5, 0.0), (3.0, 0.0), (3.5, 2.5), (60.0, 59.0)])
def test_a_long_delay_is_a_stall_not_lateness(gap_s: float, stalled_s: float) -> None:
    _, stalls = late(0.0, 1.0, 1.0 + gap_s)
    assert stalls == [0.0, 0.0, stalled_s]


@given(st.lists(st.floats(0.0, 100.0), max_size=50), st.sampled_from([0.5, 1.0, 7.0]))
def test_patience_grows_within_bounds(gaps: list[float], interval_s: float) -> None:
    health, now = LocalHealth(interval_s), 0.0
    for gap_s in gaps:
        now += gap_s
        assert 0.0 <= health.ticked(now) <= gap_s
        assert 1.0 <= health.factor <= FACTOR_MAX
