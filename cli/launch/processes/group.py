"""The processes of a run: started, paused, stopped, and started again."""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, NamedTuple

from ..job import PROGRAM, Place
from .fork_server import ForkedProcess, ForkServer, environment

__all__ = ["Leftover", "ProcessGroup", "watchdog"]


class Leftover(NamedTuple):
    """A process that a peer's process has started, and that outlives it."""

    peer: str
    pid: int
    name: str


class ProcessGroup:
    """The peers' processes, numbered as they were first started.

    Args:
        places: Where peers write, and how they are started; nothing is started yet.
        watchdog: Wakes paused peers if this process is killed.
        server: Peers are forked from it, where they are those of ``rumor``.
    """

    def __init__(
        self,
        places: Iterable[Place],
        watchdog: "subprocess.Popen[bytes] | None" = None,
        server: ForkServer | None = None,
    ) -> None:
        self.places = list(places)
        """Of the last life of each."""
        self.processes: list[subprocess.Popen[bytes] | ForkedProcess] = []
        """In the same order."""
        self._held: dict[int, set[str]] = {}
        self._sessions: dict[int, str] = {}
        self._watchdog = watchdog
        self._server = server

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
        self._ask(index, signal.SIGTERM)

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

    def leave_all(self, number: int = signal.SIGTERM) -> None:
        """Ask all that run to leave by a signal, paused ones too, which are woken to hear it."""
        for index in range(len(self.processes)):
            self._ask(index, number)
        self.release_all()

    def _ask(self, index: int, number: int) -> None:
        # Here, because it takes torch along.
        from ....train.storage.incarnation import is_held_by

        process, folder = self.processes[index], self.places[index].folder
        if process.poll() is not None:
            return
        if is_held_by(folder, process.pid):
            # A peer leaves in order, which takes it what it has started, such as loaders of data.
            process.send_signal(number)
            return
        # A shell around the script would not pass it on; outside of `with Peer`, all of a script
        # gets it, as from a terminal.
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            process.send_signal(number)  # a fork that has no session of its own yet

    def tell_dead(self, lives: Sequence[tuple[str, int]]) -> None:
        """Tell all that run that these lives are over, which did not say so themselves."""
        from ....train.runtime.telling.deaths import note_death

        for index, place in enumerate(self.places):
            if self.runs(index):
                for id, incarnation in lives:
                    # If the notice cannot be written, the others notice the silence later.
                    with suppress(OSError):
                        note_death(place.folder, id, incarnation)

    def leftovers(self) -> list[Leftover]:
        """Processes of these sessions that still run after all peers have ended."""
        give_up_s = time.monotonic() + _GRACE_S
        while (found := list(self._in_sessions())) and time.monotonic() < give_up_s:
            time.sleep(_GRACE_S / 20)
        return found

    def _in_sessions(self) -> Iterator[Leftover]:
        for path in Path("/proc").glob("[0-9]*/stat"):
            # The name stands in brackets, and may hold any.
            with suppress(OSError, ValueError):
                before, _, after = path.read_text(errors="replace").rpartition(")")
                state, _, _, session = after.split()[:4]
                if state not in "ZX" and int(session) in self._sessions:
                    number, _, name = before.partition(" (")
                    yield Leftover(self._sessions[int(session)], int(number), name)

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

    def _start(self, place: Place) -> "subprocess.Popen[bytes] | ForkedProcess":
        # A later life goes on in the log of the one before.
        with open(place.folder / "log.txt", "ab") as log:
            process = self._forked(place, log) or subprocess.Popen(
                place.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_variables(place),
                # A session of its own, or the terminal would send its Ctrl-C to the peers too, and
                # they would take the launcher's for the second one.
                start_new_session=True,
            )
        self._sessions[process.pid] = place.id
        try:
            if self._watchdog is not None and self._watchdog.stdin is not None:
                # Without a watchdog, a run goes on as well as one without faults would.
                with suppress(BrokenPipeError):
                    self._watchdog.stdin.write(f"{process.pid}\n".encode())
            # For users who want to stop or kill this one peer.
            (place.folder / "pid").write_text(f"{process.pid}\n")
        except BaseException:
            # It is on no list yet, so nobody else could end it.
            process.kill()
            process.wait()
            raise
        return process

    def _forked(self, place: Place, log: IO[bytes]) -> ForkedProcess | None:
        program, arguments = place.command[: len(_PYTHON)], place.command[len(_PYTHON) :]
        if self._server is None or program != _PYTHON:
            return None
        return self._server.start(arguments, log, _variables(place))


_GRACE_S: Final = 2.0
"""How long what a script has started may take to notice that the script is gone."""

_PYTHON: Final = PROGRAM[:-1]
"""What runs ``rumor``."""


def _variables(place: Place) -> dict[str, str]:
    return environment() | dict(place.variables)


_WAKE: Final = 'while read -r pid; do pids="$pids $pid"; done; kill -CONT $pids; exit 0'

# Unlike SIGCONT, this must not reach another process that has got the number of a peer.
_END: Final = (
    'while read -r pid; do pids="$pids $pid"; done; for pid in $pids; do '
    "tr '\\0' '\\n' 2>/dev/null </proc/$pid/environ | grep -q ^RUMOR_ID= && kill -TERM $pid; "
    "done; exit 0"
)


def watchdog(number: signal.Signals = signal.SIGCONT) -> "subprocess.Popen[bytes]":
    """Start a shell that outlives this process, and then wakes the peers that it was told of, or
    asks them to leave.

    It learns of the launcher's end from its stdin, a pipe that only the launcher holds open: the
    system closes it, however the launcher ends. To a process that is not paused, and to another one
    that has got the number of a peer, SIGCONT does nothing.

    Args:
        number: The signal by which it does so, SIGCONT or SIGTERM.

    Returns:
        The shell, which reads a process number in each line.

    Raises:
        OSError: It cannot be started.
    """
    return subprocess.Popen(
        ("/bin/sh", "-c", _WAKE if number is signal.SIGCONT else _END),
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Neither what is typed at the terminal nor what is sent to the launcher's group is meant
        # for it; nor does it keep anybody's folder busy.
        start_new_session=True,
        cwd="/",
    )
