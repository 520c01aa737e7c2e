"""What several members notice is told once; what one of them says twice has happened twice."""

from rumor.gossip.wire.messages import EventNote
from rumor.train.observe.observer import _Events


def note(event: str, peer: str = "x") -> EventNote:
    return EventNote(number=1, event=event, peer=peer, ago_s=0.0)


def test_a_death_that_three_notice_is_one_event_at_the_first_time() -> None:
    events = _Events()
    for teller, time_s in (("a", 100.0), ("b", 95.0), ("c", 130.0)):
        events.add(teller, note("died"), time_s)
    (event,) = events.all()
    assert (event.time_s, event.told_by) == (95.0, ("a", "b", "c"))


def test_a_peer_that_dies_twice_is_told_of_twice() -> None:
    events = _Events()
    for teller in ("a", "b"):
        events.add(teller, note("died"), 100.0)
        events.add(teller, note("recovered"), 110.0)
        events.add(teller, note("died"), 150.0)
    told = [(event.event, event.time_s, event.told_by) for event in events.all()]
    both = ("a", "b")
    assert told == [("died", 100.0, both), ("recovered", 110.0, both), ("died", 150.0, both)]


def test_long_after_it_is_another_event() -> None:
    events = _Events()
    events.add("a", note("died"), 100.0)
    events.add("b", note("died"), 300.0)
    assert [event.told_by for event in events.all()] == [("a",), ("b",)]


def test_what_peers_tell_of_themselves_is_about_them() -> None:
    events = _Events()
    events.add("a", note("founded", ""), 1.0)
    events.add("b", note("joined", "a"), 2.0)
    events.add("c", note("joined", "a"), 3.0)
    told = [(event.event, event.peer, event.donor) for event in events.all()]
    assert told == [("founded", "a", ""), ("joined", "b", "a"), ("joined", "c", "a")]


def test_only_so_many_are_kept_and_only_so_many_tellers() -> None:
    events = _Events()
    for number in range(1005):
        events.add("a", note("met", f"p{number}"), float(number))
    told = events.all()
    assert len(told) == 1000 and told[0].peer == "p5"
    for number in range(100):
        events.add(f"t{number}", note("met", "p1004"), 1004.0)
    assert len(events.all()[-1].told_by) == 64
    # One that is told again and again does not push out the others.
    for number in range(1100):
        events.add("a", note("suspected", "x"), 2000.0 + number)
    told = events.all()
    assert len(told) == 1000
    assert [e.time_s for e in told if e.peer == "x"] == [3092.0 + number for number in range(8)]
