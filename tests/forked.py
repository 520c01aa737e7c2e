"""Processes in which torch is loaded already: they begin at once, and cost no import."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from rumor.cli import main
from rumor.cli.launch.processes import fork_server, group

__all__ = ["PROCESSES", "Forked", "forked", "forked_peers"]

PROCESSES = multiprocessing.get_context("forkserver")
"""Of whoever runs a target of its own in them; the module is imported once, and not by each."""

# torch loads the second at the first step of an optimizer.
PROCESSES.set_forkserver_preload(["rumor.train", "torch._dynamo"])


class Forked:
    """What of ``subprocess.Popen`` tests and the launcher need.

    Args:
        arguments: ``rumor`` or the path of a script, and what comes after it.
        log: What it prints is appended to this file.
        env: All environment variables.
    """

    def __init__(self, arguments: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        told = tuple(arguments), log.absolute(), dict(env), Path.cwd()
        self._process = PROCESSES.Process(target=_run, args=told)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Exit status, minus the signal's number for a killed one; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Exit status, once it has ended; None where it goes on for longer."""
        self._process.join(timeout_s)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def forked(log: Path, *arguments: str) -> Forked:
    """Start ``rumor`` or a script in this folder."""
    return Forked(arguments, log, os.environ)


@contextmanager
def forked_peers(real: Sequence[str] = ()) -> Iterator[None]:
    """Let a launcher in this process fork its peers from one that has loaded torch.

    Args:
        real: Peers that are started as usual.
    """

    def start(command: Sequence[str], **given: Any) -> Forked | subprocess.Popen[bytes]:
        as_usual = not {f"--id={peer}" for peer in real}.isdisjoint(command)
        return subprocess.Popen(command, **given) if as_usual else _peer(command, **given)

    stand_in = SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group, "subprocess", stand_in)
        patch.setattr(fork_server, "fork_server", nullcontext)
        yield


def _peer(
    command: Sequence[str],
    *,
    stdin: int,
    stdout: IO[bytes],
    stderr: IO[bytes],
    env: Mapping[str, str],
    start_new_session: bool,
) -> Forked:
    assert (stdin, stderr, start_new_session) == (subprocess.DEVNULL, stdout, True)
    if command[1].endswith(".py"):
        return Forked(command[1:], Path(stdout.name), env)
    python = (sys.executable, "-P", "-m", "rumor.cli")
    assert tuple(command[: len(python)]) == python
    return Forked(("rumor", *command[len(python) :]), Path(stdout.name), env)


def _run(arguments: Sequence[str], log: Path, env: Mapping[str, str], folder: Path) -> None:
    os.setsid()
    # As in a process that a launcher starts, though these tests may run where SIGINT is ignored, as
    # shells let it be in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    sys.argv = list(arguments)
    if arguments[0] == "rumor":
        main()
    else:
        run_path(arguments[0], run_name="__main__")
