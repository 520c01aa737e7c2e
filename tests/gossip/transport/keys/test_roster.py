"""Whom a roster lets in, what changes it, and what is refused as one."""

import itertools
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rumor.gossip.errors import ConfigError
from rumor.gossip.transport.keys.certificates import (
    CLOCK_ERROR_S,
    Certificate,
    MachineKey,
    PersonKey,
    covers,
)
from rumor.gossip.transport.keys.files import key_text
from rumor.gossip.transport.keys.roster import MACHINES_PER_PERSON_MAX, Person, Roster

ADA = PersonKey("ada", b"a" * 32)
BOB = PersonKey("bob", b"b" * 32)


def now_s() -> float:
    """Certificates of these tests are made when they run, which may be long after the import."""
    return time.time()


def with_bob() -> Roster:
    return Roster.found(ADA).with_person(ADA, Person("bob", BOB.public, "bob"))


def machine(person: PersonKey, names: str, days: float = 1.0) -> Certificate:
    return MachineKey.generate(person, names, days).certificate


def changed(roster: Roster, **changes: Any) -> bytes:
    content = json.loads(roster.as_text())
    content["roster"] |= changes
    return json.dumps(content).encode()


def test_a_roster_comes_back_from_its_text() -> None:
    roster = with_bob().with_machines([machine(ADA, "m1"), machine(BOB, "bob.m2")], now_s())
    assert len(roster.machines) == 2
    assert Roster.from_text(roster.as_text().encode(), now_s()) == roster


@pytest.mark.parametrize(
    ("pattern", "name", "covered"),
    [
        ("bob", "bob", True),
        ("bob", "bob.gpu", True),
        ("bob", "bobby", False),
        ("gpu-*", "gpu-1", True),
        ("gpu-*", "gpu", False),
        ("gpu-*", "gpu-1*", True),
        ("gpu-1*", "gpu-*", False),
        ("bob", "bob*", False),
        ("*", "whoever", True),
    ],
)
def test_a_pattern_covers_names_and_narrower_patterns(
    pattern: str, name: str, covered: bool
) -> None:
    assert covers(pattern, name) is covered


def test_a_person_cannot_sign_machines_with_names_of_others() -> None:
    roster = with_bob()
    theft = machine(BOB, "ada.m1")
    assert "must be called bob" in roster.why_not(theft, now_s())
    assert roster.with_machines([theft], now_s()) is roster


def test_two_people_cannot_have_names_in_common() -> None:
    eve = PersonKey.generate("eve")
    with pytest.raises(ConfigError, match=r"could be bob's"):
        with_bob().with_person(ADA, Person("eve", eve.public, "bob.m*"))
    with pytest.raises(ConfigError, match=r"bob's already"):
        with_bob().with_person(ADA, Person("eve", BOB.public, "eve"))


def test_a_machine_of_a_stranger_is_not_let_in() -> None:
    stranger = machine(PersonKey.generate("eve"), "m1")
    roster = Roster.found(ADA)
    assert "who is not in version 1" in roster.why_not(stranger, now_s())
    assert not roster.with_machines([stranger], now_s()).machines


def test_a_certificate_that_was_changed_is_not_taken() -> None:
    genuine = machine(ADA, "m1")
    for forged in (
        replace(genuine, names="m2"),
        replace(genuine, until=genuine.until + 1),
        replace(genuine, key=bytes(32)),
        replace(genuine, signature=bytes(64)),
    ):
        assert not Roster.found(ADA).with_machines([forged], now_s()).machines


def test_expiry_and_wrong_clocks_are_told_apart() -> None:
    certificate = machine(ADA, "m1")
    roster = Roster.found(ADA)
    assert not roster.why_not(certificate, certificate.since - CLOCK_ERROR_S)
    assert "set the clock" in roster.why_not(certificate, certificate.since - CLOCK_ERROR_S - 1)
    assert not roster.why_not(certificate, certificate.until)
    assert "expired on" in roster.why_not(certificate, certificate.until + 1)
    # It is kept for later, and lets nobody in yet.
    early_s = certificate.since - 2 * CLOCK_ERROR_S
    kept = roster.with_machines([certificate], early_s)
    assert kept.machines and not kept.valid(early_s)


def test_a_renewed_certificate_replaces_the_one_before_and_no_later_one() -> None:
    key = MachineKey.generate(ADA, "m1", 1.0)
    longer = key.renewed(ADA, 2.0).certificate
    roster = Roster.found(ADA).with_machines([key.certificate], now_s())
    assert roster.with_machines([longer], now_s()).machines == {longer.key: longer}
    assert roster.with_machines([longer, key.certificate], now_s()).machines == {longer.key: longer}


def test_one_person_cannot_fill_the_roster() -> None:
    crowd = [machine(BOB, f"bob.{i}") for i in range(MACHINES_PER_PERSON_MAX + 1)]
    roster = with_bob().with_machines(crowd, now_s())
    assert len(roster.machines) == MACHINES_PER_PERSON_MAX
    assert len(roster.with_machines([machine(ADA, "m1")], now_s()).machines) == len(crowd)


@pytest.mark.parametrize("named", ["bob", key_text(BOB.public)])
def test_revoking_a_person_shuts_out_all_their_machines(named: str) -> None:
    theirs, own = machine(BOB, "bob.m2"), machine(ADA, "m1")
    before = with_bob().with_machines([theirs, own], now_s())
    after = before.without(ADA, named)
    assert after.version == before.version + 1
    assert [*after.valid(now_s())] == [own.key]
    assert "revoked" in after.why_not(theirs, now_s())
    with pytest.raises(ConfigError, match="for ever"):
        after.with_person(ADA, Person("bob", BOB.public, "bob"))


def test_revoking_a_machine_leaves_its_person_in() -> None:
    lost, kept = machine(BOB, "bob.m2"), machine(BOB, "bob.m3")
    before = with_bob().with_machines([lost, kept], now_s())
    for named in ("bob.m2", key_text(lost.key)):
        after = before.without(ADA, named)
        assert [*after.valid(now_s())] == [kept.key]
        assert after.with_machines([lost], now_s()) is after


def test_a_key_that_nobody_has_heard_of_can_be_revoked() -> None:
    lost = machine(ADA, "m1")
    assert not Roster.found(ADA).without(ADA, key_text(lost.key)).with_machines([lost], 0).machines


def test_only_the_owner_changes_a_roster_and_is_never_revoked() -> None:
    with pytest.raises(ConfigError, match="only its owner can change it"):
        with_bob().without(BOB, "bob")
    with pytest.raises(ConfigError, match="owner cannot be revoked"):
        with_bob().without(ADA, "ada")
    with pytest.raises(ConfigError, match="nobody and no machine is called 'eve'"):
        with_bob().without(ADA, "eve")


def test_the_larger_version_wins_and_machines_of_both_stay() -> None:
    one, two = machine(ADA, "m1"), machine(BOB, "bob.m2")
    older = with_bob().with_machines([one, two], now_s())
    newer = with_bob().without(ADA, "bob")
    for merged in (older.merged(newer, now_s()), newer.merged(older, now_s())):
        assert merged.version == newer.version
        assert [*merged.machines] == [one.key]


def test_a_roster_of_another_owner_never_wins() -> None:
    mine, theirs = Roster.found(ADA), Roster.found(BOB).without(BOB, key_text(bytes(32)))
    assert mine.merged(theirs, now_s()).owner == ADA.public


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 99},
        {"people": []},
        {"revoked": [key_text(bytes(32))]},
        {"owner": key_text(BOB.public)},
    ],
)
def test_whatever_is_changed_the_owners_signature_does_not_fit(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="signature does not fit"):
        Roster.from_text(changed(with_bob(), **changes), now_s())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"a": 1, "a": 2}',
        b'{"a": NaN}',
        b'{"a": 1.5}',
        b'{"a": ' + b"9" * 30 + b"}",
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a": "' + b"x" * (1 << 20) + b'"}',
        changed(with_bob(), version=True),
        changed(with_bob(), version=0),
        changed(with_bob(), people=[{"name": "x*", "key": key_text(bytes(32)), "names": "x"}]),
        changed(with_bob(), people={}),
        changed(with_bob(), revoked=["short"]),
        changed(with_bob(), revoked=[key_text(bytes(32))] * 5000),
        changed(with_bob(), owner=5),
        changed(with_bob(), more=1),
    ],
    ids=itertools.count(),
)
def test_what_is_no_roster_is_refused_in_words(text: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        Roster.from_text(text, now_s())
    path = tmp_path / "roster.json"
    path.write_bytes(text)
    with pytest.raises(ConfigError, match="is no roster of"):
        Roster.read(path, now_s())


def test_a_roster_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json cannot be read"):
        Roster.read(tmp_path / "nowhere.json", now_s())
