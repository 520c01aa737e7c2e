"""The processes of a run: started, paused, stopped, and started again.

A fresh peer spends about three seconds of a core on imports. Peers of a task are forked from a
process that has imported everything before (`preload`); each is in a session of its own and
outlives the launcher.
"""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from typing import Final

from .config import PROGRAM, Place

__all__ = ["Forked", "ProcessGroup", "begin_forking"]

_PROCESSES: Final = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([f"{__package__}.preload"])


def begin_forking() -> None:
    """Start importing in the parent process of forked peers, in the background."""
    before = dict(os.environ)
    # A file types.py in the working directory would shadow Python's own.
    os.environ.update(_environment(), PYTHONSAFEPATH="1")
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)


def _environment() -> dict[str, str]:
    # Peers share this machine: with a thread per core each, they would compete for the cores.
    return {"OMP_NUM_THREADS": "1", **os.environ}


class Forked:
    """The part of ``subprocess.Popen`` that launching needs."""

    def __init__(self, run: Callable[[], object], log: Path, env: Mapping[str, str]) -> None:
        told = (run, log.absolute(), dict(env), Path.cwd())
        self._process = _PROCESSES.Process(target=_begin, args=told)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Exit status, minus the signal's number for a killed one; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        """Exit status, once it has ended; None on timeout."""
        self._process.join(timeout)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


def _begin(run: Callable[[], object], log: Path, env: Mapping[str, str], folder: Path) -> None:
    """Become a process as if started by a command."""
    gc.enable()
    os.setsid()
    # The launcher may run with SIGINT ignored, as background processes of shells do.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    # Python reseeds its own random numbers in a fork; numpy's would be equal in all.
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()
    with suppress(OSError):
        # The name in ps and top; otherwise all would have the name of their parent.
        Path("/proc/self/comm").write_text(f"rumor {env.get('RUMOR_ID', 'peer')}"[:15])
    run()


def _rumor(arguments: Sequence[str]) -> None:
    from .. import main

    sys.argv = ["rumor", *arguments]
    main()


class ProcessGroup:
    """The peers' processes, numbered by their first start."""

    def __init__(self, places: Iterable[Place]) -> None:
        self.places = list(places)
        """Place of the last incarnation of each."""
        self.processes: list[subprocess.Popen[bytes] | Forked] = []
        """Processes in the same order."""
        self._held: dict[int, set[str]] = {}

    def start(self) -> None:
        """Start all.

        Raises:
            OSError: A process could not be started; those before it run.
        """
        for place in self.places:
            self.processes.append(_start(place))

    def add(self, place: Place) -> None:
        """Start one more process.

        Raises:
            OSError: It could not be started.
        """
        self.processes.append(_start(place))
        self.places.append(place)

    def restart(self, index: int, place: Place) -> None:
        """Restart a process that has ended, from another place.

        Raises:
            OSError: It could not be started.
        """
        self.processes[index] = _start(place)
        self.places[index] = place
        self._held.pop(index, None)

    def runs(self, index: int) -> bool:
        """True if its process runs."""
        return self.processes[index].poll() is None

    def kill(self, index: int) -> None:
        """Kill a process, like a power cut of its machine."""
        self.processes[index].kill()
        self.processes[index].wait()

    def hold(self, index: int, why: str) -> None:
        """Pause a process, until every reason to hold it is released."""
        # In this order, so that a `release_all` in between finds it paused.
        self.processes[index].send_signal(signal.SIGSTOP)
        self._held.setdefault(index, set()).add(why)

    def release(self, index: int, why: str) -> None:
        """Drop one reason to hold a peer; without reasons, it continues."""
        held = self._held.get(index, set())
        if why in held:
            held.remove(why)
            if not held:
                self.processes[index].send_signal(signal.SIGCONT)

    def holds(self, index: int) -> Set[str]:
        """Return all reasons why it is paused."""
        return frozenset(self._held.get(index, ()))

    def leave_all(self, number: int = signal.SIGTERM) -> None:
        """Send all running peers a signal to leave; paused peers continue to receive it."""
        for index in range(len(self.processes)):
            self.leave(index, number)
        self.release_all()

    def leave(self, index: int, number: int = signal.SIGTERM) -> None:
        """Ask a peer to leave."""
        # Here, because it imports torch.
        from ...train.storage.incarnation import is_held_by

        process, folder = self.processes[index], self.places[index].folder
        if process.poll() is not None:
            return
        if is_held_by(folder, process.pid):
            # A peer leaves in order, and ends its child processes, such as data loaders.
            process.send_signal(number)
            return
        # A shell around the script would not pass on the signal; outside of `with Peer`, the whole
        # script gets it, as from a terminal.
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            process.send_signal(number)  # a fork that has no session of its own yet

    def tell_dead(self, lives: Sequence[tuple[str, int]]) -> None:
        """Tell all running peers that these incarnations ended without saying so."""
        from ...train.runtime.telling.deaths import note_death

        for index, place in enumerate(self.places):
            if self.runs(index):
                for id, incarnation in lives:
                    # If the notice cannot be written, the others notice the silence later.
                    with suppress(OSError):
                        note_death(place.folder, id, incarnation)

    def release_all(self) -> None:
        """Continue all paused peers."""
        for index, held in self._held.items():
            for why in sorted(held):
                self.release(index, why)

    def kill_all(self) -> None:
        """Kill all running processes."""
        for process in self.processes:
            process.kill()

    def wait(self) -> None:
        """Wait until all have ended."""
        for process in self.processes:
            process.wait()


_PYTHON: Final = PROGRAM[:-1]
"""Command that starts ``rumor``."""


def _start(place: Place) -> "subprocess.Popen[bytes] | Forked":
    log, env = place.folder / "log.txt", _environment() | dict(place.variables)
    process: subprocess.Popen[bytes] | Forked
    if place.command[: len(_PYTHON)] == _PYTHON:
        begin_forking()
        process = Forked(partial(_rumor, place.command[len(_PYTHON) :]), log, env)
    else:
        # A later incarnation appends to the log of the one before.
        with open(log, "ab") as file:
            process = subprocess.Popen(
                place.command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=env,
                # Without a session of its own, peers would get the terminal's Ctrl-C, too, and
                # would treat the launcher's as the second one.
                start_new_session=True,
            )
    try:
        # For users who want to stop or kill this one peer.
        (place.folder / "pid").write_text(f"{process.pid}\n")
    except BaseException:
        # It is on no list yet, so no other code could end it.
        process.kill()
        process.wait()
        raise
    return process
