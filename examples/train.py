"""Your own training loop, as a peer of a swarm.

Run it in two terminals, or on two machines with the names of both:

    python examples/train.py --join localhost:7701,localhost:7702

Start more at any time, and stop any of them with Ctrl-C. Or start four at once:

    rumor run -n 4 -- python examples/train.py

The name train.py is deliberate: it must not clash with rumor's own packages.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn

from rumor.train import Peer

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--join", help="addresses of all (default port: 7700); founds without any")
parser.add_argument("--steps", type=int, default=2000)
arguments = parser.parse_args()

digits = load_digits()
order = torch.randperm(len(digits.data), generator=torch.Generator().manual_seed(0))
inputs = torch.tensor(digits.data, dtype=torch.float32)[order] / 16
targets = torch.tensor(digits.target)[order]
held_out = slice(1437, None)

model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

with Peer(model, join=arguments.join) as peer:
    print(f"peer {peer.id} at {peer.address}, with {', '.join(peer.members)}", flush=True)
    try:
        for step in range(arguments.steps):
            batch = torch.randint(1437, (32,))
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs[batch]), targets[batch])
            loss.backward()
            optimizer.step()
            peer.step(loss=loss)
            if step % 200 == 0:
                print(f"step {step}: loss {loss.item():.3f}, weight {peer.weight:.3f}", flush=True)
    except KeyboardInterrupt:
        print("stopping", flush=True)
        peer.leave()

accuracy = (model(inputs[held_out]).argmax(1) == targets[held_out]).float().mean().item()
print(f"accuracy {accuracy:.3f} on held-out digits, shares mixed in: {peer.stats().counters.mixed}")
if peer.merged and peer.merged.distance is not None:
    print(f"models differed by {peer.merged.distance:.2g} of their norm in the last exchange")
