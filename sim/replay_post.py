"""Shares on their way from one peer's replay to another's."""

from collections.abc import Collection
from typing import NamedTuple

from torch import Tensor

from ..gossip.messages import Incarnation, PeerId
from ..gossip.wire import Form

__all__ = ["Life", "Made", "Post", "ShareKey"]


class Life(NamedTuple):
    """One life of a peer."""

    id: PeerId
    incarnation: Incarnation


class ShareKey(NamedTuple):
    """Names a share among all peers."""

    sender: Life
    receiver: Life
    seq: int
    shard: int = 0

    @property
    def way(self) -> tuple[Life, Life, int]:
        """From whom, to whom, and which shard: on each, one share follows another."""
        return self.sender, self.receiver, self.shard

    def __str__(self) -> str:
        shard = f" (shard {self.shard})" if self.shard else ""
        return f"share {self.seq}{shard} of {self.sender.id} for {self.receiver.id}"


class Made(NamedTuple):
    """A share, made again."""

    payload: Tensor
    """Its bytes: uint8, axes ``(n_bytes,)``; nobody changes them."""
    form: Form
    """What they are."""
    record: int
    """After which record of its sender's journal it was made."""
    step: int
    """After how many optimizer steps of its sender."""


class Post:
    """Keeps what was made until it is mixed, or can be mixed no more.

    Args:
        lives: Who is replayed; what is for anybody else is dropped.
    """

    def __init__(self, lives: Collection[Life]) -> None:
        self.lives = frozenset(lives)
        self._made: dict[tuple[Life, Life, int], dict[int, Made]] = {}
        self._arrivals: list[ShareKey] = []

    def put(self, key: ShareKey, made: Made) -> None:
        """Hand over a share for another replay to take."""
        if key.receiver in self.lives:
            self._made.setdefault(key.way, {})[key.seq] = made
            self._arrivals.append(key)

    def find(self, key: ShareKey) -> Made | None:
        """A share, where it was made and not done with."""
        return self._made.get(key.way, {}).get(key.seq)

    def done(self, key: ShareKey) -> None:
        """Forget a share that its receiver has decided on, and those before it."""
        # At most one share of a shard is outstanding between two lives: those before are settled.
        waiting = self._made.get(key.way, {})
        for seq in [seq for seq in waiting if seq <= key.seq]:
            del waiting[seq]

    def take_arrivals(self) -> list[ShareKey]:
        """The shares that were put since this was last asked."""
        arrivals, self._arrivals = self._arrivals, []
        return arrivals
