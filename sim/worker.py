"""One worker of a fleet: a protocol, what it holds for it, and what it has done."""

from ..gossip import PeerId, Protocol
from ..gossip.effects import ShareId, SnapshotId
from .program import Slot

__all__ = ["Worker"]


class Worker:
    """One worker's state between two events.

    Args:
        index: Its row.
        id: Its name.
        protocol: What decides for it.

    Attributes:
        snapshots: Slots that it may still send from.
        shares: Slots that have come and are not decided.
        steps: Optimizer steps taken.
        waiting_since_s: Since when a synchronous rule has held it up; None while it trains.
        idle_s: How long it was held up so far, the present wait not counted.
        alarm_s: When it is to be woken at the latest.
        finished: Whether it takes no more steps.
    """

    __slots__ = (
        "alarm_s",
        "finished",
        "id",
        "idle_s",
        "index",
        "mixed",
        "protocol",
        "pushes",
        "shares",
        "snapshots",
        "steps",
        "waiting_since_s",
    )

    def __init__(self, index: int, id: PeerId, protocol: Protocol) -> None:
        self.index = index
        self.id = id
        self.protocol = protocol
        self.snapshots: dict[SnapshotId, Slot] = {}
        self.shares: dict[ShareId, Slot] = {}
        self.steps = 0
        self.pushes = 0
        self.mixed = 0
        self.waiting_since_s: float | None = None
        self.idle_s = 0.0
        self.alarm_s = float("inf")
        self.finished = False

    def idle_until(self, now: float) -> float:
        """How long it was held up until *now*, seconds."""
        since_s = self.waiting_since_s
        return self.idle_s if since_s is None else self.idle_s + now - since_s
