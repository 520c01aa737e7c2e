"""Start the peers' processes, watch them to their end, and pass a Ctrl-C on.

The launcher is no part of the swarm. Peers find one another through files, exchange nothing with
it, and go on to the end if it dies; killing one of them is a machine's death to the others.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from .plan import Place
from .watch import Sight, Watch

__all__ = ["Display", "Interrupt", "supervise"]

LOOK_S = 0.2

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Display(Protocol):
    """Shows how a run goes."""

    def show(self, sights: Sequence[Sight], news: Sequence[str], elapsed_s: float) -> None:
        """Show where the peers are, and what has happened to some of them."""


class Interrupt:
    """What a user who presses Ctrl-C is answered: at first peers leave, then they are killed.

    Args:
        processes: The peers.
    """

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self._processes = processes
        self.count = 0

    def __call__(self, number: int, frame: object) -> None:
        """Handle a signal."""
        self.count += 1
        if self.count == 1:
            print(
                "\nstopping: peers hand their weight on and leave; once more kills them",
                file=sys.stderr,
            )
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM if self.count == 1 else signal.SIGKILL)


def supervise(places: Sequence[Place], steps: int, display: Display) -> list[Sight]:
    """Start a process for each place, and watch them until the last one has ended.

    Args:
        places: Where peers write, and how they are started.
        steps: That each is to take.
        display: Shows it.

    Returns:
        How each was seen to end, in the order of *places*.

    Raises:
        OSError: A process could not be started; those that were are killed.
    """
    processes: list[subprocess.Popen[bytes]] = []
    interrupt = Interrupt(processes)
    started_s = time.monotonic()
    try:
        with _handling(interrupt):
            for place in places:
                processes.append(_start(place))
            watch = Watch(places, processes, steps)
            while not watch.over:
                time.sleep(LOOK_S)
                news = watch.update()
                display.show(watch.sights, news, time.monotonic() - started_s)
    except BaseException:
        for process in processes:
            process.kill()
            process.wait()
        raise
    return watch.sights


def _start(place: Place) -> subprocess.Popen[bytes]:
    with open(place.folder / "log.txt", "wb") as log:
        process = subprocess.Popen(
            place.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_environment(os.environ),
            # A session of its own, or the terminal would send its Ctrl-C to the peers too, and
            # they would take the launcher's for the second one.
            start_new_session=True,
        )
    # For whoever wants to stop or kill this one peer.
    (place.folder / "pid").write_text(f"{process.pid}\n")
    return process


@contextmanager
def _handling(interrupt: Interrupt) -> Iterator[None]:
    before = {number: signal.signal(number, interrupt) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _environment(inherited: Mapping[str, str]) -> dict[str, str]:
    # Peers share this machine: with a thread per core each, they would fight over the cores.
    return {"OMP_NUM_THREADS": "1", **inherited}
