"""Cross-validation: each fold is a separate swarm, with a fresh model.

    rumor run -n 2 --out runs/kfold -- python examples/kfold.py

Run alone, it trains each fold on one machine. Under `rumor run`, all processes make the same peers
in the same order, one for each fold. `runs/kfold/swarms/fold-0/model.safetensors` is the merged
model of the first fold.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn

from rumor.train import Peer, environment

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--folds", type=int, default=5)
parser.add_argument("--steps", type=int, default=500, help="of each fold")
arguments = parser.parse_args()

digits = load_digits()
inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
targets = torch.tensor(digits.target)
order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
told = environment()

accuracies = []
for fold in range(arguments.folds):
    held_out = order[fold :: arguments.folds]
    training = order[~torch.isin(order, held_out)][told.index :: told.count]
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    peer = Peer(model, swarm=f"fold-{fold}")
    if peer.config.checkpoint is not None:
        peer.register(optimizer=optimizer)  # so that `rumor run --resume` can continue
    with peer:
        while peer.steps < arguments.steps:
            batch = training[torch.randint(len(training), (32,))]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs[batch]), targets[batch])
            loss.backward()
            optimizer.step()
            peer.step(loss=loss)
    right = model(inputs[held_out]).argmax(1) == targets[held_out]
    accuracies.append(right.float().mean().item())
    print(f"fold {fold}: accuracy {accuracies[-1]:.3f}, with {len(training)} samples", flush=True)
print(f"mean accuracy {sum(accuracies) / len(accuracies):.3f}")
