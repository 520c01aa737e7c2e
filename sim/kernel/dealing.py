"""Samples dealt by who is there, in a fleet: when, to whom, and how evenly they are seen."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...gossip.types import PeerId
from ...train.tasks.live_partition import Deal, Epoch, LiveSampler, training_of
from .worker import Worker

__all__ = ["Dealing"]

# Of epochs before these, what somebody sees late counts in no epoch, but in all.
_EPOCHS_OPEN: Final = 64


class Dealing:
    """Deals samples to workers as a live peer does to itself, and counts what becomes of them."""

    def __init__(self, epoch: Epoch, ids: Sequence[PeerId], seed: int) -> None:
        self._epoch = epoch
        self._samplers = [
            LiveSampler(epoch.n_samples, epoch.batch_size, seed=seed, peer=id, passes=epoch.passes)
            for id in ids
        ]
        self._lives: dict[int, Worker] = {}
        """Each worker's life to which samples were dealt last."""
        self._members: tuple[PeerId, ...] = ()
        self._in_all = np.zeros(epoch.n_samples, np.int64)
        self._open: dict[int, NDArray[np.int64]] = {}
        """How often each sample was seen in each of the last epochs."""
        self._shares: dict[int, float] = {}
        self._steps = 0

    def look(self, worker: Worker) -> Deal | None:
        """Deal samples to a worker before its next step; None where what it has still holds."""
        swarm_steps, sampler = worker.protocol.swarm_steps, self._samplers[worker.index]
        self._steps = max(self._steps, swarm_steps)
        # Whoever comes back looks anew: nobody tells a process what the one before was dealt.
        is_new = self._lives.get(worker.index) is not worker
        if not is_new and not sampler.is_due(swarm_steps):
            return None
        self._count(worker.index)
        self._lives[worker.index] = worker
        members = tuple(sorted({*training_of(worker.protocol), worker.id}))
        # One tuple for all: a thousand workers have a thousand names each.
        if members == self._members:
            members = self._members
        self._members = members
        dealt = Deal(self._epoch.at(swarm_steps), members, worker.steps)
        sampler.deal(dealt)
        return dealt

    def rename(self, worker: int, id: PeerId) -> None:
        """Give a worker that has not started another name: its slice follows from that."""
        self._samplers[worker].peer = id

    def figures(self) -> dict[str, Any]:
        """How evenly samples were seen, by the end of the run: in all, and by epoch."""
        for index in [*self._lives]:
            self._count(index)
            del self._lives[index]
        for epoch in [*self._open]:
            self._close(epoch)
        # The last epoch was not over when the run ended.
        over = [s for epoch, s in self._shares.items() if epoch < self._epoch.at(self._steps)]
        seen = self._in_all
        return {
            "epochs": len(over),
            "epoch_seen_mean": float(np.mean(over)) if over else None,
            "epoch_seen_min": min(over) if over else None,
            "sample_seen_mean": float(seen.mean()),
            "sample_seen_sd": float(seen.std()),
            "sample_seen_min": int(seen.min()),
            "sample_seen_max": int(seen.max()),
        }

    def _count(self, index: int) -> None:
        """Count what a worker has seen of what it was dealt last."""
        sampler, life = self._samplers[index], self._lives.get(index)
        dealt = sampler.dealt
        if life is None or dealt is None:
            return
        mine, counts = sampler.samples(), sampler.counts(life.steps - dealt.first_step)
        self._in_all[mine] += counts
        if dealt.epoch not in self._shares:
            if dealt.epoch not in self._open:
                self._open[dealt.epoch] = np.zeros_like(self._in_all)
            self._open[dealt.epoch][mine] += counts
        for epoch in sorted(self._open)[:-_EPOCHS_OPEN]:
            self._close(epoch)

    def _close(self, epoch: int) -> None:
        self._shares[epoch] = float((self._open.pop(epoch) > 0).mean())
