"""Reports of several members are merged; a second report of one member is a second event."""

import pytest

from rumor.gossip.wire.messages import EventNote
from rumor.train.observe.observer import _Events


def note(event: str, peer: str = "x") -> EventNote:
    return EventNote(number=1, event=event, peer=peer, ago_s=0.0)


def merge(*notes: tuple[str, EventNote, float]) -> list[tuple[str, float, tuple[str, ...]]]:
    events = _Events()
    for reporter, noted, time_s in notes:
        events.add(reporter, noted, time_s)
    return [(event.event, event.time_s, event.told_by) for event in events.all()]


DIED, BACK = note("died"), note("recovered")
BOTH = ("a", "b")


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        (
            [("a", DIED, 100.0), ("b", DIED, 95.0), ("c", DIED, 130.0)],
            [("died", 95.0, ("a", "b", "c"))],
        ),
        (
            [(p, what, at) for p in BOTH for what, at in ((DIED, 1.0), (BACK, 11.0), (DIED, 51.0))],
            [("died", 1.0, BOTH), ("recovered", 11.0, BOTH), ("died", 51.0, BOTH)],
        ),
        (
            [("a", DIED, 100.0), ("b", DIED, 300.0)],
            [("died", 100.0, ("a",)), ("died", 300.0, ("b",))],
        ),
    ],
    ids=["three reports of one death", "two deaths", "a much later report"],
)
def test_reports_of_one_event_are_merged_at_the_earliest_time(
    notes: list[tuple[str, EventNote, float]], expected: list[tuple[str, float, tuple[str, ...]]]
) -> None:
    assert merge(*notes) == expected


def test_founded_and_joined_are_events_of_the_reporting_peer() -> None:
    events = _Events()
    for time_s, (reporter, noted) in enumerate(
        [("a", note("founded", "")), ("b", note("joined", "a")), ("c", note("joined", "a"))]
    ):
        events.add(reporter, noted, float(time_s))
    found = [(event.event, event.peer, event.donor) for event in events.all()]
    assert found == [("founded", "a", ""), ("joined", "b", "a"), ("joined", "c", "a")]


def test_the_numbers_of_events_and_reporters_are_limited() -> None:
    events = _Events()
    for number in range(1005):
        events.add("a", note("met", f"p{number}"), float(number))
    kept = events.all()
    assert len(kept) == 1000 and kept[0].peer == "p5"
    for number in range(100):
        events.add(f"t{number}", note("met", "p1004"), 1004.0)
    assert len(events.all()[-1].told_by) == 64
    # Many events of one peer do not evict the events of other peers.
    for number in range(1100):
        events.add("a", note("suspected", "x"), 2000.0 + number)
    kept = events.all()
    assert len(kept) == 1000
    assert [e.time_s for e in kept if e.peer == "x"] == [3092.0 + number for number in range(8)]
