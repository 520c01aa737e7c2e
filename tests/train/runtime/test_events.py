"""Membership events are logged in words and written as rows."""

import logging
import time
from pathlib import Path

import pytest

from rumor.gossip.effects.events import (
    Event,
    Founded,
    Joined,
    PeerDied,
    PeerLeft,
    PeerMet,
    PeerRecovered,
    PeerRefused,
    PeerSuspected,
    PushSkipped,
    StaleIncarnation,
    SwarmGivenUp,
    ViewFull,
)
from rumor.train.runtime.telling import events as module
from rumor.train.runtime.telling.events import Events, is_told, note_death
from rumor.train.storage.jsonl import read_metrics

EVENTS: list[tuple[Event, str | None, str | None, str]] = [
    (Founded(), "founded", None, "founded a swarm"),
    (Joined("a"), "joined", "a", "a copy of a's"),
    (PeerMet("b"), "met", "b", "met b"),
    (PeerSuspected("b"), "suspected", "b", "b is silent"),
    (PeerRecovered("b"), "recovered", "b", "b is heard again"),
    (PeerDied("b"), "died", "b", "b has fallen silent"),
    (PeerLeft("b"), "left", "b", "b has left"),
    (ViewFull(4097), "full", None, "4097 names are kept in mind"),
    (
        PeerRefused("x", "another model"),
        None,
        None,
        "x cannot be one of this swarm: another model",
    ),
    (StaleIncarnation(7), None, None, "a later incarnation of this peer's own name"),
    (SwarmGivenUp(), None, None, "met another swarm"),
]


@pytest.mark.parametrize(("event", "name", "peer", "words"), EVENTS)
def test_an_event_is_logged_and_written_as_a_row(
    event: Event,
    name: str | None,
    peer: str | None,
    words: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Events that do not concern a member of the swarm are only logged."""
    before_s = time.time()
    events = Events(tmp_path)
    with caplog.at_level(logging.INFO, "rumor"):
        events.tell(event)
    events.close()
    assert words in caplog.text and len(caplog.records) == 1
    assert is_told(event) and not is_told(PushSkipped("no credit"))
    rows = read_metrics(tmp_path / "events.jsonl")
    assert [(row["event"], row["peer"]) for row in rows] == ([(name, peer)] if name else [])
    for row in rows:
        assert before_s <= row["unix_s"] <= time.time() and row["t_s"] >= 0


def test_a_later_incarnation_appends_to_the_same_file(tmp_path: Path) -> None:
    for peer in ("a", "b"):
        events = Events(tmp_path)
        events.tell(PeerMet(peer))
        events.close()
        events.tell(PeerMet("too late"))
        with open(tmp_path / "events.jsonl", "ab") as file:
            file.write(b'{"t_s":0.1,"cut')
    assert [row["peer"] for row in read_metrics(tmp_path / "events.jsonl")] == ["a", "b"]


def test_each_death_is_read_once_and_torn_lines_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_DEATHS_EVERY_S", 0.0)
    events = Events(tmp_path)
    assert events.take_deaths() == []
    note_death(tmp_path, "ann", 3)
    assert events.take_deaths() == [("ann", 3)]
    with open(tmp_path / "dead.jsonl", "a") as file:
        file.write('{"id": "b')  # the disk was full
    assert events.take_deaths() == []
    note_death(tmp_path, "bob", 4)
    assert events.take_deaths() == []
    note_death(tmp_path, "cyd", 5)
    assert events.take_deaths() == [("cyd", 5)]
    events.close()
    assert Events(None).take_deaths() == []
