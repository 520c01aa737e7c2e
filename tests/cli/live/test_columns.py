"""Formatting of figures, known or unknown, of any size, and of any member name."""

from dataclasses import replace

import pytest

from rumor.cli.live.columns import COLUMNS, Column, amount, event_line, ordered, shown_name, summary
from rumor.train.observe.view import EventView, PeerView, SwarmView

from .made_up import a_peer, a_view


def column(title: str) -> Column:
    return next(column for column in COLUMNS if column.title == title)


def test_unknown_figures_are_a_dash_in_every_column() -> None:
    nothing = PeerView(id="x", state="training", source="others")
    texts = {column.title: column.text(nothing) for column in COLUMNS}
    assert texts.pop("peer") == "x" and texts.pop("state") == "training*"
    assert texts.pop("step") == "0" and texts.pop("address") == "dials out"
    assert set(texts.values()) == {"-"}


@pytest.mark.parametrize("width", [80, 100, 122, 146])
def test_shown_columns_fit_the_width(width: int) -> None:
    shown = [column for column in COLUMNS if column.room <= width]
    widths = (
        max(len(each.title), *(len(each.text(peer)) for peer in a_view(64).peers)) for each in shown
    )
    assert sum(widths) + 2 * (len(shown) - 1) <= width
    titles = {each.title for each in shown}
    assert {"state", "step", "step/s", "weight", "loss", "stale", "out/s", "in/s"} <= titles


def test_members_are_sorted_with_unknown_figures_last() -> None:
    peers = [
        a_peer("b", loss=0.5),
        a_peer("d", loss=None),
        a_peer("a", loss=0.5),
        a_peer("c", loss=float("inf")),
    ]
    assert [p.id for p in ordered(peers, "loss")] == ["c", "a", "b", "d"]
    assert [p.id for p in ordered(peers, "peer")] == ["a", "b", "c", "d"]


def test_lost_shares_are_counted_in_both_directions() -> None:
    assert column("lost").text(a_peer(refusals=1, refused=2)) == "3"
    assert column("lost").text(a_peer(refusals=None, refused=2)) == "2"


def test_the_summary_counts_members_and_total_weight() -> None:
    view = a_view(2, peers=(a_peer("a", distance=0.5), a_peer("b", state="dead")))
    assert summary(view) == (
        "swarm 3d42e0d4 · step 790,123 (+48.2/s) · 1 alive, 1 gone · weight 2.25"
        " · models differ by 0.5 · up 12:34"
    )
    assert summary(SwarmView(time_s=0.0)) == "swarm ? · step 0 · 0 alive"


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (("died", "p1", "", ("a", "b")), "p1 is considered dead (reported by a, b)"),
        (("joined", "p1", "p0", ("p1",)), "p1 joined, as a copy of p0"),
        (("joined", "p1", "", ("p1",)), "p1 joined"),
        (("left", "p1", "", tuple("abcde")), "p1 left (reported by a, b, c, d, e)"),
        (("renamed", "p1", "", ("a",)), "p1 renamed (reported by a)"),
    ],
)
def test_events_are_described_in_words(
    event: tuple[str, str, str, tuple[str, ...]], words: str
) -> None:
    what, peer, donor, told_by = event
    made = EventView(time_s=0.0, event=what, peer=peer, donor=donor, told_by=told_by)
    assert event_line(made)[10:] == words


def test_names_cannot_send_control_sequences_to_a_terminal() -> None:
    evil = "\x1b]0;owned\x07\u202e"
    assert shown_name(evil) == "\\x1b]0;owned\\x07\\u202e"
    assert len(shown_name("x" * 64)) == 24 and shown_name("x" * 64).endswith("…")
    made = EventView(time_s=0.0, event=evil, peer=evil, donor=evil, told_by=(evil, "b"))
    for event in (made, replace(made, event="joined")):
        assert event_line(event).isprintable()
    hostile = a_peer(evil, address=evil, awaits=(evil,), settings={"rule": evil})
    texts = [each.text(hostile) for each in COLUMNS]
    assert all(text.isprintable() for text in texts)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (999.4, "999"),
        (999.7, "1000"),
        (9999, "9999"),
        (10_000, "10k"),
        (999_400, "999k"),
        (999_600, "1M"),
        (1e300, "1e+300"),
        (-5.0, "-5"),
        (0, "0"),
        (2.5e13, "25T"),
    ],
)
def test_numbers_of_any_size_are_abbreviated(value: float, shown: str) -> None:
    assert amount(value) == shown
