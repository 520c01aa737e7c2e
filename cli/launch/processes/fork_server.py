"""A process that has imported torch, and from which peers are forked: they begin at once.

A fresh peer spends some three seconds of a core on imports, each for itself. Forks share them, and
the memory that they take. Like any peer, a fork is a process of its own, in a session of its own:
it outlives the server and the launcher.

The server imports and does nothing else: it has no second thread and touches no GPU, so that forks
begin clean. A task of the user's is imported by each fork for itself.
"""

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

__all__ = ["ForkServer", "ForkedProcess", "begun_early", "environment", "fork_server"]

_MODULES: Final = (
    *("rumor.cli.app", "rumor.cli.commands.peer", "rumor.train.loop.trainer"),
    # The first step of an optimizer imports it, and the first option that is read the other.
    *("torch._dynamo", "typer._adapters"),
)

_MESSAGE_BYTES_MAX: Final = 1 << 20
_POLL_S: Final = 0.02


def environment() -> dict[str, str]:
    """What peers find in their environment."""
    # They share this machine: with a thread per core each, they would fight over the cores.
    return {"OMP_NUM_THREADS": "1", **os.environ}


class ForkedProcess:
    """What launching needs of ``subprocess.Popen``.

    Args:
        server: Tells how it ended.
        pid: Its number.
        descriptor: A pidfd: signals meant for it never reach another process of that number.
    """

    def __init__(self, server: "ForkServer", pid: int, descriptor: int) -> None:
        self.pid = pid
        self._server = server
        self._descriptor = descriptor
        self._status: int | None = None

    def __del__(self) -> None:
        os.close(self._descriptor)

    def poll(self) -> int | None:
        """Exit status, minus the signal's number for a killed one; None while it runs."""
        if self._status is None:
            # Of a server that was killed, nobody hears how its forks end.
            is_over = not self._server.is_there and self._has_ended(0.0)
            self._status = self._server.status_of(self.pid)
            if self._status is None and is_over:
                self._status = 0
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Exit status, once it has ended.

        Raises:
            TimeoutError: It has not in time.
        """
        give_up_s = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if give_up_s is not None and time.monotonic() > give_up_s:
                raise TimeoutError(f"process {self.pid} still runs")
            if self._has_ended(_POLL_S):
                time.sleep(_POLL_S / 10)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def _has_ended(self, timeout_s: float) -> bool:
        return bool(select.select([self._descriptor], [], [], timeout_s)[0])


class ForkServer:
    """The launcher's end of a server, which is importing when this returns.

    Args:
        modules: What the forks share.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._statuses: dict[int, int] = {}
        self.is_there = True
        """Whether it still listens."""
        command = (sys.executable, "-P", "-m", __name__, str(theirs.fileno()), *modules)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command,
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=environment(),
                    start_new_session=True,
                )
        except BaseException:
            self._channel.close()
            raise

    def start(
        self, arguments: Sequence[str], log: IO[bytes], env: Mapping[str, str]
    ) -> ForkedProcess | None:
        """Fork a process that runs ``rumor`` with these arguments.

        Args:
            arguments: What comes after ``rumor``.
            log: Takes what it prints.
            env: All its environment variables.

        Returns:
            The process; None where the server cannot, and it is to be started as usual.
        """
        asked = {"arguments": list(arguments), "env": dict(env), "folder": str(Path.cwd())}
        try:
            socket.send_fds(self._channel, [json.dumps(asked).encode()], [log.fileno()])
            while self.is_there:
                told, descriptors = self._receive()
                if descriptors:
                    return ForkedProcess(self, told["pid"], descriptors[0])
        except OSError:
            self.is_there = False
        return None

    def status_of(self, pid: int) -> int | None:
        """How a fork has ended, as far as is known."""
        while self.is_there and select.select([self._channel], [], [], 0.0)[0]:
            self._receive()
        return self._statuses.get(pid)

    def close(self) -> None:
        """End the server; forks that still run go on."""
        self.is_there = False
        self._channel.close()
        # It may still be importing.
        self._process.kill()
        self._process.wait()

    def _receive(self) -> tuple[dict[str, Any], list[int]]:
        try:
            message, descriptors, *_ = socket.recv_fds(self._channel, _MESSAGE_BYTES_MAX, 1)
        except OSError:
            message, descriptors = b"", []
        if not message:
            self.is_there = False
            return {}, []
        told = json.loads(message)
        if "status" in told:
            self._statuses[told["pid"]] = told["status"]
        return told, descriptors


_begun: Final[list[ForkServer]] = []


@contextmanager
def begun_early() -> Iterator[None]:
    """Let a server import while arguments are still read, for the first who wants one."""
    if (server := _start()) is not None:
        _begun.append(server)
    try:
        yield
    finally:
        while _begun:
            _begun.pop().close()


@contextmanager
def fork_server() -> Iterator[ForkServer | None]:
    """Start a server where there can be one, on Linux, or take that which was begun early."""
    server = _begun.pop() if _begun else _start()
    try:
        yield server
    finally:
        if server is not None:
            server.close()


def _start() -> ForkServer | None:
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return ForkServer(_MODULES)
    except OSError:
        return None


def _serve(channel: socket.socket) -> tuple[dict[str, Any], int] | None:
    """Fork when asked to, and tell how forks end, until nobody is there to be told.

    Returns:
        In a fork, what it is to run, and the descriptor of its log; None in the server.
    """
    wakes, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    while True:
        waited: list[Any] = [channel, wakes]
        readable, _, _ = select.select(waited, [], [])
        if wakes in readable:
            os.read(wakes, 4096)
            _tell_ends(channel)
        if channel not in readable:
            continue
        message, logs, *_ = socket.recv_fds(channel, _MESSAGE_BYTES_MAX, 1)
        if not message:
            return None
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (wakes, woken):
                os.close(descriptor)
            return json.loads(message), logs[0]
        descriptor = os.pidfd_open(pid)
        socket.send_fds(channel, [json.dumps({"pid": pid}).encode()], [descriptor])
        for each in (descriptor, *logs):
            os.close(each)


def _tell_ends(channel: socket.socket) -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            status = os.waitstatus_to_exitcode(ended[1])
            channel.send(json.dumps({"pid": ended[0], "status": status}).encode())


def _run(asked: Mapping[str, Any], log: int) -> None:
    """Become a peer, as if started by the command."""
    gc.enable()
    os.setsid()
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["folder"])
    sys.argv = ["rumor", *asked["arguments"]]
    # Python's own random numbers begin anew in a fork; numpy's would be alike in all.
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()
    with suppress(OSError):
        # What ps and top show of it; all would be called as the server is.
        name = next((a for a in sys.argv if a.startswith("--id=")), "--id=peer")[5:]
        Path("/proc/self/comm").write_text(f"rumor {name}"[:15])

    from ... import main

    main()


def _begin(descriptor: int, modules: Sequence[str]) -> None:
    asked = None
    with socket.socket(fileno=descriptor) as channel, suppress(ConnectionError):
        # There is no garbage among what is imported, and to look for it takes a sixth of the time.
        # Pages that a collection writes to would not be shared any more.
        gc.disable()
        for module in modules:
            # Who needs it will say so.
            with suppress(Exception):
                importlib.import_module(module)
        gc.freeze()
        asked = _serve(channel)
    if asked is not None:
        _run(*asked)


if __name__ == "__main__":
    _begin(int(sys.argv[1]), sys.argv[2:])
