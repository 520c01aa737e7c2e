"""A loop with Accelerate as one peer of a swarm.

Start four of them on this machine:

    rumor run -n 4 --out runs/digits -- python examples/train_accelerate.py

or two on two machines:

    python examples/train_accelerate.py --bind tcp://0.0.0.0:7700 --out a
    python examples/train_accelerate.py --join tcp://node-a:7700 --out b

Kill one, start it again with --resume, and it resumes from its last checkpoint.
"""

import argparse

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from rumor.gossip import GoSGD
from rumor.train import Peer, PeerConfig, environment
from rumor.train.integrations.accelerate import keep_in_checkpoints

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
folder = f"{arguments.out or told.out or 'out'}/accelerate"

digits = load_digits()
inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
targets = torch.tensor(digits.target)
part = slice(told.index, 1437, told.count)  # this process's part of the data

torch.manual_seed(told.seed + told.index)
accelerator = Accelerator(gradient_accumulation_steps=2)
net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
model, optimizer, loader = accelerator.prepare(
    net,
    torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9),
    DataLoader(TensorDataset(inputs[part], targets[part]), 16, shuffle=True),
)

config = PeerConfig(**place)
peer = Peer(model, config, rule=GoSGD(p=0.1), checkpoints=False)
keep_in_checkpoints(accelerator, peer)  # before load_state
if arguments.resume:
    accelerator.load_state(folder)
    print(f"resuming after {peer.steps} steps", flush=True)

with peer:
    while peer.steps < arguments.steps:
        for batch, labels in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(batch), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:  # the optimizer has taken a step
                peer.step(loss=loss)
                if peer.steps % 50 == 0:
                    accelerator.save_state(folder)
                if peer.steps >= arguments.steps:
                    break

with torch.no_grad():
    logits = model(inputs[1437:].to(accelerator.device)).cpu()
accuracy = (logits.argmax(1) == targets[1437:]).float().mean().item()
print(f"accuracy {accuracy:.3f} on held-out digits after {peer.steps} steps")
