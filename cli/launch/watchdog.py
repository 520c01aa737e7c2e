"""Wakes paused peers if their launcher is killed and can no longer do so itself.

This file is also the watchdog's program, started by its path: it needs nothing but Python itself.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

__all__ = ["Watchdog", "start_of", "wake_orphans"]

# By itself: neither the working directory nor what else is installed can stand in its way.
_PROGRAM: Final = (sys.executable, "-I", "-S", str(Path(__file__).resolve()))


class Watchdog:
    """A process that outlives this one, and then wakes the peers that it was told of.

    It learns of the launcher's end from a pipe that only the launcher holds open: the system
    closes it, however the launcher ends.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            _PROGRAM,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Neither what is typed at the terminal nor what is sent to the launcher's group is
            # meant for it; nor does it keep anybody's folder busy.
            start_new_session=True,
            cwd="/",
        )

    def watch_over(self, pid: int) -> None:
        """Tell it of a process that was just started, before that is first paused.

        Args:
            pid: Of a child of this process, which is not reaped yet.
        """
        pipe = self._process.stdin
        assert pipe is not None
        # Without a watchdog, a run goes on as well as one without faults would.
        with suppress(BrokenPipeError):
            pipe.write(f"{pid} {start_of(pid)}\n".encode())
            pipe.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(BrokenPipeError):
            self._process.communicate()


def start_of(pid: int) -> str:
    """When a process started, which tells it from a later one of the same number.

    Returns:
        Something to compare; empty where there is no such process.
    """
    with suppress(OSError):
        # What comes after its name, which may hold anything; ticks since the machine started.
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    command = ("ps", "-o", "lstart=", "-p", str(pid))
    with suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return ""


def wake_orphans(lines: Iterable[str]) -> None:
    """Wait until nothing more comes, and wake all processes that came and are still the same.

    Args:
        lines: The number of each, and when it started.
    """
    peers = dict(line.strip().partition(" ")[::2] for line in lines)
    for pid, start in peers.items():
        if start and start_of(int(pid)) == start:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(pid), signal.SIGCONT)


if __name__ == "__main__":
    wake_orphans(sys.stdin)
