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
"""After this time without messages hearsay counts."""


def learn(
    table: MemberTable, entry: Member, now: float = 0.0, *, direct: bool = True
) -> list[Change]:
    """Return the changes when a member (if *direct*) or another peer sends this entry."""
    table.learn(entry, now, direct=direct)
    return table.take_changes()


def met(*others: Member, me: Member = A, config: ProtocolConfig = WARY) -> MemberTable:
    """The table of a peer that has met *others*; it suspects silent peers before their death."""
    table = MemberTable(me, config)
    for other in others or (B,):
        learn(table, other)
    return table


def steps_at_end(table: MemberTable) -> int | None:
    known = table.known.get("b")
    return None if known is None else known.steps_at_end


def ids(table: MemberTable) -> list[str]:
    return [other.id for other in table.live()]


def leave(table: MemberTable, peer: str = "b") -> list[Change]:
    table.left(peer)
    return table.take_changes()


def tick(table: MemberTable, now: float) -> list[Change]:
    table.tick(now)
    return table.take_changes()


def ticked(table: MemberTable, times: Iterable[float]) -> list[tuple[float, Change]]:
    """Return each change with its time while no peer sends a message."""
    return [(now, change) for now in times for change in tick(table, now)]


def seconds(first: int, last: int) -> list[float]:
    return [float(second) for second in range(first, last + 1)]


def test_a_peer_is_met_by_a_message_or_two_heartbeat_increases() -> None:
    table = MemberTable(A, WARY)
    assert learn(table, B) == [Meet("b", ("b",)), PeerMet("b")]
    assert ids(table) == ["a", "b"] and table.takers() == ("a", "b")
    moved = member("b", heartbeat=2, addresses=("tcp://b:2",))
    assert learn(table, moved) == [Meet("b", ("tcp://b:2",))]
    for heartbeat in (1, 2, 2):
        learn(table, member("c", heartbeat=heartbeat), direct=False)
    assert ids(table) == ["a", "b"]
    learn(table, member("c", heartbeat=3), direct=False)
    assert ids(table) == ["a", "b", "c"]


def test_a_leaver_takes_no_shares_and_an_unreachable_peer_is_skipped_for_a_while() -> None:
    table = met()
    for peer in ("b", "stranger"):
        table.pass_over(peer, 5.0)
    assert not table.reachable(["b"], 4.0) and table.reachable(["b"], 5.0)
    for peer in ("b", "stranger"):
        table.leaving(peer)
    assert table.takers() == ("a",) and ids(table) == ["a", "b"]


def test_a_silent_peer_is_suspected_once_and_then_considered_dead_once() -> None:
    table = met()
    assert ticked(table, seconds(1, 5)) == [(5.0, PeerSuspected("b"))]
    # A suspected peer is skipped, but still belongs to the swarm.
    assert table.reachable(["b"], 5.0) == []
    assert table.is_alive("b") and ids(table) == ["a", "b"] and table.takers() == ("a", "b")
    assert table.members() == (table.me, B), "a suspicion is not passed on"
    assert ticked(table, seconds(6, 60)) == [(11.0, PeerDied("b"))]
    assert table.others(alive=False) == (B,) and table.takers() == ("a",)
    # A suspicion timeout beyond that of death has no effect.
    hasty = met(config=replace(WARY, suspect_s=50.0))
    assert ticked(hasty, seconds(1, 60)) == [(11.0, PeerDied("b"))]


@pytest.mark.parametrize("until", [6, 30])
@pytest.mark.parametrize("how", ["a message", "a hello", "hearsay"])
def test_a_peer_that_sends_again_recovers_exactly_once(how: str, until: int) -> None:
    table = met()
    ticked(table, seconds(1, until))
    now, changes = float(until), list[Change]()
    for heartbeat in (2, 3):
        if how == "a message":
            table.heard("b", 1, now)
            changes += table.take_changes()
        else:
            entry = member("b", heartbeat=heartbeat)
            changes += learn(table, entry, now, direct=how == "a hello")
    assert changes == [PeerRecovered("b")]
    assert table.reachable(["b"], now) and ids(table) == ["a", "b"]
    assert ticked(table, seconds(until, until + 5)) == [(now + 5.0, PeerSuspected("b"))]


def test_old_messages_revive_no_peer() -> None:
    table = met()
    ticked(table, seconds(1, 6))
    assert not learn(table, B, 6.0, direct=False) and not table.reachable(["b"], 6.0)
    table = met(member("b", incarnation=2))
    ticked(table, seconds(1, 20))
    assert not table.heard("b", 1, 20.0), "an earlier incarnation"
    assert not learn(table, member("b", heartbeat=99), 20.0, direct=False)
    assert not table.is_alive("b")


def test_the_first_message_of_a_peer_known_by_hearsay_is_no_recovery() -> None:
    table = MemberTable(A, WARY)
    learn(table, B, direct=False)
    table.heard("b", 1, 1.0)
    assert table.take_changes() == [] and ids(table) == ["a", "b"]


def test_a_peer_with_late_ticks_waits_longer_before_it_suspects_others() -> None:
    in_time = ticked(met(), seconds(1, 200))
    table = MemberTable(A, WARY)
    late_ticks = [2.0 * n for n in range(100)]
    before, after = late_ticks[:50], late_ticks[50:]
    ticked(table, before)
    learn(table, B, before[-1])
    changes = ticked(table, after)
    assert [change for _, change in changes] == [change for _, change in in_time]
    suspected_s, died_s = (now - before[-1] for now, _ in changes)
    assert 8.0 <= suspected_s <= 10.0 and 20.0 <= died_s <= 22.0, "twice the usual timeout"


@pytest.mark.parametrize("stall_s", [10.0, 60.0, 3600.0])
def test_a_peers_own_stall_does_not_count_as_silence_of_other_peers(stall_s: float) -> None:
    table = met()
    ticked(table, seconds(1, 3))
    end = 3.0 + stall_s
    assert ticked(table, [end]) == []
    changes = ticked(table, [end + second for second in range(1, 100)])
    assert [change for _, change in changes] == [PeerSuspected("b"), PeerDied("b")]


def test_a_stall_excuses_no_more_silence_than_its_own_length() -> None:
    """Messages that arrived meanwhile are read first; from then on silence counts as usual."""
    table = met()
    ticked(table, seconds(1, 2))
    table.heard("b", 1, 1000.0)
    changes = ticked(table, [1000.0 + second for second in range(100)])
    assert [change for _, change in changes] == [PeerSuspected("b"), PeerDied("b")]
    assert changes[-1][0] <= 1000.0 + 8 * WARY.dead_s


def test_an_earlier_incarnation_is_stale_and_a_later_one_is_met() -> None:
    table = met()
    assert PeerMet("b") in learn(table, member("b", heartbeat=0, incarnation=2))
    assert table.incarnation("b") == 2 and not table.heard("b", 1, 0.0)
    assert table.heard("b", 3, 0.0) and table.heard("stranger", 1, 0.0)


def test_a_peer_that_has_left_stays_gone_despite_later_messages() -> None:
    table = met()
    assert leave(table) == [Part("b"), PeerLeft("b")]
    assert not leave(table) and table.departed() == ["b"]
    assert not learn(table, member("b", heartbeat=9), direct=False)
    for now in (1.0, 50.0):
        assert table.heard("b", 1, now)
        assert table.take_changes() == [] and ids(table) == ["a"]
    assert not table.others(alive=False)


def test_a_departure_spreads_by_hearsay_to_peers_that_know_the_leaver() -> None:
    for gone in (
        member("b", Phase.LEFT, heartbeat=2),
        member("b", Phase.LEFT, incarnation=2),
    ):
        assert not learn(MemberTable(A, WARY), gone, direct=False)
        assert learn(met(), gone, SILENT_S, direct=False) == [Part("b"), PeerLeft("b")]


def test_unconfirmed_peers_are_dropped_and_dead_peers_are_remembered() -> None:
    """Otherwise peers that forget at different times would remind one another forever."""
    table = met(B, member("d"))
    learn(table, C, direct=False)
    leave(table, "d")
    reported, changes = [[known.id for known in table.members()]], []
    for second in seconds(1, 12):
        changes += ticked(table, [second])
        reported.append([known.id for known in table.members()])
    assert reported[0] == reported[10] == ["a", "b", "d"] and reported[12] == ["a"]
    assert [each for each in changes if isinstance(each[1], Part)] == [(11.0, Part("c"))]
    assert table.member("b") is not None and table.member("c") is None


def test_a_departure_is_remembered_for_a_limited_time() -> None:
    table = met()
    leave(table)
    ticked(table, seconds(0, 99))
    assert table.member("b") is not None
    tick(table, 101.0)
    assert table.member("b") is None
    table = met(member("b", heartbeat=HEARTBEAT_MAX))
    leave(table)
    known = table.member("b")
    assert known is not None and known.heartbeat == HEARTBEAT_MAX, "the maximum of a message"


@pytest.mark.parametrize("direct", [False, True])
def test_an_incarnation_from_the_far_future_is_rejected(
    direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rumor.gossip.membership.table.INCARNATION_AHEAD_MS_MAX", 500)
    table = MemberTable(member("a", incarnation=1000), WARY)
    assert table.is_plausible(1500, 0.0) and not table.is_plausible(1501, 0.0)
    for peer in ("b", "a"):
        assert not learn(table, member(peer, incarnation=1501), direct=direct)
    assert table.member("b") is None
    learn(table, member("b", incarnation=1400), direct=direct)
    assert not learn(table, member("b", incarnation=1501), direct=direct)
    assert table.incarnation("b") == 1400
    table = MemberTable(table.me, WARY)
    assert not table.is_plausible(2500, 7.0)
    assert table.is_plausible(2500, 8.0), "incarnations count milliseconds"
    assert PeerMet("c") in learn(table, member("c", incarnation=2500), 8.0, direct=direct)


def test_only_a_message_of_a_finished_peer_reports_its_final_steps() -> None:
    """Other peers report the steps that they believe so far, which may be fewer."""
    table = MemberTable(A, WARY)
    done = member("b", Phase.FINISHED, step=2000)
    assert steps_at_end(table) is None
    learn(table, B)
    learn(table, replace(done, heartbeat=2, step=6), SILENT_S, direct=False)
    entry = table.member("b")
    assert entry is not None and entry.phase is Phase.FINISHED
    assert steps_at_end(table) is None
    learn(table, replace(done, heartbeat=3), SILENT_S + 0.1)
    entry = table.member("b")
    assert entry is not None and entry.step < 2000
    assert steps_at_end(table) == 2000
    learn(table, replace(done, heartbeat=4, phase=Phase.LEAVING), SILENT_S + 0.2)
    assert steps_at_end(table) is None
    learn(table, member("b", incarnation=2), SILENT_S + 0.3)
    assert steps_at_end(table) is None


def test_final_steps_of_an_earlier_incarnation_do_not_apply_to_a_later_one() -> None:
    done = member("b", Phase.FINISHED, heartbeat=2, step=5)
    table = met(done)
    learn(table, replace(done, incarnation=2, step=7), SILENT_S, direct=False)
    table.heard("b", 2, SILENT_S)
    assert steps_at_end(table) is None


def test_the_set_of_peers_that_only_dial_out_is_updated_at_once() -> None:
    table = MemberTable(replace(A, addresses=()), WARY)
    assert table.outward == {"a"}
    learn(table, replace(B, addresses=()))
    assert table.outward == {"a", "b"}
    learn(table, replace(B, heartbeat=2))
    assert table.outward == {"a"}
    learn(table, member("c", Phase.JOINING, addresses=()))
    assert table.outward == {"a"}, "only peers that take shares are paired"


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
    st.tuples(st.sampled_from(["view", "view", "message", "tick"]), st.lists(ENTRIES, max_size=4)),
    max_size=25,
)


@given(EVENTS)
def test_absorbing_a_view_equals_learning_each_entry(
    events: list[tuple[str, list[Member]]],
) -> None:
    slow, quick = MemberTable(A, WARY), MemberTable(A, WARY)
    for second, (what, entries) in enumerate(events):
        now, changes = 1.5 * second, []
        for table in (slow, quick):
            if what == "tick":
                table.tick(now)
            elif what == "message":
                table.heard("b", 1, now)
            else:
                rest = entries if table is slow else table.absorb(entries, "", now)
                for entry in rest:
                    table.learn(entry, now, direct=False)
            changes.append(table.take_changes())
        assert changes[0] == changes[1]
        for name in ("b", "c"):
            assert slow.reachable([name], now) == quick.reachable([name], now)
        assert (slow.me, slow.live(), slow.members()) == (quick.me, quick.live(), quick.members())
        assert (slow.takers(), slow.outward) == (quick.takers(), quick.outward)
        assert (slow.clock.rows(), slow.clock.total) == (quick.clock.rows(), quick.clock.total)
        for alive in (False, True):
            assert slow.others(alive=alive) == quick.others(alive=alive)


def test_peers_are_listed_by_id_in_any_order_of_arrival() -> None:
    table = MemberTable(member("m"), WARY)
    for id in "zbqa":
        learn(table, member(id))
        assert ids(table) == sorted(ids(table))
    table.disown("q")
    learn(table, member("z", Phase.FINISHED, incarnation=2))
    assert ids(table) == ["a", "b", "m", "z"]
    incarnations = [(m.id, m.incarnation) for m in table.others(alive=True)]
    assert incarnations == [("a", 1), ("b", 1), ("z", 2)]
    assert [m.id for m in table.members()] == ["m", "a", "b", "z"], "its own entry comes first"


def health_after(*times: float, interval_s: float = 1.0) -> tuple[LocalHealth, list[float]]:
    health = LocalHealth(interval_s)
    return health, [health.ticked(now) for now in times]


def test_lateness_decays_once_ticks_are_on_time_again() -> None:
    health, _ = health_after(*(20.0 * n for n in range(60)))
    assert health.factor == FACTOR_MAX
    for n in range(40):
        health.ticked(1180.0 + 1.0 + n)
        assert n < 12 or health.factor < 1.3
    assert health.factor == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("gap_s", "stalled_s"), [(2.5, 0.0), (3.0, 0.0), (3.5, 2.5), (60.0, 59.0)])
def test_a_long_delay_counts_as_a_stall_not_as_lateness(gap_s: float, stalled_s: float) -> None:
    _, stalls = health_after(0.0, 1.0, 1.0 + gap_s)
    assert stalls == [0.0, 0.0, stalled_s]


@given(st.lists(st.floats(0.0, 100.0), max_size=50), st.sampled_from([0.5, 1.0, 7.0]))
def test_the_health_factor_stays_within_bounds(gaps: list[float], interval_s: float) -> None:
    health, now = LocalHealth(interval_s), 0.0
    for gap_s in gaps:
        now += gap_s
        assert 0.0 <= health.ticked(now) <= gap_s
        assert 1.0 <= health.factor <= FACTOR_MAX
