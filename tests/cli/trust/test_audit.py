"""``rumor audit``: what it says of a run, and with which status it ends."""

import json
from pathlib import Path

import pytest

from rumor.gossip import ONE
from rumor.gossip.receipts.book import Book
from rumor.gossip.receipts.statement import Life
from rumor.gossip.transport.keys.receipts import write_receipts

from ...gossip.transport.keyrings import Swarm
from .test_keys import rumor


@pytest.fixture
def books(tmp_path: Path) -> dict[str, Book]:
    """Two peers of one run, of whom one has pushed half of its weight to the other."""
    swarm = Swarm(tmp_path)
    for name in ("m1", "m2"):
        swarm.machine(name)
    swarm.roster = swarm.roster.with_founders(swarm.owner, ["m1", "m2"])
    swarm.file()
    books = {}
    for name in ("m1", "m2"):
        signer = swarm.keyring(name).signer()
        books[name] = Book(Life(name, 1), bytes(16), signer, signer.grant)
    one, two = books.values()
    two.take(one.promise(two.me, ONE // 2))
    receipt = two.decide(one.me, ONE // 2, ONE // 2)
    assert receipt is not None
    one.take(receipt)
    return books


def keep(folder: Path, books: dict[str, Book]) -> tuple[str, Path, str, Path]:
    """Write the books down as a run does; the words of the command."""
    for name, book in books.items():
        (folder / "peers" / name).mkdir(parents=True, exist_ok=True)
        write_receipts(folder / "peers" / name, book, shards=1)
    return "audit", folder, "--roster", folder / "roster.json"


def test_a_run_in_which_nobody_lied_is_sound(tmp_path: Path, books: dict[str, Book]) -> None:
    told = rumor(*keep(tmp_path, books)).splitlines()
    assert told == [
        "m1: founded 1, got 0, gave 0.5, is worth 0.5 founders",
        "m2: founded 1, got 0.5, gave 0, is worth 1.5 founders",
        "sound: 1 statements; all weight is of the 2 founders that the roster names",
    ]


def test_who_gave_more_than_it_had_is_named(tmp_path: Path, books: dict[str, Book]) -> None:
    one, two = books.values()
    two.take(one.promise(two.me, ONE))
    two.decide(one.me, ONE, ONE)
    words = keep(tmp_path, books)
    first, second, last = rumor(*words, status=1).splitlines()
    assert first.endswith("GAVE 0.5 MORE THAN IT HAD")
    assert second.endswith("is worth 2 founders; 0.5 of that was made up by its senders")
    assert last == "NOT sound: 1 statements; 1 of 2 peers lied"
    told = json.loads(rumor(*words, "--json", status=1).splitlines()[-1])
    assert not told["sound"]
    assert [each["lacking_units"] for each in told["peers"]] == [2**39, 0]


def test_who_signed_twice_is_named(tmp_path: Path, books: dict[str, Book]) -> None:
    one, two = books.values()
    again = Book(one.me, one.swarm, one._keys, lambda _: ONE)
    two.take(again.promise(Life("m3", 1), 7))
    told = rumor(*keep(tmp_path, books), status=1)
    assert "CONVICTED: it signed two promises of one number" in told


def test_a_folder_without_receipts_is_one_line(tmp_path: Path, books: dict[str, Book]) -> None:
    told = rumor("audit", tmp_path, "--roster", tmp_path / "roster.json", status=1)
    assert "holds no receipts" in told and len(told.splitlines()) == 1


def test_the_owner_names_founders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rumor("roster", "init", "roster.json", "--key", "ada.key")
    found = ("roster", "found", "roster.json")
    assert "may found: a, b" in rumor(*found, "b,a", "--key", "ada.key")
    shown = json.loads(rumor("roster", "show", "roster.json", "--json").splitlines()[-1])
    assert shown["founders"] == ["a", "b"]
    assert "in full" in rumor(*found, "peer-*", "--key", "ada.key", status=2)
    assert "with commas" in rumor(*found, "a", "b", "--key", "ada.key", status=2)
