"""Peers in the Trainer of transformers, on a tiny model made from scratch."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rumor.gossip import ConfigError, GoSGD, ProtocolConfig
from rumor.train.storage.jsonl import read_metrics

from .restart import SAVED, kill_and_resume

transformers: Any = pytest.importorskip("transformers", reason="needs rumor[transformers]")
pytest.importorskip("accelerate", reason="needs rumor[transformers]")

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.live,
    # Libraries raise warnings that do not concern rumor.
    pytest.mark.filterwarnings("ignore"),
]

QUICK = ProtocolConfig(gossip_s=0.1, seek_s=0.05, found_s=0.3, found_alone_s=0.3)


def callback(**settings: Any) -> Any:
    from rumor.train.integrations.transformers import RumorCallback

    given: dict[str, Any] = {"protocol": QUICK, "linger_s": 1.0} | settings
    return RumorCallback(**given)


def counting(samples: int, seed: int) -> list[dict[str, Tensor]]:
    starts = torch.randint(0, 16, (samples, 1), generator=torch.Generator().manual_seed(seed))
    return [{"input_ids": ids, "labels": ids} for ids in (starts + torch.arange(8)) % 16]


def gpt2() -> nn.Module:
    shape = {"vocab_size": 16, "n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
    torch.manual_seed(0)
    config = transformers.GPT2Config(**shape, bos_token_id=None, eos_token_id=None)
    model: nn.Module = transformers.GPT2LMHeadModel(config)
    return model


def trainer(out: Path, *callbacks: Any, model: nn.Module | None = None, **changes: Any) -> Any:
    arguments: dict[str, Any] = {
        "output_dir": str(out),
        "max_steps": 20,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "logging_steps": 5,
        "save_steps": 10,
        "eval_strategy": "steps",
        "eval_steps": 10,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
    }
    return transformers.Trainer(
        model or gpt2(),
        transformers.TrainingArguments(**(arguments | changes)),
        train_dataset=counting(200, 0),
        eval_dataset=counting(20, 1),
        callbacks=list(callbacks),
    )


class After(transformers.TrainerCallback):
    """Calls a function after a number of steps."""

    def __init__(self, steps: int, call: Callable[[Any], None]) -> None:
        self.steps, self.call = steps, call

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if state.global_step == self.steps:
            self.call(control)


def test_a_trainer_with_a_peer_evaluates_saves_and_ends(tmp_path: Path) -> None:
    rumor = callback(out=tmp_path / "peer", log_every=1, rule=GoSGD(p=0.5))
    result = trainer(tmp_path / "t", rumor, gradient_accumulation_steps=3).train()
    assert result.global_step == 20
    # Steps of the optimizer, not batches.
    assert rumor.peer.steps == 20
    assert rumor.peer._rule.p == 0.5
    assert {path.name for path in (tmp_path / "t").iterdir()} == {"checkpoint-10", "checkpoint-20"}
    state = json.loads((tmp_path / "t" / "checkpoint-10" / "trainer_state.json").read_text())
    kept = state["stateful_callbacks"]["rumor"]
    assert (kept["id"], kept["steps"], kept["weight"]) == (rumor.peer.id, 10, 1.0)
    rows = read_metrics(tmp_path / "peer" / "metrics.jsonl")
    assert [row["step"] for row in rows if row["loss"] is not None] == [6, 11, 16]
    report = json.loads((tmp_path / "peer" / "peer.json").read_text())
    assert (
        report["state"] == "finished" and report["loss"] == rumor.peer.stats().measured["test_loss"]
    )
    # The trainer writes checkpoints; the peer writes none.
    assert not (tmp_path / "peer" / "checkpoints").exists()
    assert (tmp_path / "peer" / "model.safetensors").exists()


def test_a_resumed_run_ends_like_an_uninterrupted_one(
    tmp_path: Path,
) -> None:
    whole = trainer(tmp_path / "whole", callback())
    whole.train()
    first, states = trainer(tmp_path / "t", rumor := callback(out=tmp_path / "peer")), []

    def stop(control: Any) -> None:
        states.append(rumor.peer.state_dict())
        control.should_training_stop = True

    first.add_callback(After(10, stop))
    first.train()
    again = trainer(tmp_path / "t", back := callback(out=str(tmp_path / "peer")))
    again.train(resume_from_checkpoint=True)
    assert back.peer.id == rumor.peer.id == states[0]["id"]
    assert back.peer.state_dict()["incarnation"] > states[0]["incarnation"]
    assert back.peer.stats().swarm == rumor.peer.stats().swarm and back.peer.steps == 20
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name]), name


def test_the_anchor_of_a_wire_is_kept_with_the_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    protocol = ProtocolConfig(wire="int8", seek_s=0.05, found_alone_s=0.3)
    rumor = callback(protocol=protocol)
    trainer(tmp_path, rumor).train()
    kept = tmp_path / "checkpoint-10" / "rumor.safetensors"
    assert kept.exists()
    back = callback(protocol=protocol)
    trainer(tmp_path, back).train(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
    assert back.peer.stats().swarm == rumor.peer.stats().swarm
    kept.write_bytes(b"no such file")
    lost = callback(protocol=protocol)
    trainer(tmp_path, lost).train(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
    assert lost.peer.stats().swarm != rumor.peer.stats().swarm and lost.peer.id == rumor.peer.id
    assert "is of no use, and the peer joins as a newcomer" in caplog.text


def test_a_checkpoint_without_a_peer_can_be_resumed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer(tmp_path, max_steps=10).train()
    rumor = callback()
    trainer(tmp_path, rumor).train(resume_from_checkpoint=True)
    assert rumor.peer.steps == 20
    assert "written without a peer" in caplog.text


def test_the_best_model_is_loaded_after_leaving_the_swarm(tmp_path: Path) -> None:
    rumor, seen = callback(out=tmp_path / "peer"), []

    class Last(transformers.TrainerCallback):
        def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            seen.append((tmp_path / "peer" / "peer.json").exists())

    loop = trainer(tmp_path / "t", Last(), rumor, load_best_model_at_end=True)
    loop.train()
    assert seen == [True] and rumor.peer.merged
    best = transformers.GPT2LMHeadModel.from_pretrained(loop.state.best_model_checkpoint)
    for name, tensor in loop.model.state_dict().items():
        assert torch.equal(tensor, best.state_dict()[name]), name


def test_a_compiled_model_trains(tmp_path: Path) -> None:
    rumor = callback()
    trainer(tmp_path, rumor, max_steps=3, torch_compile=True, torch_compile_backend="eager").train()
    assert rumor.peer.steps == 3 and not any(
        "_orig" in t.name for t in rumor.peer._vector.schema.tensors
    )


def test_a_signal_saves_a_checkpoint_and_ends_training(tmp_path: Path) -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: received.append(number))
    try:
        rumor = callback(out=tmp_path / "peer", signals=True)
        kill = After(3, lambda control: os.kill(os.getpid(), signal.SIGUSR1))
        loop = trainer(tmp_path / "t", kill, rumor, max_steps=10**6)
        loop.train()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert received == [signal.SIGUSR1]
    assert loop.state.global_step < 10
    assert (tmp_path / "t" / f"checkpoint-{loop.state.global_step}").exists()
    report = json.loads((tmp_path / "peer" / "peer.json").read_text())
    assert report["state"] == "left" and rumor.peer.stats().has_left
    again = trainer(tmp_path / "t", back := callback(out=tmp_path / "peer"))
    again.train(resume_from_checkpoint=True)
    assert back.peer.steps == 20


def test_evaluating_outside_of_training_needs_no_peer(tmp_path: Path) -> None:
    rumor = callback()
    loop = trainer(tmp_path, rumor)
    assert loop.evaluate()["eval_loss"] > 0 and rumor.peer is None
    rumor.on_step_end(loop.args, loop.state, loop.control)
    rumor.on_save(loop.args, loop.state, loop.control)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"world_size": 2}, "2 processes train one model together"),
        ({"deepspeed": {"train_batch_size": 4}}, "DeepSpeed trains weights of its own"),
    ],
)
def test_groups_of_processes_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    loop = trainer(tmp_path, rumor := callback())

    class Arguments:
        """Stands in for arguments under a launcher of several processes."""

        def __getattr__(self, name: str) -> Any:
            return changes.get(name, getattr(loop.args, name))

    with pytest.raises(ConfigError, match=message):
        rumor.on_train_begin(Arguments(), loop.state, loop.control, model=loop.model)


def test_a_killed_process_resumes_and_weight_is_exact(tmp_path: Path) -> None:
    script = f"""
import os, time
from pathlib import Path
import torch, transformers
from rumor.train import environment
from rumor.train.integrations.transformers import RumorCallback

env = environment()
starts = torch.arange(64).reshape(-1, 1) + env.index
data = [{{"input_ids": ids, "labels": ids}} for ids in (starts + torch.arange(8)) % 16]
config = transformers.GPT2Config(vocab_size=16, n_positions=8, n_embd=16, n_layer=1, n_head=2,
    bos_token_id=None, eos_token_id=None)


class Pace(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **given):
        time.sleep(0.005)
        control.should_save = state.global_step == {SAVED}
        control.should_evaluate = state.global_step % 10 == 0
        control.should_training_stop = Path(os.environ["OVER"]).exists()

    def on_save(self, args, state, control, **given):
        Path(args.output_dir, "saved").touch()


args = transformers.TrainingArguments(
    str(env.out / "trainer"), max_steps=10**6, per_device_train_batch_size=4, logging_steps=5,
    report_to="none", disable_tqdm=True, use_cpu=True, seed=env.index)
trainer = transformers.Trainer(transformers.GPT2LMHeadModel(config), args, train_dataset=data,
    eval_dataset=data[:8], callbacks=[Pace(), RumorCallback()])
trainer.train(os.environ["RESUME"] and str(env.out / "trainer" / "checkpoint-{SAVED}") or None)
"""
    report = kill_and_resume(tmp_path, script, "trainer/saved")
    assert report["loss"] is not None
