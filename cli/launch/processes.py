"""The processes of a run: started, paused, stopped, and started again.

Each outlives the launcher. As no process could continue a paused peer then, each asks the kernel
for a signal at its parent's death.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from .config import PROGRAM, Place
from .forking import Forked, begin_forking, environment, run_rumor, signal_at_parents_death

__all__ = ["ProcessGroup"]

# Pool workers and resource trackers notice within this time that their parent has ended.
_GRACE_S: Final = 2.0


class ProcessGroup:
    """The peers' processes, numbered by their first start.

    Scripts get the signal *orphaned* when this process has died: to continue, or to leave.
    """

    def __init__(self, places: Iterable[Place], orphaned: int = signal.SIGCONT) -> None:
        self.places = list(places)
        """Place of the last incarnation of each."""
        self.processes: list[subprocess.Popen[bytes] | Forked] = []
        """Processes in the same order."""
        self._held: dict[int, set[str]] = {}
        self._sessions: dict[int, str] = {}
        self._orphaned = orphaned

    def start(self) -> None:
        """Start all.

        Raises:
            OSError: A process could not be started; those before it run.
        """
        for place in self.places:
            self.processes.append(self._start(place))

    def add(self, place: Place) -> None:
        """Start one more process."""
        self.processes.append(self._start(place))
        self.places.append(place)

    def restart(self, index: int, place: Place) -> None:
        """Restart a process that has ended, from another place."""
        self.processes[index] = self._start(place)
        self.places[index] = place
        self._held.pop(index, None)

    def _start(self, place: Place) -> "subprocess.Popen[bytes] | Forked":
        log, env = place.folder / "log.txt", environment() | dict(place.variables)
        process: subprocess.Popen[bytes] | Forked
        python, (module, *told) = place.command[:3], place.command[3:] or ("",)
        if python == PROGRAM[:3] and module.startswith("rumor."):
            begin_forking()
            process = Forked(partial(run_rumor, told, module), log, env)
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
                    preexec_fn=partial(signal_at_parents_death, self._orphaned),
                )
        try:
            # For users who want to stop or kill this one peer.
            (place.folder / "pid").write_text(f"{process.pid}\n")
        except BaseException:
            # It is on no list yet, so no other code could end it.
            process.kill()
            process.wait()
            raise
        self._sessions[process.pid] = place.id
        return process

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
        from ...train.runtime.telling.events import note_death

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

    def leftovers(self) -> list[str]:
        """Name the processes that scripts started and that outlive all peers, on Linux."""
        give_up_s = time.monotonic() + _GRACE_S
        while (found := self._in_sessions()) and time.monotonic() < give_up_s:
            time.sleep(_GRACE_S / 20)
        return found

    def _in_sessions(self) -> list[str]:
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            # A process may end between two lines; the command line of a dead one is empty.
            with suppress(OSError):
                id = self._sessions.get(os.getsid(int(path.name)))
                if id is not None and (path / "cmdline").read_bytes():
                    name = (path / "comm").read_text(errors="replace").strip()
                    found.append(f"{name} (process {path.name}) of {id}")
        return found
