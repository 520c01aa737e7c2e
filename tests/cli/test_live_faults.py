"""Which faults real processes are spared, and how a wrong file is answered."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rumor.cli.app import app
from rumor.cli.live_faults import need_network, read_live_faults
from rumor.cli.local_run import with_faults
from rumor.cli.plan import LaunchConfig
from rumor.gossip.errors import ConfigError
from rumor.sim.faults import LIVE_KINDS

PEERS = ("peer-0", "peer-1")


def schedule(folder: Path, *faults: dict[str, Any]) -> Path:
    path = folder / "faults.json"
    path.write_text(json.dumps(faults))
    return path


def fault(kind: str, **fields: Any) -> dict[str, Any]:
    return {"at_s": 1, "kind": kind} | fields


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (fault("clock-jump", peer=0, by_s=5), "clock-jump cannot be done here"),
        (fault("replay", rate=0.1), "replay cannot be done here"),
        (fault("diverge", peer=0), "diverge cannot be done here"),
        (fault("crash", peer=0, after=2), r"fault 1 \(crash\): after is for simulations alone"),
        (fault("crash", peer=0, accepting=True), "accepting is for simulations alone"),
        (fault("slow", peer=0, factor=0.5), "a real process is no faster"),
        (fault("crash", peer=2), "no peer's index in this run"),
        (fault("crash", peer="peer-9"), "'peer-9' is no peer of this run"),
        (fault("crush", peer=0), "did you mean 'crash'"),
        (fault("loss", rate=2), "must be a probability"),
    ],
)
def test_what_real_processes_cannot_be_done_to_is_refused(
    tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    path = schedule(tmp_path, row)
    with pytest.raises(ConfigError, match=message) as refused:
        read_live_faults(path, PEERS, journal=False)
    assert str(refused.value).startswith(f"--faults {path}: ")


def test_a_run_with_journals_restarts_nobody_from_what_it_kept(tmp_path: Path) -> None:
    for kind, more in (("restart", {"peer": 0}), ("mass-restart", {"for_s": 1})):
        path = schedule(tmp_path, fault(kind, **more))
        with pytest.raises(ConfigError, match='state must be "lost"'):
            read_live_faults(path, PEERS, journal=True)
        path = schedule(tmp_path, fault(kind, **more, state="lost"))
        assert read_live_faults(path, PEERS, journal=True)


def test_peers_are_named_and_faults_ordered(tmp_path: Path) -> None:
    path = schedule(tmp_path, fault("leave", peer=1), fault("crash", peer=0) | {"at_s": 0})
    faults = read_live_faults(path, PEERS, journal=False)
    assert [(each.kind, each.peer) for each in faults] == [("crash", "peer-0"), ("leave", "peer-1")]


def test_newcomers_can_be_named_before_they_are_there(tmp_path: Path) -> None:
    path = schedule(tmp_path, fault("join", count=2), fault("crash", peer="join-2"))
    assert len(read_live_faults(path, PEERS, journal=False)) == 2


@pytest.mark.parametrize(
    ("row", "needed"),
    [
        (fault("crash", peer=0), False),
        (fault("join"), False),
        (fault("cut", peer=0), True),
        (fault("reset"), True),
        (fault("duplicate", rate=0.1), True),
    ],
)
def test_faults_of_the_network_take_proxies_and_no_shared_memory(
    tmp_path: Path, row: dict[str, Any], needed: bool
) -> None:
    config = with_faults(LaunchConfig(peers=2), schedule(tmp_path, row))
    assert need_network(config.faults) is needed
    assert config.exchange.no_shared_memory is needed


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "faults.md"

with_docs = pytest.mark.skipif(not PAGE.exists(), reason="docs are not beside the tests")


@with_docs
def test_the_docs_say_what_is_done_to_real_processes_for_each_kind() -> None:
    page = PAGE.read_text(encoding="utf-8")
    section = page.split("## On real processes")[1]
    items = "".join(line for line in section.splitlines(True) if line.startswith("- `"))
    assert [kind for kind in LIVE_KINDS if f"`{kind}`" not in items] == []


@with_docs
def test_the_schedule_in_the_docs_can_be_done(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    example = page.split("## On real processes")[1].split("```json\n")[1].split("```")[0]
    path = schedule(tmp_path, *json.loads(example))
    assert len(read_live_faults(path, ["a", "b", "c", "d"], journal=False)) == 4


def test_a_wrong_file_is_status_2_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path, message in (
        (schedule(tmp_path, fault("crash")), "needs peer"),
        (tmp_path / "none.json", "cannot be read"),
    ):
        result = CliRunner().invoke(app, ["launch", "--task", "quadratic", "--faults", str(path)])
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("error: --faults") and message in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["faults.json"]
