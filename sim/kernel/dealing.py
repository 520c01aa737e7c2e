"""Samples dealt by who is there, in a fleet: when, and to whom."""

from collections.abc import Sequence

from ...gossip.types import PeerId
from ...train.tasks.live_partition import Deal, Epoch, LiveSampler, training_of
from .worker import Worker

__all__ = ["Dealing"]


class Dealing:
    """Deals samples to workers as a live peer does to itself."""

    def __init__(self, epoch: Epoch, ids: Sequence[PeerId], seed: int) -> None:
        self._epoch = epoch
        self._samplers = [
            LiveSampler(epoch.n_samples, epoch.batch_size, seed=seed, peer=id, passes=epoch.passes)
            for id in ids
        ]
        self._lives: dict[int, Worker] = {}
        """Each worker's life to which samples were dealt last."""
        self._members: tuple[PeerId, ...] = ()

    def look(self, worker: Worker) -> Deal | None:
        """Deal samples to a worker before its next step; None where what it has still holds."""
        swarm_steps, sampler = worker.protocol.swarm_steps, self._samplers[worker.index]
        # Whoever comes back looks anew: nobody tells a process what the one before was dealt.
        is_new = self._lives.get(worker.index) is not worker
        if not is_new and not sampler.is_due(swarm_steps):
            return None
        self._lives[worker.index] = worker
        members = tuple(sorted({*training_of(worker.protocol), worker.id}))
        # One tuple for all: a thousand workers have a thousand names each.
        if members != self._members:
            self._members = members
        dealt = Deal(self._epoch.at(swarm_steps), self._members, worker.steps)
        sampler.deal(dealt)
        return dealt

    def rename(self, worker: int, id: PeerId) -> None:
        """Give a worker that has not started another name: its slice follows from that."""
        self._samplers[worker].peer = id
