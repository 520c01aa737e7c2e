"""Peers of a task as forks of a process that has imported everything before.

A fresh peer spends about three seconds of a core on imports. The parent of the forks imports this
module, which then imports the rest. In any other process it imports the standard library alone, so
that the parent begins before the launcher reads its arguments.
"""

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing import forkserver
from pathlib import Path
from typing import Final

__all__ = ["Forked", "begin_forking", "environment", "run_rumor", "signal_at_parents_death"]

_PROCESSES: Final = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([__name__])


def begin_forking() -> None:
    """Start importing in the parent process of forked peers, in the background."""
    before = dict(os.environ)
    # A file types.py in the working directory would shadow Python's own.
    os.environ.update(environment(), PYTHONSAFEPATH="1")
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)


def environment() -> dict[str, str]:
    """Return the environment of a peer's process."""
    # Peers share this machine: with a thread per core each, they would compete for the cores.
    return {"OMP_NUM_THREADS": "1", **os.environ}


_LIBC: Final = ctypes.CDLL(None)
_PR_SET_PDEATHSIG: Final = 1


def signal_at_parents_death(number: int) -> None:
    """Let this process get a signal when its parent has died, on Linux."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, number)


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

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


def _begin(run: Callable[[], object], log: Path, env: Mapping[str, str], folder: Path) -> None:
    """Become a process as if started by a command."""
    gc.enable()
    os.setsid()
    signal_at_parents_death(signal.SIGCONT)
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


def run_rumor(arguments: Sequence[str], module: str = "rumor.cli") -> None:
    """Run ``rumor``, or another module's ``main``, with these arguments, in a fork."""
    sys.argv = ["rumor", *arguments]
    import_module(module).main()


def _preload() -> None:
    # It only imports: it has no second thread and touches no GPU, so that forks begin clean.
    # Closing the terminal would end it, and the launcher would not learn how peers end.
    with suppress(OSError):
        os.setsid()
    # Forks would keep it alive after the launcher's death, and get no signal.
    signal_at_parents_death(signal.SIGTERM)
    # Imported modules hold no garbage, and pages that a collection writes to would no longer be
    # shared.
    gc.disable()
    for module in (
        *("rumor.cli.app", "rumor.cli.commands.peer", "rumor.train.loop.trainer"),
        # Parsed options, data read from a table, and the first step of an optimizer import these.
        *("typer._adapters", "typer._click.decorators", "numpy.ma", "numpy.ctypeslib"),
        *("torch._dynamo", "torch.profiler._cupti_monitor"),
    ):
        # A fork that needs it will report the error.
        with suppress(Exception):
            import_module(module)
    gc.freeze()


if any("multiprocessing.forkserver" in argument for argument in sys.orig_argv):
    _preload()
