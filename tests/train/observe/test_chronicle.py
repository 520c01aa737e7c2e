"""What several members notice is told once; what one of them says twice has happened twice."""

from rumor.gossip.wire.messages import EventNote
from rumor.train.observe.chronicle import Chronicle


def note(event: str, peer: str = "x") -> EventNote:
    return EventNote(number=1, event=event, peer=peer, ago_s=0.0)


def test_a_death_that_three_notice_is_one_event_at_the_first_time() -> None:
    chronicle = Chronicle()
    for teller, time_s in (("a", 100.0), ("b", 95.0), ("c", 130.0)):
        chronicle.add(teller, note("died"), time_s)
    (event,) = chronicle.events()
    assert (event.time_s, event.told_by, event.number) == (95.0, ("a", "b", "c"), 1)


def test_a_peer_that_dies_twice_is_told_of_twice() -> None:
    chronicle = Chronicle()
    for teller in ("a", "b"):
        chronicle.add(teller, note("died"), 100.0)
        chronicle.add(teller, note("recovered"), 110.0)
        chronicle.add(teller, note("died"), 150.0)
    events = [(event.event, event.time_s, event.told_by) for event in chronicle.events()]
    both = ("a", "b")
    assert events == [("died", 100.0, both), ("recovered", 110.0, both), ("died", 150.0, both)]


def test_long_after_it_is_another_event() -> None:
    chronicle = Chronicle()
    chronicle.add("a", note("died"), 100.0)
    chronicle.add("b", note("died"), 300.0)
    assert [event.told_by for event in chronicle.events()] == [("a",), ("b",)]


def test_what_peers_tell_of_themselves_is_about_them() -> None:
    chronicle = Chronicle()
    chronicle.add("a", note("founded", ""), 1.0)
    chronicle.add("b", note("joined", "a"), 2.0)
    chronicle.add("c", note("joined", "a"), 3.0)
    told = [(event.event, event.peer, event.donor) for event in chronicle.events()]
    assert told == [("founded", "a", ""), ("joined", "b", "a"), ("joined", "c", "a")]


def test_only_so_many_are_kept_and_only_so_many_tellers() -> None:
    chronicle = Chronicle()
    for number in range(1005):
        chronicle.add("a", note("met", f"p{number}"), float(number))
    events = chronicle.events()
    assert len(events) == 1000 and events[0].peer == "p5"
    for number in range(100):
        chronicle.add(f"t{number}", note("met", "p1004"), 1004.0)
    assert len(chronicle.events()[-1].told_by) == 64
    # Of one that is told again and again, what was forgotten is forgotten whole.
    for number in range(1100):
        chronicle.add("a", note("suspected", "x"), 1000.0 + number)
    assert {event.peer for event in chronicle.events()} == {"x"}
