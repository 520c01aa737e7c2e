"""One life of one peer of an in-process swarm: its module, its vector, and what it has done."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ...gossip import PeerId, Phase, Protocol, TrainingError
from ...train.runtime.telling.counters import Counters
from ...train.tensors.store import TensorStore
from ...train.tensors.vector import Vector, is_finite_tensor
from ..kernel.worker import Worker
from ..models.step_time import StepTime
from .learner import Learner

__all__ = ["StepTimes", "SwarmPeer"]


@dataclass(slots=True, eq=False)
class SwarmPeer:
    """A process that trains, decides and mixes."""

    worker: Worker
    """What the kernel knows of it."""
    learner: Learner
    """Trains."""
    vector: Vector
    """The learner's model, flat."""
    store: TensorStore
    """Snapshots of it, and shares that have come."""
    tally: Counters = field(default_factory=Counters)
    """What it has done so far."""
    end: str = ""
    """How its process ended, in words; empty while it runs."""
    refusal: str = ""
    """Why members say that it cannot be one of them, if they do."""
    error: TrainingError | None = None
    """Why it cannot go on, until it has begun to leave."""

    @property
    def id(self) -> PeerId:
        """The peer's name."""
        return self.worker.id

    @property
    def protocol(self) -> Protocol:
        """What decides for it."""
        return self.worker.protocol

    @property
    def running(self) -> bool:
        """Whether its process runs; paused, it still does."""
        return self.worker.running

    @property
    def is_member(self) -> bool:
        """Whether its model is one of the swarm's: it joined, and neither crashed nor left."""
        ended_well = self.running or self.protocol.done
        return ended_well and Phase.TRAINING <= self.protocol.phase <= Phase.QUIET

    @property
    def done(self) -> bool:
        """Whether nobody needs it any more, or its process has ended."""
        return not self.running or self.protocol.done

    @property
    def is_finite(self) -> bool:
        """Whether all its values are numbers."""
        return all(is_finite_tensor(flat) for flat in self.vector.flats)


class StepTimes:
    """How long steps take, of peers that may come later.

    Args:
        make: Makes the durations of a peer of that name, which is their only worker.
    """

    def __init__(self, make: Callable[[PeerId], StepTime]) -> None:
        self._make = make
        self._each: list[StepTime] = []

    def add(self, id: PeerId) -> None:
        """Take in another peer, whose index is the next one."""
        self._each.append(self._make(id))

    def step_s(self, worker: int, step: int) -> float:
        """See `StepTime.step_s`."""
        return self._each[worker].step_s(0, step)

    def mean_s(self, worker: int) -> float:
        """See `StepTime.mean_s`."""
        return self._each[worker].mean_s(0)
