"""A peer in a container, configured by its environment.

RUMOR_ID, RUMOR_BIND and RUMOR_JOIN set its name, where it listens and whom it joins. With RUMOR_OUT
and RUMOR_RESUME it resumes from its last checkpoint. RUMOR_READY names a file that exists while the
peer is a member. Without these variables it trains alone.
"""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn

from rumor.train import Peer, PeerConfig, environment

STEPS = int(os.environ.get("STEPS", "20000"))

told = environment()
digits = load_digits()
inputs = torch.tensor(digits.data, dtype=torch.float32, device=told.device) / 16
targets = torch.tensor(digits.target, device=told.device)

model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).to(told.device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

peer = Peer(model, PeerConfig(signals=True))
if told.out is not None:
    peer.register(optimizer=optimizer)

with peer:
    print(f"{peer.id} at {peer.address}, with {', '.join(peer.members)}", flush=True)
    while peer.steps < STEPS:
        batch = torch.randint(1437, (32,), device=told.device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs[batch]), targets[batch])
        loss.backward()
        optimizer.step()
        peer.step(loss=loss)
        if peer.steps % 500 == 0:
            print(
                f"step {peer.steps}: loss {loss.item():.3f}, {len(peer.members)} live", flush=True
            )

accuracy = (model(inputs[1437:]).argmax(1) == targets[1437:]).float().mean().item()
print(f"accuracy {accuracy:.3f} on held-out digits after {peer.steps} steps")
