"""``rumor audit``: what it says of a run, and with which status it ends."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from rumor.cli.trust import audit as command
from rumor.gossip import ONE, TransportError
from rumor.gossip.receipts.book import Book
from rumor.gossip.receipts.statement import Life
from rumor.gossip.transport.keys.receipts import write_receipts
from rumor.train.observe import auditor as auditing

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


def test_wrong_arguments_are_one_line(tmp_path: Path, books: dict[str, Book]) -> None:
    roster = ("--roster", tmp_path / "roster.json")
    for words, message in (
        (("127.0.0.1:1", *roster), "one with receipts has keys: give --key"),
        ((tmp_path, *roster, "--key", tmp_path / "m1.key"), "a folder needs none"),
        (("127.0.0.1:1", *roster, "--key", "k", "--timeout", "0"), "--timeout is 0"),
    ):
        told = rumor("audit", *words, status=2)
        assert message in told and len(told.splitlines()) == 1


def test_where_nobody_listens_the_doctor_is_named(
    tmp_path: Path, books: dict[str, Book], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(address: str, **_: object) -> None:
        raise TransportError(f"{address} does not answer: is a peer listening there?")

    monkeypatch.setattr(auditing, "Auditor", nobody)
    told = rumor(*asked(tmp_path), status=1)
    assert "`rumor doctor 127.0.0.1:1` says more" in told and len(told.splitlines()) == 1


def asked(folder: Path) -> tuple[object, ...]:
    keys = ("--roster", folder / "roster.json", "--key", folder / "m1.key")
    return "audit", "127.0.0.1:1", *keys


class Running:
    """A swarm that runs, with the books of a test; some of them are late."""

    def __init__(self, *looks: list[Book], silent: tuple[str, ...] = ()) -> None:
        self._looks = list(looks)
        self.silent = list(silent)
        self.swarm = looks[0][0].swarm
        self.looks = 0

    def __call__(self, address: str, **_: object) -> "Running":
        return self

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, timeout_s: float) -> None:
        self.looks += 1
        books = self._looks[min(self.looks, len(self._looks)) - 1]
        told = [book.since(0) for book in books]
        self.answered = [SimpleNamespace(statements=s, proofs=p, shards=1) for s, p in told]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_BETWEEN_S", 0.0)


def test_a_swarm_that_runs_is_checked_as_a_folder_is(
    tmp_path: Path, books: dict[str, Book], monkeypatch: pytest.MonkeyPatch
) -> None:
    of_folder = rumor(*keep(tmp_path, books))
    running = Running(list(books.values()), silent=("m3",))
    monkeypatch.setattr(auditing, "Auditor", running)
    told = rumor(*asked(tmp_path))
    assert told.startswith(of_folder) and "not asked: m3 did not tell" in told
    assert running.looks == 1
    told = json.loads(rumor(*asked(tmp_path), "--json").splitlines()[-1])
    assert told["sound"] and told["silent"] == ["m3"]


def test_what_gossip_has_not_told_yet_is_no_lie(
    tmp_path: Path, books: dict[str, Book], monkeypatch: pytest.MonkeyPatch, at_once: None
) -> None:
    one, two = books.values()
    two.take(one.promise(two.me, ONE // 2))
    two.decide(one.me, ONE // 2, ONE // 2)
    back = one.promise(Life("m3", 1), ONE)
    three = Book(Life("m3", 1), one.swarm, one._keys, one._grant)
    three.take(back)
    running = Running([two], list(books.values()))
    monkeypatch.setattr(auditing, "Auditor", running)
    rumor(*asked(tmp_path))
    # Where it never comes, it is one.
    two.take(one.promise(two.me, 1))
    two.decide(one.me, 1, 1)
    running = Running([two])
    monkeypatch.setattr(auditing, "Auditor", running)
    assert "GAVE" in rumor(*asked(tmp_path), status=1)
    assert running.looks == command._LOOKS


def test_of_a_swarm_that_runs_who_signed_twice_is_named_at_once(
    tmp_path: Path, books: dict[str, Book], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = books.values()
    again = Book(one.me, one.swarm, one._keys, lambda _: ONE)
    two.take(again.promise(Life("m3", 1), 7))
    running = Running([two])
    monkeypatch.setattr(auditing, "Auditor", running)
    assert "CONVICTED: it signed two promises" in rumor(*asked(tmp_path), status=1)
    assert running.looks == 1


def test_the_owner_names_founders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rumor("roster", "init", "roster.json", "--key", "ada.key")
    found = ("roster", "found", "roster.json")
    assert "may found: a, b" in rumor(*found, "b,a", "--key", "ada.key")
    shown = json.loads(rumor("roster", "show", "roster.json", "--json").splitlines()[-1])
    assert shown["founders"] == ["a", "b"]
    assert "in full" in rumor(*found, "peer-*", "--key", "ada.key", status=2)
    assert "with commas" in rumor(*found, "a", "b", "--key", "ada.key", status=2)
