"""A keyring follows changes of its roster file and rosters from other members."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from rumor.gossip.errors import ConfigError, TransportError
from rumor.gossip.transport.keys.key import Key
from rumor.gossip.transport.keys.keyring import Keyring, read_keyring
from rumor.gossip.transport.keys.roster import Roster

from ..keyrings import Swarm


@pytest.fixture
def swarm(tmp_path: Path) -> Swarm:
    made = Swarm(tmp_path)
    made.machine("m1")
    made.machine("m2")
    return made


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(now_s=0.0)


@pytest.fixture
def keyring(swarm: Swarm, clock: SimpleNamespace) -> Keyring:
    path = swarm.file()
    return Keyring(Key.read(swarm.folder / "m1.key"), Roster.read(path), path, lambda: clock.now_s)


def test_a_peer_whose_key_is_not_admitted_does_not_start(swarm: Swarm) -> None:
    swarm.revoke("m1")
    with pytest.raises(ConfigError, match=r"is not let in by .*: version 4 of the roster does not"):
        swarm.keyring("m1")


def test_members_are_identified_by_their_keys(swarm: Swarm, keyring: Keyring) -> None:
    others = [swarm.owner.public, Key.read(swarm.folder / "m2.key").public]
    assert keyring.candidates() == others and keyring.names == "m1"
    assert "is not in version 3" in keyring.why_refused(bytes(32))
    assert keyring.why_refused(others[1]) == "it is let in"


def test_a_key_and_a_roster_must_be_given_together(swarm: Swarm) -> None:
    assert read_keyring(None, None) is None
    for key, roster in ((swarm.folder / "m1.key", None), (None, swarm.file())):
        with pytest.raises(ConfigError, match="belong together"):
            read_keyring(key, roster)


def test_a_lone_machine_is_its_own_candidate(tmp_path: Path) -> None:
    swarm = Swarm(tmp_path)
    keyring = read_keyring(swarm.owner_key(), swarm.file())
    assert keyring is not None and keyring.candidates() == [keyring.public]


def test_a_changed_roster_file_is_reloaded_while_the_peer_runs(
    swarm: Swarm, keyring: Keyring, clock: SimpleNamespace
) -> None:
    other = keyring.candidates()[1]
    swarm.revoke("m2")
    swarm.file()
    assert not keyring.look()  # the file was read a moment ago
    clock.now_s += 1
    assert keyring.look()
    assert other not in keyring.machines
    clock.now_s += 1
    assert not keyring.look()


EVE = Roster.init(Key.generate("eve"))


def test_a_damaged_missing_foreign_or_older_roster_file_changes_nothing(
    swarm: Swarm, keyring: Keyring, clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    path, old = swarm.folder / "roster", swarm.roster
    for change, message in (
        (lambda: path.write_text("{"), "going on with what was there before"),
        (path.unlink, "cannot be read"),
        (lambda: EVE.write(path), "has another owner now: restart to use it"),
    ):
        change()
        clock.now_s += 1
        assert not keyring.look() and message in caplog.text
    with pytest.raises(ValueError, match="another owner"):
        keyring.take(EVE.text.encode())
    swarm.revoke("m2")
    assert keyring.take(swarm.roster.text.encode())
    old.write(path)
    clock.now_s += 1
    assert not keyring.look(), "an older file undoes no revocation"
    assert len(keyring.machines) == 2 and keyring.roster.version == 4


def test_a_members_roster_is_used_once_and_saved(swarm: Swarm, keyring: Keyring) -> None:
    old = swarm.roster.text.encode()
    swarm.machine("m3")
    newer = swarm.roster.text.encode()
    assert keyring.take(newer)
    assert not keyring.take(newer) and not keyring.take(old)
    assert keyring.text == newer == (swarm.folder / "roster").read_bytes()
    assert not keyring.look()


def test_a_roster_that_cannot_be_saved_is_still_used(
    swarm: Swarm, keyring: Keyring, caplog: pytest.LogCaptureFixture
) -> None:
    swarm.machine("m3")
    (swarm.folder / "roster").unlink()
    (swarm.folder / "roster").mkdir()
    assert keyring.take(swarm.roster.text.encode())
    assert "the new roster cannot be kept" in caplog.text


def test_a_revoked_peer_stops_and_saves_the_roster(swarm: Swarm, keyring: Keyring) -> None:
    swarm.revoke("m1")
    with pytest.raises(TransportError, match="no longer admitted: version 4 of the roster"):
        keyring.take(swarm.roster.text.encode())
    with pytest.raises(ConfigError, match="is not let in by"):
        read_keyring(swarm.folder / "m1.key", swarm.folder / "roster")
