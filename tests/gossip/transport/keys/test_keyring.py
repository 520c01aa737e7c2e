"""A keyring while its peer runs: files that change, what members tell, its own key's end."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from rumor.gossip.errors import ConfigError, TransportError
from rumor.gossip.transport.keys.certificates import MachineKey, PersonKey
from rumor.gossip.transport.keys.keyring import Keyring
from rumor.gossip.transport.keys.roster import Roster

from ..keyrings import Swarm


class Clock:
    def __init__(self) -> None:
        self.now_s = time.time()

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def swarm(tmp_path: Path) -> Swarm:
    return Swarm(tmp_path)


def read(swarm: Swarm, clock: Clock, name: str = "m1", days: float = 1.0) -> Keyring:
    key = swarm.machine(name, days=days)
    roster = swarm.file(f"{name}.json")
    return Keyring(MachineKey.read(key), Roster.read(roster, clock()), roster, key, clock=clock)


def test_a_peer_whose_key_is_not_let_in_does_not_start(swarm: Swarm) -> None:
    key = swarm.machine("m1")
    swarm.revoke("m1")
    with pytest.raises(ConfigError, match=r"m1\.key is not let in by .*: its key was revoked"):
        Keyring.read(key, swarm.file())
    elsewhere = swarm.folder / "other"
    elsewhere.mkdir()
    with pytest.raises(ConfigError, match="who is not in version 1 of the roster: the owner adds"):
        Keyring.read(key, Swarm(elsewhere).file())


def test_its_own_machine_need_not_be_listed(swarm: Swarm) -> None:
    keyring = Keyring.read(swarm.machine("m1", listed=False), swarm.file())
    assert [*keyring.valid] == [keyring.public]
    assert keyring.candidates() == [keyring.public]


def test_a_certificate_with_another_signature_is_noticed_at_the_start(swarm: Swarm) -> None:
    own = MachineKey.read(swarm.machine("m1"))
    forged = replace(own, certificate=replace(own.certificate, names="*"))
    roster = swarm.file()
    with pytest.raises(ConfigError, match="its certificate was changed"):
        Keyring(forged, Roster.read(roster, time.time()), roster, swarm.folder / "m1.key")


def test_a_changed_roster_file_is_read_while_the_peer_runs(swarm: Swarm) -> None:
    clock = Clock()
    swarm.machine("m2")
    keyring = read(swarm, clock)
    (other,) = keyring.candidates()
    assert keyring.may_speak_as(other, "m2") and not keyring.may_speak_as(other, "m1")
    swarm.revoke("m2")
    swarm.file("m1.json")
    assert not keyring.look()  # not so soon again
    clock.now_s += 1
    assert keyring.look()
    assert not keyring.may_speak_as(other, "m2")
    assert "revoked" in keyring.why_refused(other)
    clock.now_s += 1
    assert not keyring.look()


def test_a_file_that_is_damaged_meanwhile_changes_nothing(
    swarm: Swarm, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    keyring = read(swarm, clock)
    (swarm.folder / "m1.json").write_text("{")
    clock.now_s += 1
    assert not keyring.look()
    assert "going on with what was there before" in caplog.text


def test_an_older_file_does_not_undo_a_revocation(swarm: Swarm) -> None:
    clock = Clock()
    swarm.machine("m2")
    old = swarm.roster
    swarm.revoke("m2")
    keyring = read(swarm, clock)
    old.write(swarm.folder / "m1.json")
    clock.now_s += 1
    keyring.look()
    assert len(keyring.valid) == 1 and keyring.version == 2


def test_what_members_tell_is_taken_once_and_kept_on_disk(swarm: Swarm) -> None:
    clock = Clock()
    keyring = read(swarm, clock)
    swarm.machine("m2")
    swarm.revoke("m2")
    told = swarm.roster.as_text().encode()
    assert keyring.take(told)
    assert not keyring.take(told)
    assert keyring.text == Roster.read(swarm.folder / "m1.json", clock()).as_text().encode()
    assert Roster.read(swarm.folder / "m1.json", clock()).version == 2


def test_a_roster_of_another_owner_is_no_news(swarm: Swarm) -> None:
    keyring = read(swarm, Clock())
    with pytest.raises(ValueError, match="another owner"):
        keyring.take(Roster.found(PersonKey.generate("eve")).as_text().encode())


def test_a_peer_that_is_revoked_itself_is_told_so(swarm: Swarm) -> None:
    keyring = read(swarm, Clock())
    swarm.revoke("m1")
    with pytest.raises(TransportError, match="let in no more: its key was revoked"):
        keyring.take(swarm.roster.as_text().encode())


def test_a_certificate_expires_while_the_peer_runs_unless_it_is_renewed(
    swarm: Swarm, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    keyring = read(swarm, clock)
    assert "expires in 24.0 h: renew it with" in caplog.text
    path = swarm.folder / "m1.key"
    MachineKey.read(path).renewed(swarm.owner, 3.0).write(path, replaces=True)
    clock.now_s += 2 * 86_400
    assert keyring.look()
    clock.now_s += 2 * 86_400
    with pytest.raises(TransportError, match="its certificate expired on"):
        keyring.look()


def test_a_member_that_expires_is_let_in_no_more(swarm: Swarm) -> None:
    clock = Clock()
    swarm.machine("m2", days=0.5)
    keyring = read(swarm, clock)
    (other,) = keyring.candidates()
    clock.now_s += 0.6 * 86_400
    assert keyring.look()
    assert other not in keyring.valid
    assert "expired on" in keyring.why_refused(other)
    assert "is unknown" in keyring.why_refused(bytes(32))


def test_another_key_in_the_file_waits_for_a_restart(
    swarm: Swarm, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    keyring = read(swarm, clock)
    path = swarm.folder / "m1.key"
    MachineKey.generate(swarm.owner, "m1", 5.0).write(path, replaces=True)
    clock.now_s += 1
    keyring.look()
    assert "restart this peer to use it" in caplog.text
    assert keyring.public != MachineKey.read(path).certificate.key
