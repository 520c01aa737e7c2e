"""A `Trainer` of Lightning as one peer of a swarm.

Start four of them on this machine:

    rumor run -n 4 --out runs/digits -- python examples/train_lightning.py

or two on two machines:

    python examples/train_lightning.py --bind tcp://0.0.0.0:7700 --out a
    python examples/train_lightning.py --join tcp://node-a:7700 --out b

Kill one, start it again with --resume, and it resumes from its last checkpoint.
"""

import argparse

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from rumor.gossip import GoSGD
from rumor.train import environment
from rumor.train.integrations.lightning import RumorCallback

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--bind", help="where to listen, such as tcp://0.0.0.0:7700")
parser.add_argument("--join", action="append", help="address of any member")
parser.add_argument("--out", help="folder for checkpoints (default: that of `rumor run`)")
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--resume", action="store_true", help="resume from the last checkpoint")
arguments = parser.parse_args()
# Arguments override the settings of `rumor run`.
place = {name: vars(arguments)[name] for name in ("bind", "join") if vars(arguments)[name]}

told = environment()  # by `rumor run`; else process 0 of 1
out = arguments.out or told.out or "out"

digits = load_digits()
inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
targets = torch.tensor(digits.target)
part = slice(told.index, 1437, told.count)  # this process's part of the data
train = DataLoader(TensorDataset(inputs[part], targets[part]), 16, shuffle=True)
held_out = DataLoader(TensorDataset(inputs[1437:], targets[1437:]), 360)


class Net(lightning.LightningModule):
    """A small network as a module of Lightning."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def training_step(self, batch, index):
        return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch, index):
        logits = self.layers(batch[0])
        self.log("val_loss", nn.functional.cross_entropy(logits, batch[1]))
        self.log("val_acc", (logits.argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


lightning.seed_everything(told.seed + told.index, verbose=False)
callback = RumorCallback(rule=GoSGD(p=0.1), **place)
kept = ModelCheckpoint(f"{out}/trainer", every_n_train_steps=50, save_last=True)
trainer = lightning.Trainer(
    max_steps=arguments.steps,
    callbacks=[callback, kept],
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
path = f"{out}/trainer/last.ckpt" if arguments.resume else None
trainer.fit(Net(), train, held_out, ckpt_path=path)
accuracy = trainer.validate(trainer.lightning_module, held_out, verbose=False)[0]["val_acc"]
print(f"accuracy {accuracy:.3f} on held-out digits after {callback.peer.steps} steps")
