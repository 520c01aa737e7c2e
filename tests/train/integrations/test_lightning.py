"""Peers in the Trainer of Lightning."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from rumor.gossip import ConfigError, GoSGD, ProtocolConfig
from rumor.train.storage.jsonl import read_metrics

from .restart import SAVED, kill_and_resume

lightning: Any = pytest.importorskip("lightning", reason="needs rumor[lightning]")

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.live,
    # Libraries raise warnings that do not concern rumor.
    pytest.mark.filterwarnings("ignore"),
]

QUICK = ProtocolConfig(gossip_s=0.1, seek_s=0.05, found_s=0.3, found_alone_s=0.3)


def callback(**settings: Any) -> Any:
    from rumor.train.integrations.lightning import RumorCallback

    given: dict[str, Any] = {"protocol": QUICK, "linger_s": 1.0} | settings
    return RumorCallback(**given)


class Net(lightning.LightningModule):
    """A small classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor], index: int) -> None:
        logits = self.layers(batch[0])
        self.log("val_loss", nn.functional.cross_entropy(logits, batch[1]))
        self.log("val_acc", (logits.argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class After(lightning.Callback):
    """Calls a function after a number of steps."""

    def __init__(self, steps: int, call: Callable[[Any], None]) -> None:
        self.steps, self.call = steps, call

    def on_train_batch_end(self, trainer: Any, module: Any, *rest: Any) -> None:
        if trainer.global_step == self.steps:
            self.call(trainer)


def data() -> DataLoader[Any]:
    inputs = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(inputs, (inputs.sum(1) > 0).long()), 4)


def trainer(out: Path, *callbacks: Any, **changes: Any) -> Any:
    kept = lightning.pytorch.callbacks.ModelCheckpoint(
        out, every_n_train_steps=10, save_top_k=-1, filename="{step}"
    )
    arguments: dict[str, Any] = {"max_steps": 20, "logger": False, "accelerator": "cpu"}
    arguments |= {"enable_progress_bar": False, "enable_model_summary": False}
    arguments |= {"default_root_dir": out, "callbacks": [*callbacks, kept]}
    return lightning.Trainer(**(arguments | changes))


def test_a_trainer_with_a_peer_validates_saves_and_ends(tmp_path: Path) -> None:
    rumor = callback(out=tmp_path / "peer", log_every=1, rule=GoSGD(p=0.5))
    loop = trainer(tmp_path / "t", rumor, accumulate_grad_batches=3)
    loop.fit(Net(), data(), data())
    # Steps of the optimizer, not batches.
    assert loop.global_step == rumor.peer.steps == 20
    assert rumor.peer._rule.p == 0.5
    names = {path.name for path in (tmp_path / "t").iterdir()}
    assert names == {"step=10.ckpt", "step=20.ckpt"}
    kept = torch.load(tmp_path / "t" / "step=10.ckpt", weights_only=False)["callbacks"]["rumor"]
    assert (kept["id"], kept["steps"], kept["weight"]) == (rumor.peer.id, 10, 1.0)
    rows = read_metrics(tmp_path / "peer" / "metrics.jsonl")
    assert all(0 < row["loss"] < 2 for row in rows[:20])
    report = json.loads((tmp_path / "peer" / "peer.json").read_text())
    assert report["state"] == "finished"
    assert report["accuracy"] == pytest.approx(float(loop.callback_metrics["val_acc"]))


def test_a_resumed_run_ends_like_an_uninterrupted_one(
    tmp_path: Path,
) -> None:
    def seeded_net() -> Net:
        torch.manual_seed(0)
        return Net()

    whole = seeded_net()
    trainer(tmp_path / "whole", callback()).fit(whole, data())
    trainer(tmp_path / "t", rumor := callback(), max_steps=10).fit(seeded_net(), data())
    again = Net()
    back = callback()
    trainer(tmp_path / "t", back).fit(again, data(), ckpt_path=tmp_path / "t" / "step=10.ckpt")
    assert back.peer.id == rumor.peer.id and back.peer.stats().swarm == rumor.peer.stats().swarm
    assert back.peer.state_dict()["incarnation"] > rumor.peer.state_dict()["incarnation"]
    assert back.peer.steps == 20
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_a_checkpoint_without_a_peer_can_be_resumed(tmp_path: Path) -> None:
    trainer(tmp_path, max_steps=10).fit(Net(), data())
    rumor = callback()
    trainer(tmp_path, rumor).fit(Net(), data(), ckpt_path=tmp_path / "step=10.ckpt")
    assert rumor.peer.steps == 20


def test_a_signal_leaves_the_swarm_and_reaches_the_earlier_handler(tmp_path: Path) -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: received.append(number))
    try:
        rumor = callback(out=tmp_path / "peer", signals=True)
        kill = After(3, lambda loop: os.kill(os.getpid(), signal.SIGUSR1))
        trainer(tmp_path / "t", kill, rumor).fit(Net(), data())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert received == [signal.SIGUSR1] and rumor.peer.steps < 20
    report = json.loads((tmp_path / "peer" / "peer.json").read_text())
    assert report["state"] == "left"


def test_a_failure_ends_the_peer_too(tmp_path: Path) -> None:
    def fail(loop: Any) -> None:
        raise RuntimeError("out of memory")

    rumor = callback(out=tmp_path / "peer")
    with pytest.raises(RuntimeError, match="out of memory"):
        trainer(tmp_path / "t", rumor, After(3, fail)).fit(Net(), data())
    report = json.loads((tmp_path / "peer" / "peer.json").read_text())
    assert (report["state"], report["error"]) == ("failed", "RuntimeError: out of memory")


def test_a_module_with_manual_optimization_and_no_returned_loss_trains(tmp_path: Path) -> None:
    class Manual(Net):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: list[Tensor], index: int) -> None:  # type: ignore[override]
            optimizer: Any = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(super().training_step(batch, index))
            optimizer.step()

    rumor = callback(rule="gosgd:p=0.1,samples=4", samples=4)
    trainer(tmp_path, rumor).fit(Manual(), data())
    assert rumor.peer.steps == 20


@pytest.mark.parametrize(
    ("world_size", "strategy", "message"),
    [
        (2, "DDPStrategy", "2 processes train one model together"),
        (1, "DeepSpeedStrategy", "DeepSpeed trains weights of its own"),
    ],
)
def test_groups_of_processes_are_refused(world_size: int, strategy: str, message: str) -> None:
    class Loop:
        """Stands in for a Trainer with several devices."""

        global_step = 0

    Loop.world_size = world_size  # type: ignore[attr-defined]
    Loop.strategy = type(strategy, (), {})()  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=message):
        callback().on_train_start(Loop(), Net())


def test_a_killed_process_resumes_and_weight_is_exact(tmp_path: Path) -> None:
    script = f"""
import os, time
from pathlib import Path
import lightning, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from rumor.train import environment
from rumor.train.integrations.lightning import RumorCallback

env = environment()
inputs = torch.randn(64, 4)
data = DataLoader(TensorDataset(inputs, (inputs.sum(1) > 0).long()), 4)
saved = env.out / "kept.ckpt"


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Linear(4, 2)

    def training_step(self, batch, index):
        return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch, index):
        self.log("val_loss", nn.functional.cross_entropy(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Pace(lightning.Callback):
    def on_train_batch_end(self, trainer, module, *rest):
        time.sleep(0.005)
        if trainer.global_step == {SAVED}:
            trainer.save_checkpoint(env.out / "draft.ckpt")
            (env.out / "draft.ckpt").rename(saved)
        trainer.should_stop = Path(os.environ["OVER"]).exists()


trainer = lightning.Trainer(max_steps=10**6, logger=False, accelerator="cpu",
    enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False,
    callbacks=[RumorCallback(), Pace()], default_root_dir=env.out)
trainer.fit(Net(), data, data, ckpt_path=saved if os.environ["RESUME"] else None)
"""
    report = kill_and_resume(tmp_path, script, "kept.ckpt")
    assert report["loss"] is not None
