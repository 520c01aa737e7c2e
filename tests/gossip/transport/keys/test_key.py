"""Key files, names of keys, and signatures."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rumor.gossip.errors import ConfigError
from rumor.gossip.transport.keys.key import (
    Key,
    covers,
    is_stop_signed,
    key_bytes,
    key_text,
    signed_stop,
)
from rumor.gossip.wire.messages import Stop

ADA = Key.generate("ada")
SWARM = bytes(16)
STOP = Stop((("a", 1), ("b", 2**62)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m1.key"


def test_a_key_is_read_back_from_its_file(path: Path) -> None:
    key = Key.generate("gpu-*")
    key.write(path)
    assert Key.read(path) == key
    assert key.line == f"gpu-* {key_text(key.public)}"


def test_a_key_file_is_readable_only_by_its_owner(path: Path) -> None:
    ADA.write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(ConfigError, match=f"can be read by others: run chmod 600 {path}"):
            Key.read(path)


def test_a_key_is_never_overwritten(path: Path) -> None:
    ADA.write(path)
    with pytest.raises(ConfigError, match="never overwritten"):
        Key.generate("m1").write(path)
    assert Key.read(path) == ADA


@pytest.mark.parametrize(
    "content",
    [
        "",
        "rumor key 1",
        "rumor key 1\n",
        "rumor key 1\nada\n",
        "rumor key 1\nada short\n",
        f"rumor key 2\nada {'A' * 43}\n",
        f"rumor key 1\na/b {'A' * 43}\n",
        f"rumor key 1\nada {'A' * 43}\nmore\n",
        "rumor key 1\nad\xe4 x\n",
    ],
)
def test_invalid_keys_are_refused_with_an_explanation(path: Path, content: str) -> None:
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=r"m1\.key is not a key of `rumor keys make`"):
        Key.read(path)


def test_a_missing_or_unwritable_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"m1\.key cannot be read"):
        Key.read(tmp_path / "m1.key")
    with pytest.raises(ConfigError, match="cannot be written"):
        ADA.write(tmp_path / "nowhere" / "ada.key")


@pytest.mark.parametrize("name", ["", "a b", "*x", "a**", "x" * 41, "a\n"])
def test_invalid_peer_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no peer can be called"):
        Key.generate(name)


def test_a_key_has_a_unique_text() -> None:
    text = key_text(b"\xff" * 32)
    assert key_bytes(text) == b"\xff" * 32
    # The last character has two unused bits, so another one would give a second text of the key.
    for other in (text[:-1] + "9", text + "=", text[:-1], text.replace("_", "/"), "\xe4" * 43):
        with pytest.raises(ValueError, match="is not a key"):
            key_bytes(other)


@pytest.mark.parametrize(
    ("pattern", "name", "covered"),
    [
        ("bob", "bob", True),
        ("bob", "bob.gpu", True),
        ("bob", "bobby", False),
        ("gpu-*", "gpu-1", True),
        ("gpu-*", "gpu", False),
        ("*", "any-name", True),
    ],
)
def test_a_pattern_covers_matching_names(pattern: str, name: str, covered: bool) -> None:
    assert covers(pattern, name) is covered


def test_a_missing_cryptography_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    with pytest.raises(ConfigError, match=r"pip install -e '\.\[keys\]'"):
        ADA.sign(b"")


def test_a_signed_stop_is_valid_for_one_swarm_and_its_incarnations() -> None:
    signed = signed_stop(ADA, SWARM, STOP)
    assert is_stop_signed(ADA.signs, SWARM, signed)
    assert not is_stop_signed(ADA.signs, bytes(15) + b"x", signed)
    later = replace(signed, lives=(("a", 1), ("b", 2**62 + 1)))
    for other in (later, signed_stop(Key.generate("eve"), SWARM, STOP), STOP):
        assert not is_stop_signed(ADA.signs, SWARM, other)
