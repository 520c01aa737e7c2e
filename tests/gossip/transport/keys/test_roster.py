"""Rosters admit machines, record changes, and refuse invalid texts."""

import itertools
from pathlib import Path

import pytest

from rumor.gossip.errors import ConfigError
from rumor.gossip.transport.keys import roster as module
from rumor.gossip.transport.keys.key import Key, key_text
from rumor.gossip.transport.keys.roster import ROSTER_BYTES_MAX, Roster

ADA = Key("ada", b"a" * 32)
BOB = Key("bob", b"b" * 32)


def with_bob() -> Roster:
    return Roster.init(ADA).with_machines(ADA, [("bob", BOB.public)])


def changed(before: str, after: str) -> bytes:
    text = with_bob().text
    assert before in text
    return text.replace(before, after).encode()


def test_a_roster_is_read_back_from_its_text() -> None:
    roster = with_bob()
    assert Roster.from_text(roster.text.encode()) == roster
    assert roster.version == 2 and [*roster.machines.values()] == ["ada", "bob"]


def test_a_roster_admits_listed_machines_and_advises_others() -> None:
    eve = Key.generate("eve-*")
    assert not with_bob().why_not(BOB)
    advice = f"rumor keys add ROSTER 'eve-*' {key_text(eve.public)} --key OWNER.key"
    assert advice in with_bob().why_not(eve)


def test_a_key_that_is_added_again_is_renamed() -> None:
    roster = with_bob().with_machines(ADA, [("gpu-*", BOB.public)])
    assert [*roster.machines.values()] == ["ada", "gpu-*"] and roster.version == 3


def test_a_machine_is_revoked_by_name_or_key() -> None:
    for name_or_key in ("bob", key_text(BOB.public)):
        after = with_bob().without(ADA, [name_or_key])
        assert after.version == 3 and [*after.machines] == [ADA.public]
        assert "does not list it" in after.why_not(BOB)


def test_a_shared_name_revokes_both_machines_and_a_key_only_one() -> None:
    other = Key.generate("bob")
    both = with_bob().with_machines(ADA, [("bob", other.public)])
    assert [*both.without(ADA, ["bob", "bob"]).machines] == [ADA.public]
    assert other.public in both.without(ADA, [key_text(BOB.public)]).machines


def test_only_the_owner_can_change_a_roster() -> None:
    with pytest.raises(ConfigError, match="this key is bob's, and the roster's owner is ada"):
        with_bob().without(BOB, ["bob"])
    with pytest.raises(ConfigError, match="the roster's owner is"):
        with_bob().without(ADA, ["ada"]).with_machines(BOB, [])
    with pytest.raises(ConfigError, match="no machine is called 'eve': those listed are ada, bob"):
        with_bob().without(ADA, ["eve"])


def test_invalid_names_and_too_many_machines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no peer can be called 'a b'"):
        with_bob().with_machines(ADA, [("a b", bytes(32))])
    monkeypatch.setattr(module, "MACHINES_MAX", 2)
    with pytest.raises(ConfigError, match="at most 2 machines"):
        with_bob().with_machines(ADA, [("eve", bytes(32))])


def test_the_larger_version_wins_and_ties_resolve_the_same_everywhere() -> None:
    older = with_bob()
    newer = older.without(ADA, ["bob"])
    assert older.newest(newer) is newer and newer.newest(older) is newer
    other = Roster.init(ADA).with_machines(ADA, [("eve", bytes(32))])
    assert older.version == other.version and older.newest(other) is other.newest(older)
    mine, theirs = Roster.init(ADA), Roster.init(BOB).with_machines(BOB, [])
    assert mine.newest(theirs) is mine


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("version 2", "version 99"),
        ("bob ", "eve "),
        (key_text(BOB.public), key_text(bytes(32))),
        (f"signs {key_text(ADA.signs)}", f"signs {key_text(BOB.signs)}"),
        (f"owner {key_text(ADA.public)}", f"owner {key_text(BOB.public)}"),
    ],
)
def test_any_change_invalidates_the_owners_signature(before: str, after: str) -> None:
    with pytest.raises(ValueError, match="signature does not match"):
        Roster.from_text(changed(before, after))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n" * 9,
        b"\xff",
        b"{}",
        b"rumor roster 1\n",
        b"x y\n" * 9,
        b"x" * (ROSTER_BYTES_MAX + 1),
        changed("rumor roster 1", "rumor roster 2"),
        changed("version 2", "version 02"),
        changed("version 2", "version 0"),
        changed("version 2", f"version {2**53 + 1}"),
        changed("version 2", "version two"),
        changed("owner ", "owned "),
        changed("bob ", "b*b "),
        changed("bob ", ""),
        changed("bob ", "bob  "),
        changed(key_text(BOB.public), key_text(ADA.public)),
        changed("signature ", "signed "),
        with_bob().text.encode()[:-1],
        with_bob().text.encode() + b"\n",
    ],
    ids=itertools.count(),
)
def test_invalid_rosters_are_refused_with_an_explanation(text: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        Roster.from_text(text)
    path = tmp_path / "roster"
    path.write_bytes(text)
    with pytest.raises(ConfigError, match="is not a roster of"):
        Roster.read(path)


def test_a_missing_or_unwritable_roster_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere cannot be read"):
        Roster.read(tmp_path / "nowhere")
    with pytest.raises(OSError):
        with_bob().write(tmp_path / "no" / "where")
    (tmp_path / "there").mkdir()
    with pytest.raises(OSError):
        with_bob().write(tmp_path / "there")
    assert [each.name for each in tmp_path.iterdir()] == ["there"]
