"""One machine of a run on several: its peers, and the ssh to the agent that starts them."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

from ...gossip.errors import ConfigError
from ...gossip.transport.addresses import PORT, PORT_MAX, is_loopback, join_address
from .hosts import Host

__all__ = ["Machine", "machines_of"]

_OPTIONS: Final = (
    # No user can type a password for each of many machines.
    *("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15"),
    # Detects a lost machine within a minute.
    *("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"),
)

_AGENT: Final = "-P -m rumor.cli.cluster.agent"

_CLOSE_S: Final = 5.0


class Machine:
    """One machine and its peers; once connected, orders to its agent, and news of it."""

    def __init__(self, host: Host, peers: range, port: int) -> None:
        self.host, self.peers = host, peers
        self.places = [(host.address, port + local) for local in range(len(peers))]
        """Address and port of each peer."""

    @property
    def bind(self) -> str:
        """The host to bind, without brackets."""
        if is_loopback(join_address(self.host.address, "1")):
            return "127.0.0.1" if self.host.address == "localhost" else self.host.address
        return "::" if ":" in self.host.address else "0.0.0.0"

    def folder(self, out: Path, id: str) -> str:
        """Return the folder of a peer there, for a run in the folder *out*."""
        # Another folder than that of the copies, as the machine may be this one.
        return str(out / "hosts" / self.host.name / id)

    def command(self, ssh: str) -> list[str]:
        """Return the command that starts the agent."""
        try:
            words = shlex.split(ssh)
        except ValueError as error:
            raise ConfigError(f"ssh is {ssh!r}: {error}") from None
        if not words:
            raise ConfigError("ssh is empty: name a command, such as ssh")
        words += _OPTIONS
        if self.host.python is not None:
            script = f"exec {shlex.quote(self.host.python)} {_AGENT}"
        else:
            own = shlex.quote(sys.executable)
            script = f"test -x {own} && exec {own} {_AGENT}; exec python3 {_AGENT}"
        # Quoted for sh, whatever the user's shell there is.
        return [*words, self.host.name, f"sh -c {shlex.quote(script)}"]

    def connect(self, ssh: str) -> None:
        """Start the agent."""
        words = self.command(ssh)
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
        """Return why the connection has ended, as far as known."""
        status = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").split("\n")
        last = next(filter(None, map(str.strip, reversed(said))), self._last)
        return last or f"{self._name} ended with status {status}"

    def end(self) -> None:
        """End the connection: messages sent before that can still be read."""
        with suppress(OSError):
            self._orders.close()
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End the connection, and read no more."""
        self.end()
        self._news.close()
        self._errors.close()


def machines_of(hosts: Sequence[Host], port: int | None) -> list[Machine]:
    """Number the peers consecutively."""
    made, before = list[Machine](), 0
    for host in hosts:
        first = host.listen or port or PORT
        if (last := first + host.slots - 1) > PORT_MAX:
            raise ConfigError(f"{host.name}: its last peer would listen at port {last}")
        made.append(Machine(host, range(before, before + host.slots), first))
        before += host.slots
    return made
