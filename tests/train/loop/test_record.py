"""What a peer in a loop of one's own leaves in its folder."""

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from rumor.gossip import TrainingError
from rumor.train import Peer, PeerConfig
from rumor.train.storage.jsonl import read_metrics
from rumor.train.storage.merge import open_model


def config(**changes: object) -> PeerConfig:
    return PeerConfig(id="solo", linger_s=0, **{"log_every": 2, **changes})  # type: ignore[arg-type]


def test_rows_have_step_weight_live_and_the_mean_of_the_losses(tmp_path: Path) -> None:
    with Peer(nn.Linear(2, 1), config(), out=tmp_path) as peer:
        for loss in (1.0, torch.tensor(2.0), 4.0, None):
            peer.step(loss=loss)
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 4]
    assert [row["loss"] for row in rows] == [1.0, 2.0, 4.0]
    assert all((row["weight"], row["live"], row["pushes"]) == (1.0, 1, 0) for row in rows)


def test_the_end_is_told_with_the_last_evaluation_and_the_model(tmp_path: Path) -> None:
    with Peer(nn.Linear(2, 1), config(), out=str(tmp_path)) as peer:
        peer.step(loss=torch.tensor(float("nan")))
        peer.evaluated(accuracy=0.75)
    told = json.loads((tmp_path / "peer.json").read_text())
    assert (told["state"], told["steps"], told["accuracy"]) == ("finished", 1, 0.75)
    assert told["merge"] == {
        "complete": False,  # after linger_s=0
        "unfinished": {},
        "missing": {},
        "distance": None,
    }
    assert (told["rule"], told["p"], told["topology"]) == ("gosgd", 0.1, "exponential")
    first, last = read_metrics(tmp_path / "metrics.jsonl")
    assert (first["loss"], last["accuracy"], last["test_loss"]) == (None, 0.75, None)
    assert open_model(tmp_path / "model.safetensors").id == "solo"


def test_a_loop_that_raises_has_failed_and_one_that_leaves_has_left(tmp_path: Path) -> None:
    with pytest.raises(TrainingError), Peer(nn.Linear(2, 1), config(), out=tmp_path / "a"):
        raise TrainingError("no more")
    with Peer(nn.Linear(2, 1), config(), out=tmp_path / "b") as peer:
        peer.leave()
        assert not peer.merge()
    with pytest.raises(SystemExit), Peer(nn.Linear(2, 1), config(), out=tmp_path / "c"):
        sys.exit(0)
    told = [json.loads((tmp_path / name / "peer.json").read_text()) for name in "abc"]
    assert [each["state"] for each in told] == ["failed", "left", "left"]
    assert told[0]["error"] == "TrainingError: no more"
    assert not (tmp_path / "a" / "model.safetensors").exists()


def test_who_wants_no_rows_gets_the_ledger_alone(tmp_path: Path) -> None:
    with Peer(nn.Linear(2, 1), config(log_every=None), out=tmp_path) as peer:
        peer.step(loss=1.0)
    assert {path.name for path in tmp_path.glob("*.json*")} == {
        *("ledger.jsonl", "events.jsonl", "life.json"),
    }
