"""A connection to the agent of one machine, by ssh."""

import json
import shlex
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from ...gossip.errors import ConfigError
from .hosts import Host

__all__ = ["Connection", "ssh_command"]

_OPTIONS: Final = (
    # No user can type a password for each of many machines.
    *("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15"),
    # Detects a lost machine within a minute.
    *("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"),
)

_AGENT: Final = "-P -m rumor.cli.cluster.agent"

_ERRORS_MAX: Final = 20
_CLOSE_S: Final = 5.0


def ssh_command(ssh: str, host: Host) -> list[str]:
    """Return the command that starts the agent on a machine."""
    try:
        words = shlex.split(ssh)
    except ValueError as error:
        raise ConfigError(f"ssh is {ssh!r}: {error}") from None
    if not words:
        raise ConfigError("ssh is empty: name a command, such as ssh")
    words += _OPTIONS
    if host.python is not None:
        script = f"exec {shlex.quote(host.python)} {_AGENT}"
    else:
        own = shlex.quote(sys.executable)
        script = f"test -x {own} && exec {own} {_AGENT}; exec python3 {_AGENT}"
    # Quoted for sh, whatever the user's shell there is.
    return [*words, host.name, f"sh -c {shlex.quote(script)}"]


class Connection:
    """Orders to an agent, and its news."""

    def __init__(self, host: Host, ssh: str) -> None:
        self.host = host
        words = ssh_command(ssh, host)
        self._name = words[0]
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Without a session of its own, ssh would get the terminal's Ctrl-C, too.
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(f"--ssh: {words[0]}: {error.strerror or error}") from None
        self._errors: deque[str] = deque(maxlen=_ERRORS_MAX)
        self._said = threading.Lock()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def say(self, **order: Any) -> None:
        """Send an order; if it is lost, so is the connection."""
        stdin = self._process.stdin
        with self._said, suppress(OSError, ValueError):
            if stdin is not None:
                stdin.write(json.dumps(order).encode() + b"\n")
                stdin.flush()

    def news(self) -> Iterator[dict[str, Any]]:
        """Yield the agent's messages, until the connection ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(ValueError):
                told = json.loads(line)
                if isinstance(told, dict):
                    yield told
                    continue
            # For instance, the greeting of a shell.
            self._errors.append(line.decode(errors="replace").strip())

    def why(self) -> str:
        """Return why it has ended, as far as known."""
        status = self._process.wait()
        self._listener.join(_CLOSE_S)
        said = next((line for line in reversed(self._errors) if line), "")
        return said or f"{self._name} ended with status {status}"

    def end(self) -> None:
        """End it: messages sent before that can still be read."""
        with self._said, suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End it, and read no more."""
        self.end()
        self._listener.join()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line.decode(errors="replace").strip())
