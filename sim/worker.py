"""One worker of a fleet: a protocol, what it holds for it, and what it has done."""

from ..gossip import Account, Envelope, PeerId, Protocol
from ..gossip.effects import ShareId, SnapshotId
from ..gossip.frozen import frozen
from ..gossip.messages import ClockRow
from .program import Slot

__all__ = ["Checkpoint", "Doom", "Worker"]


@frozen
class Checkpoint:
    """What a worker's next life knows of this one, beside the values that a program keeps."""

    steps: int
    """Optimizer steps taken: where its data stands."""
    peers: tuple[PeerId, ...]
    """Whom it knew."""
    clock: tuple[ClockRow, ...]


class Doom:
    """A crash that is due at a boundary between two effects of what a worker does next.

    Args:
        after: So many effects of the next event are still carried out; None where the end comes
            as soon as something was accepted.
        ledger: What the worker's ledger says now, an account for each shard; it is kept up to
            date with what is carried out.
    """

    __slots__ = ("after", "ledger")

    def __init__(self, after: int | None, ledger: list[Account]) -> None:
        self.after = after
        self.ledger = ledger


class Worker:
    """One life of a worker between two events.

    Args:
        index: Its row.
        id: Its name.
        protocol: What decides for it.

    Attributes:
        snapshots: Slots that it may still send from.
        shares: Slots that have come and are not decided.
        steps: Optimizer steps taken, those before its last checkpoint included.
        repeated: Steps of earlier lives that are not among these.
        waiting_since_s: Since when a synchronous rule has held it up; None while it trains.
        idle_s: How long it was held up so far, the present wait not counted.
        alarm_s: When it is to be woken at the latest.
        turn_s: When its next turn is due.
        finished: Whether it takes no more steps.
        awake: Whether its process runs and is not paused.
        running: Whether its process runs, paused or not.
        searching: Whether it does not belong to a swarm yet, and so does not train.
        paused_s: Since when it stands still, None while it does not.
        pauses: Numbers of the pauses that hold it.
        held: What has come while it was paused.
        ahead_s: How far its clock is ahead.
        slowness: How many times as long its steps take as its pace says.
        spoilt: Whether its values have stopped being finite.
        doom: How it is about to crash, if it is.
        kept: Its last checkpoint, if any.
        checkpoint_s: When it takes the next.
        started_s: When its process started.
    """

    __slots__ = (
        "ahead_s",
        "alarm_s",
        "awake",
        "checkpoint_s",
        "doom",
        "finished",
        "held",
        "id",
        "idle_s",
        "index",
        "kept",
        "mixed",
        "paused_s",
        "pauses",
        "protocol",
        "pushes",
        "repeated",
        "running",
        "searching",
        "shares",
        "slowness",
        "snapshots",
        "spoilt",
        "started_s",
        "steps",
        "turn_s",
        "waiting_since_s",
    )

    def __init__(self, index: int, id: PeerId, protocol: Protocol) -> None:
        self.index = index
        self.id = id
        self.protocol = protocol
        self.snapshots: dict[SnapshotId, Slot] = {}
        self.shares: dict[ShareId, Slot] = {}
        self.steps = 0
        self.repeated = 0
        self.pushes = 0
        self.mixed = 0
        self.waiting_since_s: float | None = None
        self.idle_s = 0.0
        self.alarm_s = float("inf")
        self.turn_s = 0.0
        self.finished = False
        self.awake = True
        self.running = True
        self.searching = False
        self.paused_s: float | None = None
        self.pauses: set[int] = set()
        self.held: list[tuple[Envelope, Slot | None]] = []
        self.ahead_s = 0.0
        self.slowness = 1.0
        self.spoilt = False
        self.doom: Doom | None = None
        self.kept: Checkpoint | None = None
        self.checkpoint_s = float("inf")
        self.started_s = 0.0

    @property
    def steps_of_all_lives(self) -> int:
        """Optimizer steps taken since the start of the run, repeated ones too."""
        return self.repeated + self.steps

    def idle_until(self, now: float) -> float:
        """How long it was held up until *now*, seconds."""
        since_s = self.waiting_since_s
        return self.idle_s if since_s is None else self.idle_s + now - since_s
