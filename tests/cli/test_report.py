"""The summary that a person reads."""

import io
from typing import Any

from rich.console import Console

from rumor.cli.report import report

from .fakes import detail, summary

DEAD = {"id": "peer-1", "why": "SIGKILL", "state": "killed", "step": 120}


def text_of(**changes: Any) -> str:
    console = Console(file=io.StringIO(), width=100, record=True)
    report(summary(**changes), console)
    return console.export_text()


def test_it_says_how_good_the_model_is_and_where_it_lies() -> None:
    text = text_of()
    assert "accuracy 0.9600 and loss 0.15 on held-out data" in text
    assert "differ by 0.01 of their norm" in text
    assert "runs/x/training.png" in text and "runs/x/model.safetensors" in text
    assert "Weight is exact: 2199023255552 units" in text


def test_it_names_the_dead_and_what_died_with_them() -> None:
    text = text_of(
        peers_detail=[detail(0), detail(1, state="killed", accuracy=None)],
        dead=[DEAD | {"weight": 0.5, "weight_units": 2**39}],
    )
    assert "peer-1 was killed by SIGKILL at step 120; a weight of 0.5000 died with it" in text


def test_of_a_life_whose_end_nobody_saw_no_signal_is_named() -> None:
    text = text_of(dead=[DEAD | {"why": "", "weight": 0.0, "weight_units": 0}])
    assert "peer-1 ended without a word at step 120; no weight died with it." in text


def test_files_that_were_not_written_are_not_named() -> None:
    text = text_of(unwritten=["training.png (No space left on device)"])
    assert "training.png" not in text and "runs/x/model.safetensors" in text


def test_a_failed_peer_whose_weight_was_burned_is_named_with_its_error() -> None:
    failed = DEAD | {"state": "failed", "why": "the loss is nan", "weight": 0.0, "weight_units": 0}
    text = text_of(dead=[failed])
    assert "peer-1 failed at step 120 (the loss is nan); no weight died with it." in text


def test_weight_that_does_not_add_up_cannot_be_overlooked() -> None:
    assert "WEIGHT IS NOT EXACT" in text_of(weight_units_total=5)


def test_without_a_model_it_points_to_the_logs() -> None:
    text = text_of(digest=None, accuracy=None, loss=None, consensus_distance=None)
    assert "there is no merged one" in text and "log.txt" in text
    assert "training.png" not in text


def test_a_task_without_accuracy_reports_its_loss_alone() -> None:
    assert "has loss 0.15 on held-out" in text_of(accuracy=None)


def test_models_that_agree_in_every_bit_are_called_identical() -> None:
    assert "are identical" in text_of(consensus_distance=0.0)


def test_a_mean_without_weights_is_called_one() -> None:
    assert "all count alike" in text_of(merged_by="equally")
