"""A sampler that divides a data set among the members of a swarm."""

from collections.abc import Iterator, Mapping, Sized
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from ...gossip.types import stream
from ..peer import Peer

__all__ = ["MemberSampler"]


class MemberSampler(Sampler[int]):
    """Divides a data set among the members of a swarm, anew at the start of each epoch.

    From the seed and the number of the epoch, all draw the same order of all samples, and each
    takes every n-th of them, where n is the number of members that it considers alive. Members that
    see the same members in the same epoch have disjoint parts, filled up to equal size. Others have
    parts that overlap; each sample remains as likely as any other. Processes that train one model
    together divide their peer's part.

    Args:
        data: The data set, the same for all members.
        peer: The member, which must run when an epoch begins. Its `PeerConfig.seed` must be that of
            all others.
    """

    def __init__(self, data: Sized, peer: Peer) -> None:
        self._data, self._peer = data, peer
        self.epoch = 0
        """Number of the next epoch, from 0."""

    def __len__(self) -> int:
        """Number of samples in an epoch that begins now."""
        return len(self._part(np.arange(len(self._data))))

    def __iter__(self) -> Iterator[int]:
        rng = stream(self._peer.config.seed, "swarm", f"data:{self.epoch}")
        part = self._part(rng.permutation(len(self._data)))
        self.epoch += 1
        return iter(part.tolist())

    def _part(self, order: NDArray[np.int64]) -> NDArray[np.int64]:
        peer, members = self._peer, self._peer.members
        own = _every(order, members.index(peer.id), len(members))
        return _every(own, peer.rank, peer.environment.ranks)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"epoch": self.epoch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the epoch that follows the one of the checkpoint."""
        self.epoch = int(state["epoch"])


def _every(order: NDArray[np.int64], index: int, count: int) -> NDArray[np.int64]:
    """Return one of *count* parts of equal size; samples from the front fill up the last parts."""
    return np.resize(order, -(-len(order) // count) * count)[index::count]
