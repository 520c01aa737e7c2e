"""``rumor keygen`` and ``rumor roster``: what they make, and what they refuse in one line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rumor.cli.app import app


def rumor(*words: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == status, result.output
    return result.output


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rumor("roster", "init", "roster.json", "--key", "ada.key")
    return tmp_path


def shown() -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = json.loads(
        rumor("roster", "show", "roster.json", "--json").splitlines()[-1]
    )
    return found


def test_an_owner_founds_a_roster_and_lists_machines(folder: Path) -> None:
    told = rumor("keygen", "m1.key", "m2.key", "--by", "ada.key", "--roster", "roster.json")
    assert "m1.key: for peers called ada.m1, until" in told
    assert [each["names"] for each in shown()["people"]] == ["*"]
    assert {each["names"] for each in shown()["machines"]} == {"ada.m1", "ada.m2"}
    assert all(each["let_in"] for each in shown()["machines"])
    for name in ("ada.key", "m1.key"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600


def test_a_person_is_added_signs_a_machine_and_is_revoked(folder: Path) -> None:
    told = rumor("keygen", "bob.key", "--json")
    key = json.loads(told.splitlines()[-1])["keys"][0]["key"]
    rumor("roster", "add", "roster.json", "bob", key, "--key", "ada.key")
    rumor("keygen", "gpu.key", "--by", "bob.key", "--roster", "roster.json")
    assert "  bob.gpu: until" in rumor("roster", "show", "roster.json")
    rumor("roster", "revoke", "roster.json", "bob", "--key", "ada.key")
    after = shown()
    assert after["revoked"] == [key] and not after["machines"]


def test_a_key_is_renewed(folder: Path) -> None:
    rumor("keygen", "m1.key", "--by", "ada.key", "--roster", "roster.json", "--days", "1")
    before = shown()["machines"]
    rumor("keygen", "m1.key", "--by", "ada.key", "--roster", "roster.json", "--renew")
    (after,) = shown()["machines"]
    assert after["key"] == before[0]["key"] and str(after["until"]) > str(before[0]["until"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("roster", "init", "roster.json", "--key", "ada.key"), "is there already"),
        (("roster", "add", "roster.json", "bob", "--key", "ada.key"), "needs the key that keygen"),
        (("roster", "add", "roster.json", "bob", "x", "--key", "ada.key"), "is no public key"),
        (("roster", "revoke", "roster.json", "bob", "--key", "ada.key"), "nobody and no machine"),
        (("roster", "revoke", "roster.json", "--key", "ada.key"), "needs a NAME"),
        (("roster", "revoke", "roster.json", "ada"), "needs --key OWNER.key"),
        (("roster", "revoke", "roster.json", "ada", "--key", "ada.key"), "owner cannot be revoked"),
        (("roster", "show", "nowhere.json"), "cannot be read"),
        (("roster", "show", "ada.key"), "is no roster"),
        (("keygen", "ada.key"), "never overwritten"),
        (("keygen", "m1.key", "--renew"), "give --by PERSON.key"),
        (("keygen", "m1.key", "m2.key", "--by", "ada.key", "--name", "m"), "--name is for one"),
        (("keygen", "m1.key", "--by", "nobody.key"), "cannot be read"),
        (("keygen", "m1.key", "--by", "ada.key", "--days", "0"), "--days is 0"),
        (("keygen", "m1.key", "--by", "ada.key", "--name", "a b"), "can be no peer's"),
        (("peer", "--key", "ada.key"), "key and roster belong together"),
        (("peer", "--key", "ada.key", "--roster", "roster.json"), "is a person's key"),
        (("calibrate", "--join", "a:1", "--key", "ada.key"), "belong together"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder: Path, words: tuple[str, ...], said: str) -> None:
    told = rumor(*words, status=2)
    assert said in told and told.startswith("error: ") and len(told.splitlines()) == 1


def test_a_machine_that_the_roster_would_not_let_in_is_not_made(folder: Path) -> None:
    rumor("keygen", "eve.key")
    told = rumor("keygen", "m.key", "--by", "eve.key", "--roster", "roster.json", status=2)
    assert "the owner adds them with `rumor roster add`" in told
    assert not (folder / "m.key").exists()


def test_a_launch_needs_a_key_for_all_its_peers(folder: Path) -> None:
    rumor("keygen", "m1.key", "--by", "ada.key", "--roster", "roster.json")
    keys = ("--key", "m1.key", "--roster", "roster.json")
    told = rumor("launch", "--peers", "2", "--out", "run", *keys, status=2)
    assert "make a key with `rumor keygen --name`, such as --name 'peer-*'" in told
    assert not (folder / "run").exists()
