"""Who lives: heartbeats, hearsay, and one's own stalls."""

from dataclasses import replace

from rumor.gossip import Member, Phase, ProtocolConfig
from rumor.gossip.effects import Meet, Part, PeerDied, PeerLeft, PeerMet
from rumor.gossip.messages import HEARTBEAT_MAX
from rumor.gossip.roster import Roster


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


def roster() -> Roster:
    return Roster(member("a"), ProtocolConfig(dead_s=10.0, gossip_s=1.0, members_max=8))


def ids(view: Roster) -> list[str]:
    return [other.id for other in view.live()]


def test_a_peer_that_speaks_is_met_and_lives() -> None:
    view = roster()
    assert list(view.learn(B, 0.0, direct=True)) == [Meet("b", ("tcp://b:1",)), PeerMet("b")]
    assert ids(view) == ["a", "b"]


def test_hearsay_is_believed_when_the_heartbeat_has_risen_twice() -> None:
    view = roster()
    for heartbeat in (1, 2, 2):
        list(view.learn(member("b", heartbeat), 0.0, direct=False))
    assert ids(view) == ["a"]
    list(view.learn(member("b", 3), 0.0, direct=False))
    assert ids(view) == ["a", "b"]


def test_a_peer_whose_heartbeat_stands_still_is_dead_until_it_is_heard() -> None:
    view = roster()
    list(view.learn(B, 0.0, direct=True))
    changes = [change for second in range(1, 12) for change in view.tick(float(second))]
    assert changes == [PeerDied("b")]
    assert view.others(alive=False) == (B,)
    assert view.heard("b", 1, 12.0)
    assert ids(view) == ["a", "b"]


def test_after_its_own_stall_a_peer_holds_nobody_for_dead() -> None:
    view = roster()
    list(view.learn(B, 0.0, direct=True))
    assert not list(view.tick(1.0)) and not list(view.tick(60.0))


def test_a_message_of_an_earlier_life_is_stale() -> None:
    view = roster()
    list(view.learn(member("b", incarnation=2), 0.0, direct=True))
    assert not view.heard("b", 1, 0.0)
    assert view.heard("b", 3, 0.0) and view.heard("stranger", 1, 0.0)


def test_a_later_life_is_met_anew() -> None:
    view = roster()
    list(view.learn(B, 0.0, direct=True))
    later = member("b", heartbeat=0, incarnation=2)
    assert PeerMet("b") in list(view.learn(later, 0.0, direct=False))
    assert view.incarnation("b") == 2


def test_a_peer_that_has_left_stays_away_whatever_older_news_say() -> None:
    view = roster()
    list(view.learn(B, 0.0, direct=True))
    assert list(view.left("b")) == [Part("b"), PeerLeft("b")]
    assert not list(view.left("b"))
    assert not list(view.learn(member("b", heartbeat=9), 0.0, direct=False))
    assert ids(view) == ["a"] and not view.others(alive=False)


def test_a_later_life_that_has_left_already_is_news_where_an_earlier_one_was_known() -> None:
    gone = replace(member("b", incarnation=2), phase=Phase.LEFT)
    view = roster()
    assert not list(view.learn(gone, 0.0, direct=False))
    view = roster()
    list(view.learn(B, 0.0, direct=True))
    assert list(view.learn(gone, 0.0, direct=False)) == [Part("b"), PeerLeft("b")]


def test_a_departure_spreads_by_hearsay() -> None:
    view = roster()
    list(view.learn(B, 0.0, direct=True))
    gone = replace(member("b", heartbeat=2), phase=Phase.LEFT)
    assert list(view.learn(gone, 0.0, direct=False)) == [Part("b"), PeerLeft("b")]


def test_a_peer_with_a_new_address_is_met_there() -> None:
    view = roster()
    list(view.learn(B, 0.0, direct=True))
    moved = replace(member("b", heartbeat=2), addresses=("tcp://b:2",))
    assert list(view.learn(moved, 0.0, direct=True)) == [Meet("b", ("tcp://b:2",))]


def test_a_peer_that_leaves_takes_no_shares() -> None:
    view = roster()
    list(view.learn(B, 0.0, direct=True))
    assert view.takers() == ("a", "b")
    view.leaving("b")
    view.leaving("stranger")
    assert view.takers() == ("a",) and ids(view) == ["a", "b"]


def test_a_peer_that_could_not_be_reached_is_passed_over_for_a_while() -> None:
    view = roster()
    list(view.learn(B, 0.0, direct=True))
    view.pass_over("b", 5.0)
    view.pass_over("stranger", 5.0)
    assert not view.is_reachable("b", 4.0) and view.is_reachable("b", 5.0)


def test_only_so_many_names_are_kept_in_mind() -> None:
    view = roster()
    for index in range(20):
        list(view.learn(member(f"b{index:02}"), 0.0, direct=False))
    assert len(view) == 1 + 8


def test_what_was_never_believed_is_forgotten_and_the_dead_are_not() -> None:
    view = roster()
    list(view.learn(B, 0.0, direct=True))
    list(view.learn(member("c"), 0.0, direct=False))
    assert list(view.tick(11.0)) == [PeerDied("b")]
    assert view.member("b") is not None and view.member("c") is None


def test_only_what_a_peer_vouches_for_is_told() -> None:
    """Or peers that forget at different times would teach one another for ever."""
    view = roster()
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
    view = roster()
    list(view.learn(B, 0.0, direct=True))
    list(view.left("b"))
    for second in range(100):
        list(view.tick(float(second)))
    assert view.member("b") is not None
    list(view.tick(101.0))
    assert view.member("b") is None


def test_a_heartbeat_never_grows_beyond_what_a_message_can_hold() -> None:
    view = roster()
    list(view.learn(member("b", HEARTBEAT_MAX), 0.0, direct=True))
    list(view.left("b"))
    known = view.member("b")
    assert known is not None and known.heartbeat == HEARTBEAT_MAX


def test_a_peer_of_another_swarm_is_forgotten() -> None:
    view = roster()
    list(view.learn(B, 0.0, direct=True))
    view.disown("b")
    assert view.member("b") is None and view.incarnation("b") == 0


def test_nobody_learns_of_himself_from_others() -> None:
    view = roster()
    assert not list(view.learn(member("a", heartbeat=99), 0.0, direct=False))
    assert view.me.heartbeat == 1
