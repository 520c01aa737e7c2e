"""What a fleet offers to those who let things go wrong in it, and they to one another."""

from collections.abc import Callable, Sequence
from typing import Protocol

from ..gossip import Envelope
from ..gossip.effects import Effect
from ..gossip.events import Event
from .plan import Traffic
from .program import Program, Slot
from .worker import Worker

__all__ = ["Processes", "Stage"]


class Stage(Protocol):
    """A fleet: its workers, and what is due when."""

    now: float
    program: Program
    traffic: Traffic
    workers: list[Worker]
    """The latest life of each."""

    def at(self, time_s: float, action: Callable[[], object]) -> None:
        """Do something at a time, before whatever else is due then."""

    def deliver_at(self, time_s: float, to: int, envelope: Envelope, payload: Slot | None) -> None:
        """Let a message arrive at a time, with what travels beside it."""

    def take_in(self, worker: Worker, envelope: Envelope, payload: Slot | None) -> None:
        """Let a worker's protocol have a message."""

    def carry_out(self, worker: Worker, effects: Sequence[Effect | Event], now: float) -> None:
        """Carry out what a worker's protocol has asked for."""

    def step(self, worker: Worker, *, trained: bool) -> None:
        """Let a worker's protocol take a turn."""

    def begin_step(self, worker: Worker) -> None:
        """Let a worker's next turn be due when its step is done."""

    def turn_at(self, worker: Worker, time_s: float) -> None:
        """Let a worker's next turn be due at a time."""

    def finish(self, worker: Worker) -> None:
        """Let a worker take no more steps, and go on mixing."""

    def leave(self, worker: Worker, *, burn: bool = False) -> None:
        """Let a worker take no more steps, and leave."""

    def set_alarm(self, worker: Worker) -> None:
        """See that a worker is woken in time."""


class Processes(Protocol):
    """Those who start and end a fleet's processes."""

    def start(self, workers: Sequence[Worker], *, kept: bool = False) -> None:
        """Start newcomers, or the next lives of those whose process has ended, all at once."""

    def crash(self, worker: Worker) -> None:
        """End a process without a word."""

    def keep(self, worker: Worker) -> None:
        """Let a worker write a checkpoint."""

    def look(self) -> None:
        """See whether everything is over."""
