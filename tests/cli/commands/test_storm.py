"""``rumor storm``: lists storms, draws one, and writes what the other commands read."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rumor.cli.app import app
from rumor.sim.kernel.faults.storms import STORMS
from rumor.sim.models.network import read_network
from rumor.train.faults.schedule import check_faults, read_faults


def rumor(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["storm", *arguments])
    assert result.exit_code == status, result.output
    return result.output


def test_without_a_name_all_are_listed() -> None:
    text = rumor()
    assert all(name in text for name in STORMS)
    assert [row["storm"] for row in json.loads(rumor("--json"))] == list(STORMS)


def test_what_is_written_is_what_other_commands_read(tmp_path: Path) -> None:
    text = rumor("home", "-n", "6", "--lasts", "2min", "--scale", "720", "--out", str(tmp_path))
    faults = read_faults(tmp_path / "faults.json")
    check_faults(faults, [f"peer-{index}" for index in range(6)])
    assert {"slow", "crash"} <= {fault.kind for fault in faults}
    assert len(read_network(str(tmp_path / "network.json")).hosts) == 6
    assert "6 slow" in text and f"Faults: {tmp_path}" in text and "Network: " in text


def test_without_a_folder_nothing_is_written_and_json_has_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = json.loads(rumor("torchft-60s", "--json", "--lasts", "10min"))
    assert (told["peers"], told["network"], told["files"]) == (30, None, {})
    assert len(told["faults"]) >= 16 and "81.2 %" in told["source"]
    assert "--out" in rumor("torchft-60s") and not list(tmp_path.iterdir())


def test_a_storm_may_pass_by() -> None:
    assert "nothing" in rumor("spot", "-n", "1", "--lasts", "1s")


@pytest.mark.parametrize("lasts", ["5steps", "never", "1min,5steps"])
def test_a_time_that_is_none_is_refused(lasts: str) -> None:
    assert "write 90s, 10min or 2h" in rumor("spot", "--lasts", lasts, status=2)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be written" in rumor("spot", "--out", str(tmp_path / "file"), status=2)
