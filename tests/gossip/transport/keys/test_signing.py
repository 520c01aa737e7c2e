"""Signatures under receipts, by machines of a roster, and books on disk."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rumor.gossip import ONE
from rumor.gossip.errors import ConfigError, LocalProtocolError, TrainingError
from rumor.gossip.receipts.book import Book, Taken
from rumor.gossip.receipts.statement import Life
from rumor.gossip.transport.keys.certificates import MachineKey
from rumor.gossip.transport.keys.receipts import (
    audit_folder,
    read_receipts,
    receipts_path,
    write_receipts,
)
from rumor.gossip.transport.keys.roster import Roster
from rumor.gossip.transport.keys.signing import Signer

from ..keyrings import Swarm


@pytest.fixture
def swarm(tmp_path: Path) -> Swarm:
    swarm = Swarm(tmp_path)
    for name in ("m1", "m2"):
        swarm.machine(name)
    swarm.roster = swarm.roster.with_founders(swarm.owner, ["m1", "m2"])
    return swarm


def book_of(swarm: Swarm, name: str) -> Book:
    signer = swarm.keyring(name).signer()
    return Book(Life(name, 1), bytes(16), signer, signer.grant)


def test_machines_check_what_each_other_sign(swarm: Swarm) -> None:
    one, two = swarm.keyring("m1").signer(), swarm.keyring("m2").signer()
    signature = one.sign(b"text")
    assert len(signature) == 64
    assert two.verify("m1", b"text", signature)
    assert not two.verify("m1", b"other", signature)
    assert not two.verify("m2", b"text", signature)
    assert not two.verify("nobody", b"text", signature)
    assert not two.verify("m1", b"text", b"short")
    assert (two.grant("m1"), two.grant("m3")) == (ONE, 0)


def test_who_only_checks_cannot_sign() -> None:
    with pytest.raises(LocalProtocolError, match="no key"):
        Signer(None, {}, tuple).sign(b"")


def test_founders_are_under_the_owners_signature(swarm: Swarm) -> None:
    told = json.loads(swarm.roster.as_text())
    assert told["roster"]["founders"] == ["m1", "m2"]
    assert Roster.from_text(swarm.roster.as_text().encode(), 0.0).founders == ("m1", "m2")
    for founders in (["m1", "m2", "m3"], [], ["*"], [7], "m1"):
        told["roster"]["founders"] = founders
        with pytest.raises(ValueError):
            Roster.from_text(json.dumps(told).encode(), 0.0)
    with pytest.raises(ConfigError, match="in full"):
        swarm.roster.with_founders(swarm.owner, ["m*"])


def test_receipts_need_founders_and_a_key_that_signs(tmp_path: Path) -> None:
    swarm = Swarm(tmp_path)
    with pytest.raises(ConfigError, match="names no founders"):
        swarm.keyring("m1").signer()
    old = MachineKey.read(tmp_path / "m1.key")
    bare = swarm.owner.certify(old.certificate.key, "m1", 2.0)
    MachineKey(old.secret, bare).write(tmp_path / "m1.key", replaces=True)
    swarm.roster = swarm.roster.with_founders(swarm.owner, ["m1"])
    with pytest.raises(ConfigError, match="before receipts"):
        swarm.keyring("m1").signer()


def test_an_evicted_machine_is_let_in_no_more_but_a_key_of_several_names_is(swarm: Swarm) -> None:
    swarm.machine("box-*")
    keyring = swarm.keyring("m1")
    for name in ("m2", "box-7"):
        keyring.evict(name)
    assert keyring.look()
    assert {each.names for each in keyring.valid.values()} == {"m1", "box-*"}
    # What it has signed can be checked still.
    signature = swarm.keyring("m2").signer().sign(b"text")
    assert keyring.signer().verify("m2", b"text", signature)


def test_a_book_is_kept_and_audited(swarm: Swarm, tmp_path: Path) -> None:
    one, two = book_of(swarm, "m1"), book_of(swarm, "m2")
    assert two.take(one.promise(two.me, ONE // 2)) is Taken.NEW
    assert two.covers(one.me, ONE // 2)
    receipt = two.decide(one.me, ONE // 2, ONE // 2)
    assert receipt is not None
    one.take(receipt)
    one.promise(two.me, 1)
    write_receipts(tmp_path, one, shards=1)
    kept = read_receipts(receipts_path(tmp_path, 1))
    assert kept.statements == one.since(0)[0]

    roster = swarm.file()
    assert audit_folder(tmp_path, roster).is_sound
    twin = book_of(swarm, "m1").promise(Life("m3", 1), 5)
    assert one.take(twin) is Taken.NEW
    write_receipts(tmp_path, one, shards=1)
    verdict = audit_folder(tmp_path, roster)
    assert [row.peer for row in verdict.rows if row.convicted] == ["m1"]


@pytest.mark.parametrize(
    "change",
    [
        {"format": "another"},
        {"shards": "1"},
        {"swarm": "xyz"},
        {"statements": [[1] * 8]},
        {"statements": [["a", 1, "b", "1", 1, 1, 1, "x"]]},
        {"statements": [[]]},
        {"proofs": 7},
        {"proofs": [{"a": 1}]},
    ],
)
def test_a_file_that_is_no_book_is_refused(
    swarm: Swarm, tmp_path: Path, change: dict[str, object]
) -> None:
    write_receipts(tmp_path, book_of(swarm, "m1"), shards=1)
    path = receipts_path(tmp_path, 1)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(TrainingError, match="holds no receipts"):
        read_receipts(path)


def test_folders_without_receipts_or_of_several_swarms_are_refused(
    swarm: Swarm, tmp_path: Path
) -> None:
    roster = swarm.file()
    with pytest.raises(TrainingError, match="holds no receipts"):
        audit_folder(tmp_path, roster)
    with pytest.raises(TrainingError, match="cannot be read"):
        read_receipts(tmp_path)
    book = book_of(swarm, "m1")
    write_receipts(tmp_path, book, shards=1)
    book.me = replace_incarnation(book.me)
    write_receipts(tmp_path, book, shards=2)
    with pytest.raises(TrainingError, match="several swarms"):
        audit_folder(tmp_path, roster)


def replace_incarnation(life: Life) -> Life:
    return Life(life.peer, life.incarnation + 1)


def test_a_certificate_without_a_signing_key_still_reads(swarm: Swarm) -> None:
    certificate = swarm.owner.certify(bytes(32), "old", 1.0)
    assert "signs" not in certificate.as_json()
    assert type(certificate).from_json(certificate.as_json()) == certificate
    changed = replace(certificate, signs=bytes(32))
    assert not changed.is_genuine()  # it is under the signature
