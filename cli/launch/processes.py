"""The processes of a run: started, stopped, started again, and watched to their end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Protocol

from .folder import Place
from .monitor import Monitor, PeerView
from .watchdog import Watchdog

__all__ = [
    "Display",
    "Faults",
    "Interrupt",
    "ProcessGroup",
    "supervise",
]


class ProcessGroup:
    """The peers' processes, numbered as they were first started.

    Args:
        places: Where peers write, and how they are started; nothing is started yet.
        watchdog: Wakes paused peers if this process is killed.
    """

    def __init__(self, places: Iterable[Place], watchdog: Watchdog | None = None) -> None:
        self.places = list(places)
        """Of the last life of each."""
        self.processes: list[subprocess.Popen[bytes]] = []
        """In the same order."""
        self._held: dict[int, set[str]] = {}
        self._watchdog = watchdog

    def start(self) -> None:
        """Start all.

        Raises:
            OSError: A process could not be started; those before it run.
        """
        for place in self.places:
            self.processes.append(self._start(place))

    def add(self, place: Place) -> int:
        """Start one more, and say which number it has.

        Raises:
            OSError: It could not be started.
        """
        self.processes.append(self._start(place))
        self.places.append(place)
        return len(self.places) - 1

    def restart(self, index: int, place: Place) -> None:
        """Start one that has ended again, from another place.

        Raises:
            OSError: It could not be started.
        """
        self.processes[index] = self._start(place)
        self.places[index] = place
        self._held.pop(index, None)

    def runs(self, index: int) -> bool:
        """Whether its process is there."""
        return self.processes[index].poll() is None

    def kill(self, index: int) -> None:
        """End one at once, as by a power cut of its machine."""
        self.processes[index].kill()
        self.processes[index].wait()

    def leave(self, index: int) -> None:
        """Ask one to leave."""
        self.processes[index].terminate()

    def hold(self, index: int, why: str) -> None:
        """Pause one, until every reason to hold it is released."""
        # In this order, so that a `release_all` in between finds it paused.
        self.processes[index].send_signal(signal.SIGSTOP)
        self._held.setdefault(index, set()).add(why)

    def release(self, index: int, why: str) -> None:
        """Take away one reason to hold a peer; with the last one, it goes on."""
        held = self._held.get(index, set())
        if why in held:
            held.remove(why)
            if not held:
                self.processes[index].send_signal(signal.SIGCONT)

    def holds(self, index: int) -> Set[str]:
        """All reasons why it is paused."""
        return frozenset(self._held.get(index, ()))

    def leave_all(self) -> None:
        """Ask all that run to leave, paused ones too, which are woken to hear it."""
        for process in self.processes:
            process.terminate()
        self.release_all()

    def release_all(self) -> None:
        """Let all paused peers go on."""
        for index, held in self._held.items():
            for why in sorted(held):
                self.release(index, why)

    def kill_all(self) -> None:
        """End all that run at once."""
        for process in self.processes:
            process.kill()

    def wait(self) -> None:
        """Wait until all have ended."""
        for process in self.processes:
            process.wait()

    def _start(self, place: Place) -> subprocess.Popen[bytes]:
        # A later life goes on in the log of the one before.
        with open(place.folder / "log.txt", "ab") as log:
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
        try:
            if self._watchdog is not None:
                self._watchdog.watch_over(process.pid)
            # For users who want to stop or kill this one peer.
            (place.folder / "pid").write_text(f"{process.pid}\n")
        except BaseException:
            # It is on no list yet, so nobody else could end it.
            process.kill()
            process.wait()
            raise
        return process


def _environment(inherited: Mapping[str, str]) -> dict[str, str]:
    # Peers share this machine: with a thread per core each, they would fight over the cores.
    return {"OMP_NUM_THREADS": "1", **inherited}


LOOK_S = 0.2

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Display(Protocol):
    """Shows how a run goes."""

    def show(self, views: Sequence[PeerView], news: Sequence[str], elapsed_s: float) -> None:
        """Show where the peers are, and what has happened to some of them."""


class Faults(Protocol):
    """The part of `FaultInjector` that supervising needs."""

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
    """Handles Ctrl-C: the first one makes peers leave, the second kills them."""

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
        self.count = 0

    def __call__(self, number: int, frame: object) -> None:
        """Handle a signal."""
        self.count += 1
        if self.count > 1:
            self._group.kill_all()
            return
        print(
            "\nstopping: peers hand their weight on and leave; once more kills them",
            file=sys.stderr,
        )
        self._group.leave_all()


def supervise(
    group: ProcessGroup, monitor: Monitor, display: Display, faults: Faults | None = None
) -> list[PeerView]:
    """Start all processes, and watch them until the last one has ended.

    Args:
        group: The peers, none of which was started yet.
        monitor: Sees them.
        display: Shows it.
        faults: What is done to them.

    Returns:
        How each was seen to end, in the order of the group.

    Raises:
        OSError: A process could not be started; those that were are killed.
    """
    interrupt = Interrupt(group)
    started_s = time.monotonic()
    try:
        with _handling(interrupt):
            group.start()
            while not monitor.over or (faults is not None and faults.will_revive):
                news = _wait(faults, group, interrupt) + monitor.update()
                display.show(monitor.views, news, time.monotonic() - started_s)
    except BaseException:
        group.kill_all()
        group.wait()
        raise
    return monitor.views


def _wait(faults: Faults | None, group: ProcessGroup, interrupt: Interrupt) -> list[str]:
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
                group.release_all()
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
