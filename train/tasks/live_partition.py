"""Which samples a peer trains on where that follows who is there: dealt anew by the swarm's clock.

An *epoch* is so many optimizer steps of all peers together as take each sample once (or PASSES
times, ``live:PASSES``). At the first step that a peer takes in an epoch it looks who trains, and
takes its slice of the samples: a pure function of seed, epoch, and that view. So peers that see
the same have disjoint slices that together are all samples, without a message; where views differ
for a while, some samples are dealt twice, or to nobody, until the next epoch deals them anew.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...gossip.errors import ConfigError
from ...gossip.specs.parameter import Parameter
from ...gossip.specs.spec import make
from ...gossip.types import PeerId, stream
from ...gossip.wire.messages import Member, Phase

__all__ = [
    *("Deal", "Epoch", "LiveBatches", "LiveSampler", "Passes", "Seen", "live_passes"),
    *("seen_of", "slice_bounds", "training_of"),
]

Passes = Annotated[
    int, Parameter("over all samples in an epoch.", low=1, high=1_000_000, is_bare=True)
]


class Deal(NamedTuple):
    """Who gets which samples, as one peer sees it."""

    epoch: int
    """By the swarm's clock."""
    members: tuple[PeerId, ...]
    """Who trains, the peer itself included, ascending."""
    first_step: int
    """Of the peer's own steps the first to which this applies, counted from 0."""


class Epoch(NamedTuple):
    """How long an epoch is."""

    n_samples: int
    batch_size: int
    passes: int = 1

    def at(self, swarm_steps: int) -> int:
        """The epoch that it is when all peers together have taken so many steps.

        >>> Epoch(100, 10).at(9), Epoch(100, 10).at(10), Epoch(100, 10, passes=5).at(49)
        (0, 1, 0)
        """
        return swarm_steps * self.batch_size // (self.passes * self.n_samples)


def live_passes(partition: object) -> int | None:
    """Over the samples in one epoch, where a partition is a live one; None for any other.

    Raises:
        ConfigError: It is a live one, and its number is none.

    >>> live_passes("live"), live_passes("live:20"), live_passes("iid")
    (1, 20, None)
    """
    if not isinstance(partition, str) or partition.partition(":")[0] != "live":
        return None

    def live(passes: Passes = 1) -> int:
        return passes

    return make("partition", partition, {"live": live})


def slice_bounds(n_samples: int, members: Sequence[PeerId], peer: PeerId) -> tuple[int, int]:
    """Where a peer's slice of the shuffled samples begins and ends.

    Slices are as equal as can be. Where there are more members than samples, several share one.

    >>> [slice_bounds(10, "abc", peer) for peer in "abc"]
    [(0, 4), (4, 7), (7, 10)]
    >>> slice_bounds(2, "abc", "c")
    (0, 1)
    """
    rank, count = bisect_left(members, peer), len(members)
    if count > n_samples:
        return rank % n_samples, rank % n_samples + 1
    size, more = divmod(n_samples, count)
    start = rank * size + min(rank, more)
    return start, start + size + (rank < more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What live members saw of the samples in an epoch that has ended, as one of them knows."""

    epoch: int
    members: int
    """Who had a slice."""
    share: float
    """Part of all samples that was seen at least once, in [0, 1]."""
    passes_min: float
    """Passes of the slowest member over its slice; of one that died or left, those until then."""
    passes_max: float
    """Likewise of the fastest."""

    def as_row(self) -> dict[str, Any]:
        """As rows of metrics have it."""
        return {
            "epoch": self.epoch,
            "epoch_members": self.members,
            "epoch_seen": self.share,
            "epoch_passes_min": self.passes_min,
            "epoch_passes_max": self.passes_max,
        }


def seen_of(
    epoch: Epoch, dealt: Deal, before: Mapping[PeerId, int], now: Mapping[PeerId, int]
) -> Seen:
    """What became of an epoch, by the steps that everybody has taken in it.

    Args:
        epoch: How long epochs are.
        dealt: Who had which slice.
        before: Steps of each member when it was dealt.
        now: Steps of each now; of one that is not there any more, the last that was known.
    """
    passes, seen = [], 0
    for member in dealt.members:
        start, end = slice_bounds(epoch.n_samples, dealt.members, member)
        steps = max(0, now.get(member, 0) - before.get(member, 0))
        passes.append(steps * epoch.batch_size / (end - start))
        seen += min(end - start, steps * epoch.batch_size)
    return Seen(
        epoch=dealt.epoch,
        members=len(dealt.members),
        share=min(1.0, seen / epoch.n_samples),
        passes_min=min(passes),
        passes_max=max(passes),
    )


class LiveSampler:
    """Batches of one peer under a live partition.

    Within an epoch, passes over the peer's slice, each in an order of its own, are laid end to end
    and cut into batches of equal size. Until the first `deal` the peer is alone.

    Args:
        n_samples: Of all data, >= 1.
        batch_size: Samples per batch, >= 1; more than there are means all of them.
        seed: The run's seed, the same at all peers.
        peer: The peer's id.
        passes: Over all samples in one epoch.

    Raises:
        ConfigError: There are no samples, or *batch_size* is less than 1.

    >>> samplers = [LiveSampler(12, 3, seed=0, peer=peer) for peer in "ab"]
    >>> for sampler in samplers:
    ...     sampler.deal(Deal(0, ("a", "b"), 0))
    >>> taken = np.concatenate([s.batch(step) for s in samplers for step in range(2)])
    >>> np.sort(taken).tolist() == list(range(12))
    True
    """

    def __init__(
        self, n_samples: int, batch_size: int, *, seed: int, peer: PeerId, passes: int = 1
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}: it must be 1 or more")
        if n_samples < 1:
            raise ConfigError(f"peer {peer} has no samples: it must have at least one")
        self.epoch = Epoch(n_samples, min(batch_size, n_samples), passes)
        self.dealt: Deal | None = None
        """What holds now; None before anything was dealt."""
        self.seen: Seen | None = None
        """What became of the last epoch that ended, see `look`; None before that."""
        self._before: Mapping[PeerId, int] = {}
        self._seed = seed
        self.peer = peer
        """The peer's id."""
        self._slice: NDArray[np.int64] | None = None
        self._pass = -1, np.empty(0, np.int64)

    def is_due(self, swarm_steps: int) -> bool:
        """Whether samples are to be dealt before the next step.

        Args:
            swarm_steps: Of all peers, as this one knew at its last turn.
        """
        # Who comes back from a checkpoint may know of fewer steps than it did.
        return self.dealt is None or self.epoch.at(swarm_steps) > self.dealt.epoch

    def look(self, swarm_steps: int, training: Mapping[PeerId, int], step: int) -> Deal:
        """Deal samples to those who train now, and sum up the epoch that is over.

        Args:
            swarm_steps: Of all peers, as this one knew at its last turn.
            training: Steps of each who trains, as this one knows.
            step: The peer's next one, counted from 0.
        """
        now = {**self._before, **training, self.peer: step}
        if self.dealt is not None:
            self.seen = seen_of(self.epoch, self.dealt, self._before, now)
        self._before = {**training, self.peer: step}
        dealt = Deal(self.epoch.at(swarm_steps), tuple(sorted(self._before)), step)
        self.deal(dealt)
        return dealt

    def deal(self, dealt: Deal) -> None:
        """Take the slice that the peer has by this from now on."""
        self.dealt = dealt
        self._slice = None
        self._pass = -1, self._pass[1]

    def batch(self, step: int) -> NDArray[np.int64]:
        """Say which samples step number *step* of the peer takes.

        Returns:
            Indices of samples: int64, axes ``(batch_size,)``.

        Raises:
            ConfigError: *step* is before the first that the last deal applies to.
        """
        first = 0 if self.dealt is None else self.dealt.first_step
        if step < first:
            raise ConfigError(f"step is {step}: it must be {first} or more")
        size = self.epoch.batch_size
        at, place = divmod((step - first) * size, len(self.samples()))
        found: list[NDArray[np.int64]] = []
        while size > 0:
            piece = self._in_order(at)[place : place + size]
            found.append(piece)
            at, place, size = at + 1, 0, size - len(piece)
        return found[0] if len(found) == 1 else np.concatenate(found)

    def samples(self) -> NDArray[np.int64]:
        """The peer's slice: int64, axes ``(n_own,)``."""
        if self._slice is None:
            epoch, members = (0, (self.peer,)) if self.dealt is None else self.dealt[:2]
            start, end = slice_bounds(self.epoch.n_samples, members, self.peer)
            shuffled = stream(self._seed, "swarm", f"live:{epoch}").permutation(
                self.epoch.n_samples
            )
            self._slice = np.asarray(shuffled[start:end], np.int64)
        return self._slice

    def counts(self, steps: int) -> NDArray[np.int64]:
        """How often each of the peer's samples is seen in the first steps after the last deal.

        Args:
            steps: How many these are.

        Returns:
            In the order of `samples`: int64, axes ``(n_own,)``.
        """
        mine = self.samples()
        whole, rest = divmod(steps * self.epoch.batch_size, len(mine))
        found = np.full(len(mine), whole, np.int64)
        if rest:
            # Each sample stands once in a slice.
            found += np.isin(mine, self._in_order(whole)[:rest])
        return found

    def _in_order(self, at: int) -> NDArray[np.int64]:
        """A pass over the slice, counted from 0 in each deal."""
        if self._pass[0] != at:
            epoch = 0 if self.dealt is None else self.dealt.epoch
            named = stream(self._seed, self.peer, f"live:{epoch}:{at}")
            self._pass = at, named.permutation(self.samples())
        return self._pass[1]


class _Sighted(Protocol):
    """The part of a protocol that says who is there."""

    def live(self) -> Sequence[Member]:
        """Everybody who is believed to run, sorted by id."""


def training_of(protocol: _Sighted) -> dict[PeerId, int]:
    """Steps of all who are believed to run and take optimizer steps, by id, ascending."""
    return {member.id: member.step for member in protocol.live() if member.phase is Phase.TRAINING}


class _Viewed(Protocol):
    """The part of a `Peer` that a live partition goes by."""

    id: PeerId

    @property
    def swarm_steps(self) -> int:
        """Of all peers, as known at the last turn."""

    def stats(self) -> "_Stats":
        """Its figures."""


class _Stats(Protocol):
    @property
    def training(self) -> Mapping[PeerId, int]:
        """Steps of all who take optimizer steps, by id."""


class LiveBatches:
    """Batches for a training loop of your own: a `batch_sampler` for torch's ``DataLoader``.

    It never ends, so let the loop: ``for batch in loader: ... if peer.steps >= steps: break``.
    Iterate inside ``with peer``. A loader with workers asks some batches ahead, and so sees who is
    there a little earlier.

    Args:
        peer: Whose view counts.
        n_samples: In the data set, the same one at all peers.
        batch_size: The same at all peers, too: the length of an epoch follows from it.
        seed: The same at all peers.
        passes: Over all samples in one epoch; more where a pass takes less than some seconds,
            since peers hear of one another about once a second.

    Raises:
        ConfigError: There are no samples, or *batch_size* is less than 1.
    """

    def __init__(
        self, peer: _Viewed, n_samples: int, batch_size: int, *, seed: int = 0, passes: int = 1
    ) -> None:
        self._peer = peer
        self._sampler = LiveSampler(n_samples, batch_size, seed=seed, peer=peer.id, passes=passes)
        self._step = 0

    @property
    def dealt(self) -> Deal | None:
        """What holds now; None before the first batch."""
        return self._sampler.dealt

    @property
    def seen(self) -> Seen | None:
        """What became of the last epoch that ended; None before that."""
        return self._sampler.seen

    def __iter__(self) -> Iterator[list[int]]:
        while True:
            swarm_steps = self._peer.swarm_steps
            if self._sampler.is_due(swarm_steps):
                self._sampler.look(swarm_steps, self._peer.stats().training, self._step)
            yield self._sampler.batch(self._step).tolist()
            self._step += 1
