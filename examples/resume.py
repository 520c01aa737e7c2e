"""Your own training loop, which resumes where it stopped, however it ended.

    python examples/resume.py --folder state

Kill it in any way, run the same line again, and it continues from its last checkpoint: model,
Adam's moments, learning rate, the order of the data and all random numbers.
"""

import argparse
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from rumor.train import CheckpointConfig, Peer, PeerConfig

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--folder", required=True, help="where checkpoints are kept")
parser.add_argument("--join", action="append", help="address of any member")
parser.add_argument("--steps", type=int, default=2000)
parser.add_argument("--pace-s", type=float, default=0.0, help="sleep this long in each step")
arguments = parser.parse_args()

digits = load_digits()
inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
targets = torch.tensor(digits.target)
held_out = slice(1437, None)


class Order:
    """A sampler: each sample once per pass. Any class with these two state methods works."""

    def __init__(self) -> None:
        self.order, self.place = torch.randperm(1437), 0

    def batch(self, size: int) -> torch.Tensor:
        if self.place + size > len(self.order):
            self.order, self.place = torch.randperm(1437), 0
        self.place += size
        return self.order[self.place - size : self.place]

    def state_dict(self) -> dict:
        return {"order": self.order, "place": self.place}

    def load_state_dict(self, state: dict) -> None:
        self.order, self.place = state["order"], state["place"]


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = CosineAnnealingLR(optimizer, T_max=arguments.steps)
order = Order()

checkpoint = CheckpointConfig(folder=arguments.folder, every="30s,100steps")
peer = Peer(model, PeerConfig(checkpoint=checkpoint, linger_s=5), join=arguments.join)
peer.register(optimizer=optimizer, scheduler=scheduler, order=order)
if peer.resume():
    print(f"resuming after {peer.steps} steps", flush=True)

with peer:
    while peer.steps < arguments.steps:
        batch = order.batch(32)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs[batch]), targets[batch])
        loss.backward()
        optimizer.step()
        scheduler.step()
        peer.step()  # the last call of a step: a checkpoint may be written here
        time.sleep(arguments.pace_s)

model.eval()
accuracy = (model(inputs[held_out]).argmax(1) == targets[held_out]).float().mean().item()
print(f"accuracy {accuracy:.4f} on held-out digits after {peer.steps} steps")
