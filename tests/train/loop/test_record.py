"""Files that a peer in a user's own loop leaves in its folder."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from rumor.gossip import TrainingError
from rumor.train import CheckpointConfig, Peer, PeerConfig
from rumor.train.storage import files
from rumor.train.storage.jsonl import read_metrics
from rumor.train.storage.merge import open_model

from ..loggers.fakes import Collected, Failing


def peer_of(out: Path | str | None = None, model: nn.Module | None = None, **changes: Any) -> Peer:
    usual: dict[str, Any] = {"id": "solo", "linger_s": 0, "log_every": 2}
    return Peer(model or nn.Linear(2, 1), PeerConfig(**usual | changes), out=out)


def test_rows_have_step_weight_live_and_the_mean_of_the_losses(tmp_path: Path) -> None:
    with peer_of(tmp_path) as peer:
        for loss in (1.0, torch.tensor(2.0), 4.0, None):
            peer.step(loss=loss)
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 4]
    assert [row["loss"] for row in rows] == [1.0, 2.0, 4.0]
    assert all((row["weight"], row["live"], row["pushes"]) == (1.0, 1, 0) for row in rows)


def test_the_report_has_the_last_evaluation_and_the_model_is_saved(tmp_path: Path) -> None:
    with peer_of(str(tmp_path)) as peer:
        peer.step(loss=torch.tensor(float("nan")))
        peer.log(accuracy=0.75)
        swarm = peer.stats().swarm
    report = json.loads((tmp_path / "peer.json").read_text())
    assert (report["state"], report["steps"], report["accuracy"]) == ("finished", 1, 0.75)
    merge = {"complete": False, "unfinished": {}, "missing": {}, "distance": None}
    assert report["merge"] == merge, "after linger_s=0"
    assert (report["rule"], report["p"], report["topology"]) == ("gosgd", 0.1, "exponential")
    first, last = read_metrics(tmp_path / "metrics.jsonl")
    assert (first["loss"], last["accuracy"], last["test_loss"]) == (None, 0.75, None)
    model = open_model(tmp_path / "model.safetensors")
    ((met, incarnation),) = model.met
    assert model.id == met == "solo" and incarnation > 0
    assert model.swarm == report["swarm"] == swarm != ""


def test_a_file_that_several_peers_write_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "average.safetensors"
    with peer_of() as ann, peer_of(id="bob") as bob:
        publish, others = files.publish, [bob]

        def meanwhile(draft: Path, target: Path) -> None:
            if others:
                others.pop().save_model(path)
                assert open_model(path).id == "bob"
            publish(draft, target)

        monkeypatch.setattr(files, "publish", meanwhile)
        ann.save_model(path)
    assert open_model(path).id == "solo"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


class Tied(nn.Module):
    """A frozen base under two names, a buffer, and a trained adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Embedding(3, 2).requires_grad_(False)
        self.head = nn.Linear(2, 3, bias=False)
        self.head.weight = self.base.weight
        self.norm = nn.BatchNorm1d(2)
        self.adapter = nn.Linear(2, 2, bias=False)


@pytest.mark.parametrize("save_frozen", [True, False])
def test_frozen_parameters_are_left_out_on_demand(tmp_path: Path, save_frozen: bool) -> None:
    model = Tied()
    with peer_of(tmp_path, model, save_frozen=save_frozen) as peer:
        # Parameters that are frozen later are still averaged.
        model.norm.requires_grad_(False)
        peer.step()
        peer.save_model(tmp_path / "now.safetensors")
    frozen = {"base.weight", "head.weight"}
    expected = set(model.state_dict()) - (set() if save_frozen else frozen)
    assert frozen < set(model.state_dict())
    for name in ("model.safetensors", "now.safetensors"):
        assert {each for each, _ in open_model(tmp_path / name).tensors} == expected
    if not save_frozen:
        saved = load_file(tmp_path / "model.safetensors")
        missing, unexpected = Tied().load_state_dict(saved, strict=False)
        assert (set(missing), unexpected) == (frozen, [])


def test_the_report_tells_a_failed_loop_from_a_peer_that_left(tmp_path: Path) -> None:
    own = Collected()
    with pytest.raises(TrainingError), peer_of(tmp_path / "a", loggers=(own,)):
        raise TrainingError("no more")
    with peer_of(tmp_path / "b") as peer:
        peer.leave()
        assert not peer.merge()
    with pytest.raises(SystemExit), peer_of(tmp_path / "c"):
        sys.exit(0)
    reports = [json.loads((tmp_path / name / "peer.json").read_text()) for name in "abc"]
    assert [each["state"] for each in reports] == ["failed", "left", "left"]
    assert reports[0]["error"] == "no more" and own.summaries == reports[:1]
    assert not (tmp_path / "a" / "model.safetensors").exists()


def test_log_every_none_writes_no_metrics(tmp_path: Path) -> None:
    with peer_of(tmp_path, log_every=None) as peer:
        peer.step(loss=1.0)
    found = {path.name for path in tmp_path.glob("*.json*")}
    assert found == {"ledger.jsonl", "events.jsonl", "life.json"}
    checkpoint = CheckpointConfig(folder=tmp_path / "kept", every="never")
    with peer_of(checkpoint=checkpoint) as peer:
        peer.step(loss=1.0)
    assert not (tmp_path / "kept" / "metrics.jsonl").exists()


def test_loggers_get_rows_and_a_summary_without_a_folder(tmp_path: Path) -> None:
    own = Collected()
    with peer_of(loggers=(own,), rule="sgp") as peer:
        for loss in (1.0, 2.0, 4.0, 8.0):
            peer.step(loss=loss)
        peer.log(accuracy=0.75)
        assert own.summaries == []
        swarm = peer.stats().swarm
    assert own.run is not None and len(swarm) == 32
    assert (own.run.name, own.run.peer, own.run.folder) == (f"swarm-{swarm[:8]}", "solo", None)
    assert (own.run.config["rule"], own.run.config["topology"]) == ("sgp", "exponential")
    assert [(peer, x, row["loss"]) for peer, x, row in own.rows] == [
        ("solo", 1, 1.0),
        ("solo", 2, 2.0),
        ("solo", 4, 6.0),
        ("solo", 4, None),
    ]
    (summary,) = own.summaries
    assert (summary["state"], summary["steps"], summary["accuracy"]) == ("finished", 4, 0.75)


def test_a_failing_logger_does_not_affect_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failing = Failing("log", "close")
    with peer_of(tmp_path, loggers=(failing,)) as peer:
        for _ in range(4):
            peer.step(loss=1.0)
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2, 4]
    assert caplog.text.count("logger Failing failed") == 1
    assert json.loads((tmp_path / "peer.json").read_text())["state"] == "finished"
