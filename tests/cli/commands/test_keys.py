"""``rumor keys``: the files it makes, and one-line errors."""

import json
import shlex
from pathlib import Path

import pytest

from ..called import called


def rumor(*words: object, status: int = 0) -> str:
    return called(*words, status=status).output


@pytest.fixture
def folder(in_empty_folder: Path) -> Path:
    rumor("keys", "make", "m1.key")
    rumor("keys", "init", "roster", "--key", "m1.key")
    return in_empty_folder


def listed_names() -> list[str]:
    shown = json.loads(rumor("keys", "show", "roster", "--json").splitlines()[-1])
    return [each["name"] for each in shown["machines"]]


def test_printed_lines_can_be_added_and_revoked(folder: Path) -> None:
    lines = rumor("keys", "make", "m2.key", "m3.key").splitlines()
    assert [line.split()[0] for line in lines] == ["m2", "m3"]
    output = rumor("keys", "add", "roster", *" ".join(lines).split(), "--key", "m1.key")
    assert output.splitlines()[0] == "version 2, signed by m1" and output.splitlines()[2:] == lines
    assert output == rumor("keys", "show", "roster")
    rumor("keys", "revoke", "roster", "m2", lines[1].split()[1], "--key", "m1.key")
    assert listed_names() == ["m1"]
    for name in ("m1.key", "m2.key"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600


def test_json_describes_keys_and_rosters(folder: Path) -> None:
    (key,) = json.loads(rumor("keys", "make", "x.key", "--name", "peer-*", "--json"))["keys"]
    assert (key["file"], key["name"]) == ("x.key", "peer-*")
    rumor("keys", "add", "roster", "peer-*", key["key"], "--key", "m1.key")
    assert listed_names() == ["m1", "peer-*"]


def test_a_revoked_owner_can_still_sign(folder: Path) -> None:
    output = rumor("keys", "revoke", "roster", "m1", "--key", "m1.key")
    assert output.startswith("version 2, signed by ") and not listed_names()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("keys init roster --key m1.key", "is there already"),
        ("keys init other --key nobody.key", "cannot be read"),
        ("keys add roster m2 --key m1.key", "needs NAME KEY, as `rumor"),
        ("keys add roster m2 x --key m1.key", "is not a public key"),
        ("keys revoke roster m2 --key m1.key", "no machine is called 'm2'"),
        ("keys show nowhere", "cannot be read"),
        ("keys show m1.key", "is not a roster"),
        ("keys make m1.key", "never overwritten"),
        ("keys make a.key b.key --name m", "--name is for one"),
        ("keys make m.key --name 'a b'", "no peer can be called 'a b'"),
        ("peer --key m1.key", "key and roster belong together"),
        ("peer --key roster --roster roster", "run chmod 600"),
    ],
)
def test_errors_take_one_line(folder: Path, words: str, message: str) -> None:
    output = rumor(*shlex.split(words), status=2)
    assert message in output and output.startswith("error: ") and len(output.splitlines()) == 1


def test_an_unwritable_roster_gives_status_1(folder: Path) -> None:
    output = rumor("keys", "init", "no/where", "--key", "m1.key", status=1)
    assert output.startswith("error: ") and "no/where" in output


def test_a_launch_needs_a_key_for_all_its_peers(folder: Path) -> None:
    keys = ("--set=key=m1.key", "--set=roster=roster")
    output = rumor("launch", "--peers", "2", "--out", "run", *keys, status=2)
    assert "lists --key m1.key as m1" in output and "its owner adds the key as 'peer-*'" in output
    assert not (folder / "run").exists()
