"""Key files: what is written is read again by its owner alone, and nothing else passes for it."""

import json
import sys
from pathlib import Path

import pytest

from rumor.gossip.errors import ConfigError
from rumor.gossip.transport.keys.certificates import MachineKey, PersonKey
from rumor.gossip.transport.keys.files import key_bytes, key_text

ADA = PersonKey.generate("ada")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m1.key"


def test_keys_come_back_from_their_files(tmp_path: Path) -> None:
    machine = MachineKey.generate(ADA, "gpu-*", 1.0)
    ADA.write(tmp_path / "ada.key")
    machine.write(tmp_path / "m1.key")
    assert PersonKey.read(tmp_path / "ada.key") == ADA
    assert MachineKey.read(tmp_path / "m1.key") == machine
    assert machine.certificate.is_genuine()


def test_a_key_is_its_owners_alone(path: Path) -> None:
    ADA.write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(ConfigError, match=f"can be read by others: run chmod 600 {path}"):
            PersonKey.read(path)


def test_a_key_is_never_overwritten_but_by_its_renewal(path: Path) -> None:
    machine = MachineKey.generate(ADA, "m1", 1.0)
    machine.write(path)
    with pytest.raises(ConfigError, match="never overwritten"):
        ADA.write(path)
    renewed = machine.renewed(ADA, 2.0)
    renewed.write(path, replaces=True)
    assert MachineKey.read(path).certificate == renewed.certificate
    assert renewed.certificate.key == machine.certificate.key
    assert path.stat().st_mode & 0o777 == 0o600


def test_keys_of_people_and_machines_are_told_apart(tmp_path: Path) -> None:
    ADA.write(tmp_path / "ada.key")
    MachineKey.generate(ADA, "m1", 1.0).write(tmp_path / "m1.key")
    with pytest.raises(ConfigError, match="is a person's key: make one for this machine with"):
        MachineKey.read(tmp_path / "ada.key")
    with pytest.raises(ConfigError, match="name the key of who signs"):
        PersonKey.read(tmp_path / "m1.key")


def test_parts_of_two_keys_do_not_make_one(path: Path) -> None:
    one, two = (MachineKey.generate(ADA, "m1", 1.0) for _ in range(2))
    MachineKey(one.secret, two.certificate).write(path)
    with pytest.raises(ConfigError, match="do not belong together"):
        MachineKey.read(path)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"kind": "machine"}', "\x00", '{"a": [1e9]}'])
def test_what_is_no_key_is_refused_in_words(path: Path, content: str) -> None:
    path.write_text(content)
    path.chmod(0o600)
    for kind in (MachineKey, PersonKey):
        with pytest.raises(ConfigError, match=r"is no(t| key)"):
            kind.read(path)


def test_a_key_that_is_not_there_is_named(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"m1\.key cannot be read"):
        MachineKey.read(path)


def test_a_key_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        ADA.write(tmp_path / "nowhere" / "ada.key")


@pytest.mark.parametrize("names", ["", "a b", "*x", "a**", "x" * 41, "a\n"])
def test_names_that_no_peer_can_have_are_refused(names: str) -> None:
    with pytest.raises(ConfigError, match="can be no peer's"):
        MachineKey.generate(ADA, names, 1.0)


@pytest.mark.parametrize("days", [0.0, -1.0, 4000.0, float("nan")])
def test_a_time_that_is_none_is_refused(days: float) -> None:
    with pytest.raises(ConfigError, match="--days"):
        MachineKey.generate(ADA, "m1", days)


@pytest.mark.parametrize("name", ["", "a*", "a b"])
def test_a_person_has_a_plain_name(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be called"):
        PersonKey.generate(name)


def test_a_key_has_one_text() -> None:
    text = key_text(b"\xff" * 32)
    assert key_bytes(text) == b"\xff" * 32
    # The last letter has two bits to spare: another one would be a second text of the same key.
    for other in (text[:-1] + "9", text + "=", text[:-1], text.replace("_", "/"), 7, None):
        with pytest.raises(ValueError):
            key_bytes(other)


def test_a_missing_library_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    with pytest.raises(ConfigError, match=r"pip install 'rumor\[keys\]'"):
        PersonKey.generate("ada")


def test_a_name_in_a_file_is_looked_at(path: Path) -> None:
    ADA.write(path)
    content = json.loads(path.read_text()) | {"name": "../x"}
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="is not a person's key"):
        PersonKey.read(path)
