"""A GAN: generator and discriminator are two models, so the same processes form two swarms.

    rumor run -n 2 --out runs/gan -- python examples/gan.py

`runs/gan/swarms/generator/model.safetensors` is the merged generator.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as entropy

from rumor.train import Peer, environment

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--steps", type=int, default=2000)
arguments = parser.parse_args()

told = environment()
images = torch.tensor(load_digits().data, dtype=torch.float32)[told.index :: told.count] / 8 - 1
generator = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh())
discriminator = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
by_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
by_discriminator = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
real, made = torch.ones(32, 1), torch.zeros(32, 1)

with (
    Peer(generator, swarm="generator") as generates,
    Peer(discriminator, swarm="discriminator") as judges,
):
    for _ in range(arguments.steps):
        batch = images[torch.randint(len(images), (32,))]
        drawn = generator(torch.randn(32, 16))
        by_discriminator.zero_grad()
        loss = entropy(discriminator(batch), real) + entropy(discriminator(drawn.detach()), made)
        loss.backward()
        by_discriminator.step()

        by_generator.zero_grad()
        fooled = entropy(discriminator(drawn), real)
        fooled.backward()
        by_generator.step()

        # Both step here: no parameter may change between a forward pass and its backward pass.
        judges.step(loss=loss)
        generates.step(loss=fooled)
print(f"generator with {generates.members}, discriminator with {judges.members}")
