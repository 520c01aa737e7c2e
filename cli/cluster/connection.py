"""A connection to the agent of one machine, by ssh."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from tempfile import TemporaryFile
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
        self._errors = TemporaryFile()
        self._last = ""
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                # Without a session of its own, ssh would get the terminal's Ctrl-C, too.
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            raise ConfigError(f"--ssh: {words[0]}: {error.strerror or error}") from None
        assert self._process.stdin and self._process.stdout
        self._orders, self._news = self._process.stdin, self._process.stdout

    def say(self, **order: Any) -> None:
        """Send an order; if it is lost, so is the connection."""
        text = json.dumps(order).encode() + b"\n"
        # Not buffered: a signal may come in between, and give another order.
        with suppress(OSError, ValueError):
            while text:
                text = text[os.write(self._orders.fileno(), text) :]

    def news(self) -> Iterator[dict[str, Any]]:
        """Yield the agent's messages, until the connection ends."""
        for line in self._news:
            with suppress(ValueError):
                told = json.loads(line)
                if isinstance(told, dict):
                    yield told
                    continue
            # For instance, the greeting of a shell.
            self._last = line.decode(errors="replace").strip() or self._last

    def why(self) -> str:
        """Return why it has ended, as far as known."""
        status = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").split("\n")
        last = next(filter(None, map(str.strip, reversed(said))), self._last)
        return last or f"{self._name} ended with status {status}"

    def end(self) -> None:
        """End it: messages sent before that can still be read."""
        with suppress(OSError):
            self._orders.close()
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End it, and read no more."""
        self.end()
        self._news.close()
        self._errors.close()
