"""The segments of the one machine on which all peers of a swarm run."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ...gossip.effects.effects import Exchange
from ...train.tensors.blocks import widened
from ...train.tensors.vector import Flats, Vector

__all__ = ["HeldSegments", "MachineSegments"]


@dataclass(slots=True)
class _Segment:
    flats: Flats
    holders: list[Callable[[], bool]] = field(default_factory=list)
    """Say whether the process of a life that has exchanged with it runs still."""


class MachineSegments:
    """Segments of the one machine on which all peers of a swarm run."""

    def __init__(self) -> None:
        self._segments: dict[tuple[bytes, str], _Segment] = {}

    def held_while(self, is_running: Callable[[], bool]) -> "HeldSegments":
        """The same, held by a process as long as it runs."""
        return HeldSegments(self._segments, is_running)


class HeldSegments:
    """What a live peer's `SharedSegments` are.

    Args:
        segments: Those of the machine.
        is_running: Whether the process that holds them runs.
    """

    def __init__(
        self, segments: dict[tuple[bytes, str], _Segment], is_running: Callable[[], bool]
    ) -> None:
        self._segments = segments
        self._is_running = is_running

    def exchange(self, effect: Exchange, vector: Vector) -> None:
        """Exchange a register with a segment, which is made where nobody holds it any more.

        Raises:
            TrainingError: A number is not finite; nothing was changed.
        """
        key = effect.swarm, effect.segment
        segment = self._segments.get(key)
        if segment is None or not any(runs() for runs in segment.holders):
            numbers = vector.flats_of(effect.register)
            flats = tuple(part.to(widened(part), copy=True) for part in numbers)
            segment = self._segments[key] = _Segment(flats)
        if self._is_running not in segment.holders:
            segment.holders.append(self._is_running)
        taken, given = effect.taken, effect.given
        vector.exchange(effect.register, segment.flats, taken=taken, given=given)

    def met(self) -> None:
        """Do nothing: all peers of one swarm are of one machine."""

    def close(self) -> None:
        """Do nothing: whether the process runs is asked."""
