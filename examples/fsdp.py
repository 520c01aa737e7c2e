"""A node as a peer: several processes shard one model with FSDP2, and form one peer of a swarm.

Start two nodes of two processes each on this machine:

    rumor run -n 2 -- torchrun --standalone --nproc-per-node 2 examples/fsdp.py

On a cluster, start one torchrun on each node (docs/how-to/node.md):

    srun --ntasks-per-node 1 rumor run -- torchrun --standalone --nproc-per-node 8 examples/fsdp.py
"""

import argparse
import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

from rumor.train import MemberSampler, Peer, environment

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=5)
arguments = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cuda":
    torch.cuda.set_device(environment(ranks=int(os.environ["WORLD_SIZE"])).device)
dist.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")

digits = load_digits()
data = TensorDataset(
    torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
)
train, held_out = torch.utils.data.random_split(data, (1437, 360), torch.Generator().manual_seed(0))

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
model.to(device)
mesh = init_device_mesh(device, (dist.get_world_size(),))
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)

with Peer(model) as peer:
    sampler = MemberSampler(train, peer)
    for _ in range(arguments.epochs):
        for inputs, targets in DataLoader(train, batch_size=16, sampler=sampler):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
            peer.step(loss=loss)
    peer.merge()
    inputs, targets = held_out[:]
    accuracy = (model(inputs.to(device)).argmax(1).cpu() == targets).float().mean().item()
    if peer.is_leader:
        print(f"{peer.id} with {', '.join(peer.members)}: accuracy {accuracy:.3f}", flush=True)
dist.destroy_process_group()
