"""Start the peers' processes, watch them to their end, and pass a Ctrl-C on.

The launcher is no part of the swarm. Peers find one another through files, exchange nothing with
it, and go on to the end if it dies; killing one of them is a machine's death to the others.
"""

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from .crew import Crew
from .watch import Sight, Watch

__all__ = ["Display", "Faults", "Interrupt", "supervise"]

LOOK_S = 0.2

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Display(Protocol):
    """Shows how a run goes."""

    def show(self, sights: Sequence[Sight], news: Sequence[str], elapsed_s: float) -> None:
        """Show where the peers are, and what has happened to some of them."""


class Faults(Protocol):
    """As much of `Chaos` as supervising needs."""

    @property
    def next_s(self) -> float:
        """How long there is nothing to do, seconds."""

    @property
    def will_revive(self) -> bool:
        """Whether somebody is down who will be started again."""

    def update(self) -> list[str]:
        """Do what is due, and say what it was."""

    def cancel(self) -> None:
        """Do nothing more."""


class Interrupt:
    """What a user who presses Ctrl-C is answered: at first peers leave, then they are killed.

    Args:
        crew: The peers.
    """

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self.count = 0

    def __call__(self, number: int, frame: object) -> None:
        """Handle a signal."""
        self.count += 1
        if self.count > 1:
            self._crew.kill_all()
            return
        print(
            "\nstopping: peers hand their weight on and leave; once more kills them",
            file=sys.stderr,
        )
        self._crew.leave_all()


def supervise(
    crew: Crew, watch: Watch, display: Display, faults: Faults | None = None
) -> list[Sight]:
    """Start all processes, and watch them until the last one has ended.

    Args:
        crew: The peers, none of which was started yet.
        watch: Sees them.
        display: Shows it.
        faults: What is done to them.

    Returns:
        How each was seen to end, in the order of the crew.

    Raises:
        OSError: A process could not be started; those that were are killed.
    """
    interrupt = Interrupt(crew)
    started_s = time.monotonic()
    try:
        with _handling(interrupt):
            crew.start()
            while not watch.over or (faults is not None and faults.will_revive):
                news = _wait(faults, crew, interrupt) + watch.update()
                display.show(watch.sights, news, time.monotonic() - started_s)
    except BaseException:
        crew.kill_all()
        crew.wait()
        raise
    return watch.sights


def _wait(faults: Faults | None, crew: Crew, interrupt: Interrupt) -> list[str]:
    """Do what is due until it is time to look again; says what it was."""
    news: list[str] = []
    look_s = time.monotonic() + LOOK_S
    while (rest_s := look_s - time.monotonic()) > 0:
        if faults is None:
            time.sleep(rest_s)
        else:
            if interrupt.count:
                faults.cancel()
                # Of a peer that was being paused while the signal came.
                crew.release_all()
            news += faults.update()
            time.sleep(min(rest_s, faults.next_s))
    return news


@contextmanager
def _handling(interrupt: Interrupt) -> Iterator[None]:
    before = {number: signal.signal(number, interrupt) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
