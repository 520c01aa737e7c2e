"""Who lives: heartbeats, hearsay, and one's own stalls."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Meet, Part
from rumor.gossip.effects.events import PeerDied, PeerLeft, PeerMet, StaleIncarnation
from rumor.gossip.membership.table import Change, MemberTable
from rumor.gossip.wire.messages import HEARTBEAT_MAX, Member, Phase


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


def table() -> MemberTable:
    return MemberTable(member("a"), ProtocolConfig(dead_s=10.0, gossip_s=1.0, members_max=8))


WARY = ProtocolConfig(suspect_s=4.0, dead_s=10.0)

SILENT_S = 100.0
"""By then hearsay counts: nobody has spoken for so long."""


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


def test_a_peer_that_speaks_is_met_and_lives() -> None:
    view = table()
    assert list(view.learn(B, 0.0, direct=True)) == [Meet("b", ("tcp://b:1",)), PeerMet("b")]
    assert ids(view) == ["a", "b"]


def test_hearsay_is_believed_when_the_heartbeat_has_risen_twice() -> None:
    view = table()
    for heartbeat in (1, 2, 2):
        list(view.learn(member("b", heartbeat), 0.0, direct=False))
    assert ids(view) == ["a"]
    list(view.learn(member("b", 3), 0.0, direct=False))
    assert ids(view) == ["a", "b"]


def test_a_peer_whose_heartbeat_stands_still_is_dead_until_it_is_heard() -> None:
    view = table()
    list(view.learn(B, 0.0, direct=True))
    assert view.takers() == ("a", "b")
    changes = [change for second in range(1, 12) for change in view.tick(float(second))]
    assert changes == [PeerDied("b")]
    assert view.others(alive=False) == (B,) and view.takers() == ("a",)
    assert view.heard("b", 1, 12.0)
    assert ids(view) == ["a", "b"]


def test_after_its_own_stall_a_peer_holds_nobody_for_dead() -> None:
    view = table()
    list(view.learn(B, 0.0, direct=True))
    assert not list(view.tick(1.0)) and not list(view.tick(60.0))


def test_a_message_of_an_earlier_life_is_stale() -> None:
    view = table()
    list(view.learn(member("b", incarnation=2), 0.0, direct=True))
    assert not view.heard("b", 1, 0.0)
    assert view.heard("b", 3, 0.0) and view.heard("stranger", 1, 0.0)


def test_a_later_life_is_met_anew() -> None:
    view = table()
    list(view.learn(B, 0.0, direct=True))
    later = member("b", heartbeat=0, incarnation=2)
    assert PeerMet("b") in list(view.learn(later, 0.0, direct=True))
    assert view.incarnation("b") == 2


def test_a_peer_that_has_left_stays_away_whatever_older_news_say() -> None:
    view = table()
    list(view.learn(B, 0.0, direct=True))
    assert list(view.left("b")) == [Part("b"), PeerLeft("b")]
    assert not list(view.left("b"))
    assert not list(view.learn(member("b", heartbeat=9), 0.0, direct=False))
    assert ids(view) == ["a"] and not view.others(alive=False)


def test_a_later_life_that_has_left_already_is_news_where_an_earlier_one_was_known() -> None:
    gone = replace(member("b", incarnation=2), phase=Phase.LEFT)
    view = table()
    assert not list(view.learn(gone, 0.0, direct=False))
    view = table()
    list(view.learn(B, 0.0, direct=True))
    assert list(view.learn(gone, SILENT_S, direct=False)) == [Part("b"), PeerLeft("b")]


def test_a_departure_spreads_by_hearsay() -> None:
    view = table()
    list(view.learn(B, 0.0, direct=True))
    gone = replace(member("b", heartbeat=2), phase=Phase.LEFT)
    assert list(view.learn(gone, SILENT_S, direct=False)) == [Part("b"), PeerLeft("b")]


def test_a_peer_with_a_new_address_is_met_there() -> None:
    view = table()
    list(view.learn(B, 0.0, direct=True))
    moved = replace(member("b", heartbeat=2), addresses=("tcp://b:2",))
    assert list(view.learn(moved, 0.0, direct=True)) == [Meet("b", ("tcp://b:2",))]


def test_a_peer_that_leaves_takes_no_shares() -> None:
    view = table()
    list(view.learn(B, 0.0, direct=True))
    assert view.takers() == ("a", "b")
    view.leaving("b")
    view.leaving("stranger")
    assert view.takers() == ("a",) and ids(view) == ["a", "b"]


def test_a_peer_that_could_not_be_reached_is_passed_over_for_a_while() -> None:
    view = table()
    list(view.learn(B, 0.0, direct=True))
    view.pass_over("b", 5.0)
    view.pass_over("stranger", 5.0)
    assert not view.is_reachable("b", 4.0) and view.is_reachable("b", 5.0)


def test_only_so_many_names_are_kept_in_mind() -> None:
    view = table()
    for index in range(20):
        list(view.learn(member(f"b{index:02}"), 0.0, direct=False))
    assert len(view) == 1 + 8


def test_what_was_never_believed_is_forgotten_and_the_dead_are_not() -> None:
    view = table()
    list(view.learn(B, 0.0, direct=True))
    list(view.learn(member("c"), 0.0, direct=False))
    assert list(view.tick(11.0)) == [PeerDied("b"), Part("c")]
    assert view.member("b") is not None and view.member("c") is None


def test_only_what_a_peer_vouches_for_is_told() -> None:
    """Or peers that forget at different times would teach one another for ever."""
    view = table()
    list(view.learn(B, 0.0, direct=True))
    list(view.learn(member("c"), 0.0, direct=False))
    list(view.learn(member("d"), 0.0, direct=True))
    list(view.left("d"))
    told = [[known.id for known in view.members()]]
    for second in range(1, 13):
        list(view.tick(float(second)))
        told.append([known.id for known in view.members()])
    assert told[0] == told[10] == ["a", "b", "d"]
    assert told[12] == ["a"]


def test_the_news_that_a_peer_left_is_kept_for_long_but_not_for_ever() -> None:
    view = table()
    list(view.learn(B, 0.0, direct=True))
    list(view.left("b"))
    for second in range(100):
        list(view.tick(float(second)))
    assert view.member("b") is not None
    list(view.tick(101.0))
    assert view.member("b") is None


def test_a_heartbeat_never_grows_beyond_what_a_message_can_hold() -> None:
    view = table()
    list(view.learn(member("b", HEARTBEAT_MAX), 0.0, direct=True))
    list(view.left("b"))
    known = view.member("b")
    assert known is not None and known.heartbeat == HEARTBEAT_MAX


def test_a_peer_of_another_swarm_is_forgotten() -> None:
    view = table()
    list(view.learn(B, 0.0, direct=True))
    view.disown("b")
    assert view.member("b") is None and view.incarnation("b") == 0


def test_nobody_learns_of_himself_from_others() -> None:
    view = table()
    assert not list(view.learn(member("a", heartbeat=99), 0.0, direct=False))
    assert view.me.heartbeat == 1


@pytest.mark.parametrize("direct", [False, True])
def test_a_life_from_far_ahead_is_not_believed(direct: bool) -> None:
    view = MemberTable(member("a", incarnation=1000), replace(WARY, incarnation_ahead_max=500))
    assert view.is_plausible(1500, 0.0) and not view.is_plausible(1501, 0.0)
    for peer in ("b", "a"):
        assert not list(view.learn(member(peer, incarnation=1501), 0.0, direct=direct))
    assert view.member("b") is None
    list(view.learn(member("b", incarnation=1400), 0.0, direct=direct))
    assert not list(view.learn(member("b", incarnation=1501), 0.0, direct=direct))
    assert view.incarnation("b") == 1400


def test_as_time_goes_by_later_lives_can_be() -> None:
    view = MemberTable(member("a", incarnation=1000), replace(WARY, incarnation_ahead_max=500))
    assert not view.is_plausible(2500, 7.0)
    assert view.is_plausible(2500, 8.0), "a second is a thousand lives"
    assert PeerMet("b") in list(view.learn(member("b", incarnation=2500), 8.0, direct=False))


def test_a_later_life_of_ones_own_name_is_news() -> None:
    view = wary()
    assert list(view.learn(member("a", incarnation=3), 0.0, direct=False)) == [StaleIncarnation(3)]
    assert not list(view.learn(member("a", incarnation=1), 0.0, direct=False))
    assert view.me.incarnation == 1 and len(view) == 2


def test_what_others_know_of_ones_own_steps_is_taken_over() -> None:
    view = MemberTable(member("a"), WARY, {"a": 3, "b": 10})
    assert (view.step, view.clock.total) == (3, 13)
    list(view.learn(replace(member("a"), step=8), 0.0, direct=False))
    assert view.me.step == 3, "a member knows better"
    view.advance(phase=Phase.SEEKING)
    list(view.learn(replace(member("a"), step=8), 0.0, direct=False))
    assert view.me.step == 8
    view.count("a", 5, "b", 0.0)
    view.count("b", 11, "b", 0.0)
    assert (view.step, view.me.step, view.clock.total) == (8, 8, 19)
    view.stepped(0.0)
    assert (view.step, view.clock.total) == (9, 20)


def test_steps_of_others_are_counted_from_their_entries() -> None:
    view = MemberTable(member("a"), WARY)
    list(view.learn(replace(B, step=4), 0.0, direct=True))
    list(view.learn(replace(B, step=7, heartbeat=2), 1.0, direct=False))
    list(view.learn(replace(B, step=9, heartbeat=2), 1.0, direct=False))
    assert view.clock.rows() == {"a": 0, "b": 7}
    list(view.learn(member("b", incarnation=2), 1.0, direct=True))
    assert view.clock.rows() == {"a": 0, "b": 7}, "a later life takes nothing back"


def test_one_that_has_finished_says_itself_after_how_many_steps() -> None:
    """Others tell what they believe by now, which may be less, and so may this peer believe."""
    view = MemberTable(member("a"), WARY)
    done = replace(B, phase=Phase.FINISHED, step=2000)
    assert view.steps_at_end("b") is None
    list(view.learn(B, 0.0, direct=True))
    list(view.learn(replace(done, heartbeat=2, step=6), SILENT_S, direct=False))
    entry = view.member("b")
    assert entry is not None and entry.phase is Phase.FINISHED
    assert view.steps_at_end("b") is None
    list(view.learn(replace(done, heartbeat=3), SILENT_S + 0.1, direct=True))
    entry = view.member("b")
    assert entry is not None and entry.step < 2000
    assert view.steps_at_end("b") == 2000
    list(view.learn(replace(done, heartbeat=4, phase=Phase.LEAVING), SILENT_S + 0.2, direct=True))
    assert view.steps_at_end("b") is None
    list(view.learn(member("b", incarnation=2), SILENT_S + 0.3, direct=True))
    assert view.steps_at_end("b") is None


def test_what_an_earlier_life_has_said_of_its_end_says_nothing_of_a_later_one() -> None:
    view = MemberTable(member("a"), WARY)
    done = replace(B, phase=Phase.FINISHED, step=5)
    list(view.learn(replace(done, heartbeat=2), 0.0, direct=True))
    list(view.learn(replace(done, incarnation=2, step=7), SILENT_S, direct=False))
    view.heard("b", 2, SILENT_S)
    assert view.steps_at_end("b") is None


def test_two_that_only_dial_out_cannot_meet() -> None:
    silent = replace(B, addresses=())
    for me, can in ((member("a"), True), (replace(member("a"), addresses=()), False)):
        view = MemberTable(me, WARY)
        list(view.learn(silent, 0.0, direct=False))
        view.heard("b", 1, 0.0)
        assert view.can_meet(silent) is can is view.is_reachable("b", 0.0)
        assert view.can_meet(B)


def test_who_only_dials_out_is_known_as_soon_as_that_changes() -> None:
    view = MemberTable(replace(member("a"), phase=Phase.TRAINING, addresses=()), WARY)
    assert view.outward == {"a"}
    list(view.learn(replace(B, addresses=()), 0.0, direct=True))
    assert view.outward == {"a", "b"}
    list(view.learn(replace(B, heartbeat=2), 0.0, direct=True))
    assert view.outward == {"a"}
    list(view.learn(replace(member("c"), addresses=(), phase=Phase.JOINING), 0.0, direct=True))
    assert view.outward == {"a"}, "only those who take shares are paired"


def test_who_spoke_is_told_from_who_was_only_heard_of() -> None:
    view = MemberTable(member("a"), WARY)
    list(view.learn(B, 1.0, direct=False))
    assert not view.spoke_since("b", 0.0) and not view.spoke_since("stranger", 0.0)
    list(view.learn(member("b", 2), 2.0, direct=False))
    assert not view.spoke_since("b", 0.0)
    view.heard("b", 1, 3.0)
    assert view.spoke_since("b", 3.0) and not view.spoke_since("b", 3.1)
    list(view.learn(member("c"), 4.0, direct=True))
    assert view.spoke_since("c", 4.0)


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
def test_a_view_that_is_absorbed_says_the_same_as_one_that_is_learnt(
    events: list[tuple[str, list[Member]]],
) -> None:
    slow, quick = MemberTable(member("a"), WARY), MemberTable(member("a"), WARY)
    for second, (what, entries) in enumerate(events):
        now, said = 1.5 * second, []
        for view in (slow, quick):
            changes: list[Change] = []
            if what == "tick":
                changes += view.tick(now)
            elif what == "speaks":
                view.heard("b", 1, now)
            else:
                rest = entries if view is slow else view.absorb(entries, "", now)
                for entry in rest:
                    changes += view.learn(entry, now, direct=False)
            said.append((changes, view.take_news()))
        assert said[0] == said[1]
        for name in ("b", "c"):
            assert slow.is_reachable(name, now) is quick.is_reachable(name, now)
        assert (slow.me, slow.live(), slow.members()) == (quick.me, quick.live(), quick.members())
        assert (slow.takers(), slow.outward) == (quick.takers(), quick.outward)
        assert (slow.clock.rows(), slow.clock.total) == (quick.clock.rows(), quick.clock.total)
        for alive in (False, True):
            assert slow.others(alive=alive) == quick.others(alive=alive)


def test_everybody_is_listed_by_id_in_whatever_order_they_came_and_went() -> None:
    view = MemberTable(member("m"), WARY)
    for id in "zbqa":
        list(view.learn(member(id), 0.0, direct=True))
        assert ids(view) == sorted(ids(view))
    view.disown("q")
    list(view.learn(replace(member("z", incarnation=2), phase=Phase.FINISHED), 0.0, direct=True))
    assert ids(view) == ["a", "b", "m", "z"]
    assert [(m.id, m.incarnation) for m in view.others(alive=True)] == [
        ("a", 1),
        ("b", 1),
        ("z", 2),
    ]
    assert [m.id for m in view.members()] == ["m", "a", "b", "z"], "its own entry comes first"
