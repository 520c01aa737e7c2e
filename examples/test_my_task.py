"""Tests of your own task in a swarm with faults: deterministic, fast and without a network.

    python -m pytest examples/test_my_task.py

Time is virtual: a swarm that trains for a minute takes a fraction of a second.
"""

import torch
from torch import nn
from torch.nn import functional

from rumor.gossip.effects.events import Joined, PeerDied
from rumor.sim import Swarm
from rumor.train import Task


def rings(*, seed: int = 0) -> Task:
    """Classify points of an inner and an outer ring. Run: `rumor launch --task MODULE:rings`."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.arange(600) % 2
    angles = 2 * torch.pi * torch.rand(600, generator=generator)
    radii = 1.0 + targets + 0.2 * torch.randn(600, generator=generator)
    inputs = torch.stack([radii * angles.cos(), radii * angles.sin()], dim=1)
    return Task(
        name="rings",
        model=lambda: nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)),
        train=(inputs[:500], targets[:500]),
        test=(inputs[500:], targets[500:]),
        loss=functional.cross_entropy,
        accuracy=lambda outputs, labels: (outputs.argmax(1) == labels).double().mean().item(),
        optimizer=lambda parameters, lr: torch.optim.Adam(parameters, lr),
        lr=0.03,
        batch_size=20,
        steps=200,
    )


def test_five_peers_learn_it_although_the_network_loses_messages() -> None:
    swarm = Swarm(rings(), peers=5, network="lossy", p=0.3)
    swarm.run_until(lambda: swarm.accuracy() >= 0.95, timeout_s=60)
    assert swarm.audit().balanced


def test_a_peer_that_crashes_comes_back_with_what_the_others_have_learned() -> None:
    swarm = Swarm(rings(), peers=4, topology="ring", p=0.3)
    swarm.at(3.0, lambda: swarm.crash("peer-1"))
    swarm.at(8.0, lambda: swarm.restart("peer-1"))
    swarm.run_until(lambda: any(isinstance(event, Joined) for _, _, event in swarm.events))
    assert swarm.steps("peer-1") < 5
    assert swarm.accuracy("peer-1") > 0.9


def test_two_halves_train_on_and_agree_when_they_meet_again() -> None:
    split = {"at_s": 5, "kind": "partition", "groups": [["ann", "bob"]], "for_s": 40}
    swarm = Swarm(rings(), peers=["ann", "bob", "cyd", "dan"], p=0.3, faults=[split])
    swarm.run(45.0)
    assert swarm.live("ann") == ("ann", "bob")
    assert any(isinstance(event, PeerDied) for _, _, event in swarm.events)

    swarm.run_until(lambda: len(swarm.live("ann")) == 4)
    assert swarm.finish()
    assert swarm.consensus_distance() < 0.01
    assert swarm.accuracy() >= 0.95
