"""The record of a run in each tool, read back with the reader of the tool."""

import io
import sqlite3
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rumor.train.loggers import LoggedRun
from rumor.train.loggers.logger import make_loggers
from rumor.train.loggers.writer import LogWriter

CONFIG = {"seed": 3, "exchange": {"wire": "int8"}}
SUMMARY = {"seed": 3, "loss": 0.125, "state": "finished", "peers_detail": [{"id": "peer-0"}]}


def write(spec: str, folder: Path, peer: str | None = None) -> None:
    """Log a run of two peers, or of one."""
    writer = LogWriter(make_loggers([spec]))
    writer.open(LoggedRun(name="first", peer=peer, folder=folder, config=CONFIG))
    for step in (1, 2, 3):
        for number, name in enumerate([peer] if peer else ["peer-0", "peer-1"]):
            row = {"step": step, "swarm_steps": 2 * step, "unix_s": 1e9 + step, "accuracy": None}
            writer.log(name, row | {"loss": (number + 1) / step, "sketch": [1.0]})
    writer.close(SUMMARY)


def scalars(folder: Path) -> Mapping[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    tags = events.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags}


@pytest.mark.parametrize("where", [None, "tb"])
def test_tensorboard_has_a_series_per_peer_over_swarm_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str | None
) -> None:
    pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    write(f"tensorboard:{where}" if where else "tensorboard", tmp_path / "run")
    root = tmp_path / "tb" / "first" if where else tmp_path / "run" / "tensorboard"
    assert {path.name for path in root.iterdir()} == {"peer-0", "peer-1", "swarm"}
    assert scalars(root / "peer-0") == {
        "steps": [(2, 1), (4, 2), (6, 3)],
        "loss": [(2, 1.0), (4, 0.5), (6, pytest.approx(1 / 3))],
    }
    assert scalars(root / "peer-1")["loss"][0] == (2, 2.0)
    assert scalars(root / "swarm") == {"final/loss": [(0, 0.125)]}


def test_peers_that_log_separately_share_a_tensorboard_folder(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    for peer in ("anna", "berta"):
        write(f"tensorboard:{tmp_path / 'tb'}", tmp_path / peer, peer)
    assert {path.name for path in (tmp_path / "tb").iterdir()} == {"anna", "berta"}
    found = scalars(tmp_path / "tb" / "anna")
    assert found["loss"][1] == (4, 0.5) and found["final/loss"] == [(0, 0.125)]


# Dependencies of mlflow raise warnings.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("peer", [None, "anna"])
def test_mlflow_nests_peer_runs_in_the_swarm_run_or_tags_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peer: str | None
) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'store.db'}")
    try:
        write("mlflow:mine", tmp_path, peer)
        client = mlflow.MlflowClient()
        experiment = client.get_experiment_by_name("mine")
        runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
        assert set(runs) == ({"anna"} if peer else {"first", "peer-0", "peer-1"})
        assert {run.info.status for run in runs.values()} == {"FINISHED"}
        assert {run.data.tags["rumor.swarm"] for run in runs.values()} == {"first"}
        own = runs[peer or "first"]
        assert own.data.params == {"seed": "3", "exchange.wire": "int8"}
        assert own.data.metrics["final/loss"] == 0.125 and "final/seed" not in own.data.metrics
        first = runs[peer or "peer-0"]
        parent = None if peer else own.info.run_id
        assert first.data.tags.get("mlflow.parentRunId") == parent
        losses = client.get_metric_history(first.info.run_id, "loss")
        assert [(each.step, each.value) for each in losses] == [(2, 1.0), (4, 0.5), (6, 1 / 3)]
        assert losses[0].timestamp == 1_000_000_001_000
    finally:
        mlflow.set_tracking_uri(before)


def test_trackio_groups_the_runs_of_peers_and_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # trackio reads the variable when it is first imported.
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    trackio = pytest.importorskip("trackio")
    project = f"rumor-{tmp_path.name}"
    monkeypatch.setattr(sys, "stdout", printed := io.StringIO())
    write(f"trackio:{project}", tmp_path)
    assert printed.getvalue() == ""
    runs = {run.name: run for run in trackio.Api().runs(project)}
    assert set(runs) == {"first", "first/peer-0", "first/peer-1"}
    assert {run.config["_Group"] for run in runs.values()} == {"first"}
    assert runs["first"].config["exchange.wire"] == "int8"
    (path,) = Path(trackio.utils.TRACKIO_DIR).glob(f"{project}.db")
    with sqlite3.connect(path) as database:
        query = "SELECT step, metrics FROM metrics WHERE run_name = ? ORDER BY step"
        rows = database.execute(query, ("first/peer-1",)).fetchall()
    assert [step for step, _ in rows] == [2, 4, 6] and b'"loss":1.0' in bytes(rows[1][1])


def wandb_records(path: Path) -> list[Any]:
    """Records of an offline run's file, which is a log in LevelDB's format after 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, part, records = path.read_bytes(), 7, b"", []
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768  # the rest of a block is empty
            continue
        size, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        part += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # a whole record, or the last part of one
            record = Record()
            record.ParseFromString(part)
            records.append(record)
            part = b""
    return records


def test_wandb_groups_the_runs_of_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    for name, value in {
        "MODE": "offline",
        "DIR": str(tmp_path),
        "ERROR_REPORTING": "false",
    }.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    write("wandb:team/mine", tmp_path)
    runs = {}
    for path in tmp_path.rglob("*.wandb"):
        records = wandb_records(path)
        kinds = [record.WhichOneof("record_type") for record in records]
        run = records[kinds.index("run")].run
        assert (run.entity, run.project, run.run_group) == ("team", "mine", "first")
        history = [record.history.item for record in records if record.history.item]
        runs[run.display_name] = [
            {item.key or ".".join(item.nested_key): item.value_json for item in items}
            for items in history
        ]
    assert set(runs) == {"first", "first/peer-0", "first/peer-1"}
    assert [row["swarm_steps"] for row in runs["first/peer-1"]] == ["2", "4", "6"]
    assert [float(row["loss"]) for row in runs["first/peer-0"]] == [1.0, 0.5, 1 / 3]


def test_wandb_without_an_api_key_logs_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setattr(wandb, "login", lambda **_: False)
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setattr(wandb, "init", lambda **_: pytest.fail("wandb would prompt for a key"))
    monkeypatch.setattr(
        wandb, "setup", lambda: type("S", (), {"settings": wandb.Settings(mode="online")})
    )
    write("wandb", tmp_path)
    assert "run `wandb login`, or set WANDB_MODE=offline" in caplog.text
