"""Peers on several machines, as the launcher sees them: started, heard of, stopped.

What peers write there is copied here as it grows, so that a run on many machines leaves the folder
of a run on one.
"""

import base64
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ...gossip.errors import ConfigError
from ...gossip.protocol.rule import requirements_of
from ...gossip.transport.addresses import is_loopback, join_address
from ...train.runtime.script.cluster import joins
from ..errors import printable
from ..launch.folder import Place
from ..launch.monitor import Life
from ..launch.script.config import ScriptConfig
from ..launch.script.folder import variables
from .agent import MODEL, versions
from .connection import Connection
from .hosts import Host

__all__ = ["Fleet", "Station", "connect", "remote_folder", "stations", "told_by_machine"]

PORT: Final = 7700
_PING_S: Final = 5.0
_KILL_S: Final = 5.0
_RETRY_S: Final = 5.0
_GRACE_S: Final = 180.0
"""How long it is tried to reach a machine again whose connection was lost, beside what peers take
to leave: it may notice that later than this end."""

_MIRRORED: Final = ("log.txt", "metrics.jsonl", "peer.json", "life.json", "events.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """One machine, and which of the peers are there."""

    host: Host
    peers: tuple[int, ...]
    """Their numbers."""

    ports: tuple[int, ...]
    """Where they listen."""

    @property
    def bind(self) -> str:
        """The host to bind, without brackets."""
        if is_loopback(join_address(self.host.address, "1")):
            return "127.0.0.1" if self.host.address == "localhost" else self.host.address
        return "::" if ":" in self.host.address else "0.0.0.0"


def stations(hosts: Sequence[Host], port: int | None) -> tuple[Station, ...]:
    """Number the peers through; ports are those that they would have if all were free."""
    made, before = [], 0
    for host in hosts:
        first = host.listen or port or PORT
        peers = tuple(range(before, before + host.slots))
        ports = tuple(range(first, first + host.slots))
        made.append(Station(host=host, peers=peers, ports=ports))
        before += host.slots
    return tuple(made)


def remote_folder(out: Path, station: Station, id: str) -> Path:
    """Where a peer writes on its machine: elsewhere than the copies, should that be this one."""
    return out / "hosts" / station.host.name / id


def told_by_machine(
    config: ScriptConfig, out: Path, made: Sequence[Station]
) -> dict[int, dict[str, str]]:
    """The environment of each peer, by its number, beside what it inherits there."""
    places = [(s.host.address, port) for s in made for port in s.ports]
    spec = config.rule_spec
    together = spec is not None and requirements_of(spec.make()).fixed_members
    told: dict[int, dict[str, str]] = {}
    for station in made:
        host = station.host
        devices = (host.device or "").split(",")
        for local, (index, port) in enumerate(zip(station.peers, station.ports, strict=True)):
            device = devices[local % len(devices)]
            own = replace(config, device=device) if device else config
            found = variables(own, out, index, local)
            del found["RUMOR_RENDEZVOUS"]
            found |= {
                "RUMOR_OUT": str(remote_folder(out, station, found["RUMOR_ID"])),
                "RUMOR_FOUNDERS": str(config.peers if together else 1),
                "RUMOR_JOIN": ",".join(joins(places, (host.address, port))),
                "RUMOR_BIND": join_address(station.bind, str(port)),
                "RUMOR_ADVERTISE": join_address(host.address, str(port)),
                "PYTHONUNBUFFERED": "1",
            }
            if config.key is not None and config.roster is not None:
                # Files of that machine.
                found |= {"RUMOR_KEY": str(config.key), "RUMOR_ROSTER": str(config.roster)}
            told[index] = found | dict(host.variables)
    return told


def connect(
    made: Sequence[Station],
    ssh: str,
    out: Path,
    ids: Sequence[str],
    command: Sequence[str],
    script: str | None,
) -> tuple[list[Station], list[Connection]]:
    """Reach all machines, and see that each has what is needed.

    Args:
        made: Which peers are where.
        ssh: The command that runs another one there.
        out: The run's folder, on each of them.
        ids: Names of all peers.
        command: What is to be started there.
        script: The file among its words that must be there; None for none.

    Returns:
        The same with ports that are free there, and the connections in their order.

    Raises:
        ConfigError: One cannot be reached, or lacks something; all of these are named.
    """
    connections: list[Connection] = []
    try:
        for station in made:
            connections.append(Connection(station.host, ssh))
        for station, connection in zip(made, connections, strict=True):
            folders = [str(remote_folder(out, station, ids[i])) for i in station.peers]
            connection.say(
                check={
                    "dir": station.host.folder,
                    "command": list(command),
                    "script": script,
                    "folders": folders,
                    "host": station.bind,
                    "first": station.ports[0],
                    "count": len(station.peers),
                }
            )
        hellos = [_hello(connection) for connection in connections]
        pairs = zip(made, hellos, strict=True)
        problems = [f"{s.host.name}: {why}" for s, (_, whys) in pairs for why in whys]
        if problems:
            raise ConfigError("; ".join(problems))
    except BaseException:
        for connection in connections:
            connection.close()
        raise
    pairs = zip(made, hellos, strict=True)
    return [replace(s, ports=tuple(ports)) for s, (ports, _) in pairs], connections


def _hello(connection: Connection) -> tuple[list[int], list[str]]:
    """Free ports of a machine, and what is wrong there."""
    hello = next((told["hello"] for told in connection.news() if "hello" in told), None)
    if hello is None:
        return [], [connection.why()]
    wrong = [
        f"{name} is {hello[name]} there and {own} here"
        for name, own in versions().items()
        if hello[name] != own
    ]
    return hello["ports"], [*wrong, *hello["problems"]]


class _RemoteProcess:
    """One peer's process on another machine."""

    def __init__(self, fleet: "Fleet") -> None:
        self._fleet = fleet
        self.status: int | None = None

    def poll(self) -> int | None:
        """Exit status, minus the signal's number for a killed one; None as long as it runs, or
        nothing is known."""
        self._fleet.look()
        return self.status


class Fleet:
    """The processes of a run on several machines.

    Args:
        made: Which peers are where.
        connections: In the same order.
        ssh: By which a machine is reached again whose connection was lost.
        config: The run.
        out: Its folder, here and there.
        command: What starts a peer.
        models: Whether to bring the models here.
    """

    def __init__(
        self,
        made: Sequence[Station],
        connections: Sequence[Connection],
        ssh: str,
        config: ScriptConfig,
        out: Path,
        command: Sequence[str],
        *,
        models: bool,
    ) -> None:
        self._stations, self._connections = tuple(made), list(connections)
        self._ssh, self._config, self._out = ssh, config, out
        self._command, self._models = tuple(command), models
        self._told = told_by_machine(config, out, made)
        self.places = self._make_places()
        """Of all peers, in their order: where copies of their files are."""
        self.processes = [_RemoteProcess(self) for _ in self.places]
        """In the same order."""
        self.unreached: list[str] = []
        """Peers whose last files could not be had."""
        self._partial: dict[int, bytes] = {}
        self._torn: set[tuple[int, str]] = set()
        self._lines: deque[str] = deque()
        self._killed_s: float | None = None
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []

    def _make_places(self) -> list[Place]:
        ids = self._config.ids()
        return [
            Place(
                index=index,
                id=ids[index],
                folder=self._out / "peers" / ids[index],
                command=self._command,
                variables=self._told[index],
            )
            for station in self._stations
            for index in station.peers
        ]

    def start(self) -> None:
        """Start all.

        Raises:
            OSError: The folder for the copies cannot be made.
        """
        for place in self.places:
            place.folder.mkdir(parents=True)
            (place.folder / "log.txt").touch()
        for number, station in enumerate(self._stations):
            order = self._order(station)
            order |= {"command": list(self._command), "leave_s": self._config.leave_s}
            for peer in order["peers"]:
                peer["variables"] = self._told[peer["index"]]
            self._connections[number].say(start=order)
            self._run(self._follow, number)
        self._run(self._ping)

    def _order(self, station: Station) -> dict[str, Any]:
        """What an agent is told of its peers."""
        peers = [
            {
                "index": index,
                "id": self.places[index].id,
                "folder": str(remote_folder(self._out, station, self.places[index].id)),
            }
            for index in station.peers
        ]
        out = str(self._out / "hosts" / station.host.name)
        return {"dir": station.host.folder, "out": out, "models": self._models, "peers": peers}

    def leave_all(self, number: int = signal.SIGTERM) -> None:
        """Ask all that run to leave, by a signal."""
        for connection in self._connections:
            connection.say(leave=int(number))

    def tell_dead(self, lives: Sequence[Life]) -> None:
        """Tell all that run that these are dead."""
        for connection in self._connections if lives else ():
            connection.say(dead=list(lives))

    def kill_all(self) -> None:
        """End all that run at once; a machine that does not answer then is waited for no longer."""
        if self._killed_s is None:
            self._killed_s = time.monotonic()
        for connection in self._connections:
            connection.say(kill=True)

    def release_all(self) -> None:
        """Let all paused peers go on: nobody pauses peers of other machines."""

    def wait(self) -> None:
        """Wait until all have ended."""
        while any(process.poll() is None for process in self.processes):
            time.sleep(_PING_S / 100)

    def look(self) -> None:
        """Give up whoever was to be killed and does not answer."""
        if self._killed_s is not None and time.monotonic() - self._killed_s > _KILL_S:
            for process in self.processes:
                if process.status is None:
                    process.status = -9

    def lines(self) -> list[str]:
        """What peers have printed since the last call, with their machine's and their own name in
        front, and what happened to connections."""
        found = []
        while self._lines:
            found.append(self._lines.popleft())
        return found

    def close(self) -> None:
        """End all connections, and wait until nothing is written any more."""
        self._closing.set()
        for connection in self._connections:
            connection.end()
        for thread in self._threads:
            thread.join()
        for connection in self._connections:
            connection.close()

    def _run(self, target: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _ping(self) -> None:
        while not self._closing.wait(_PING_S):
            for connection in self._connections:
                connection.say(ping=True)

    def _follow(self, number: int) -> None:
        """Take in what an agent says, and go after what it has not said."""
        station, connection = self._stations[number], self._connections[number]
        failed = ""
        for told in connection.news():
            failed = str(told.get("failed", failed))
            self._take(told, station)
        missing = [i for i in station.peers if self.processes[i].status is None]
        if not missing or self._closing.is_set():
            return
        why = failed or connection.why()
        name = station.host.name
        if not failed and self._killed_s is None:
            self._lines.append(
                f"{name}: the connection was lost ({why}); its peers hand their weight on and "
                "leave. What they left is fetched once they have"
            )
            if self._fetch(number, station):
                self._lines.append(f"{name}: all that its peers left is here")
                self._end(missing, 0)
                return
        self.unreached += [self.places[i].id for i in missing]
        for i in missing:
            with suppress(OSError), open(self.places[i].folder / "log.txt", "a") as log:
                log.write(f"error: {name}: {why}\n")
        self._end(missing, 1)

    def _fetch(self, number: int, station: Station) -> bool:
        """Get what peers left on a machine whose connection was lost."""
        give_up_s = time.monotonic() + _GRACE_S + self._config.leave_s
        while time.monotonic() < give_up_s and self._killed_s is None:
            with suppress(ConfigError):
                connection = Connection(station.host, self._ssh)
                self._connections[number].close()
                self._connections[number] = connection
                order = self._order(station)
                for peer in order["peers"]:
                    peer["sizes"] = _sizes(self.places[peer["index"]].folder)
                connection.say(collect=order)
                for told in connection.news():
                    self._take(told, station)
                    if "collected" in told:
                        break
                else:
                    told = {}
                connection.end()
                if told.get("collected"):
                    return True
            if self._closing.wait(_RETRY_S):
                return False
        return False

    def _take(self, told: Mapping[str, Any], station: Station) -> None:
        index = told.get("peer")
        if index not in station.peers:
            return
        if "file" in told:
            self._copy(index, str(told["file"]), base64.b64decode(told["data"]), station)
        elif "exit" in told:
            self._end([index], int(told["exit"]))

    def _copy(self, index: int, name: str, data: bytes, station: Station) -> None:
        # Another machine must not choose where this one writes.
        if (name not in (*_MIRRORED, MODEL) and not _is_ledger(name)) or (
            index,
            name,
        ) in self._torn:
            return
        place = self.places[index]
        if name == "log.txt":
            *lines, rest = (self._partial.get(index, b"") + data).split(b"\n")
            self._partial[index] = rest
            self._say(lines, place.id, station)
        try:
            with open(place.folder / name, "ab") as file:
                file.write(data)
        except OSError as error:
            # Training goes on, and what was not copied is whole where it was written.
            self._torn.add((index, name))
            self.unreached.append(place.id)
            self._lines.append(f"{place.folder / name} cannot be written: {error.strerror}")

    def _say(self, lines: Iterable[bytes], id: str, station: Station) -> None:
        prefix = f"[{station.host.name} {id}]"
        for line in lines:
            # Of a progress bar, the last state.
            shown = line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]
            self._lines.append(f"{prefix} {printable(shown)}")

    def _end(self, indices: Iterable[int], status: int) -> None:
        for index in indices:
            if self.processes[index].status is None:
                self.processes[index].status = status


def _is_ledger(name: str) -> bool:
    return name.startswith("ledger") and name.endswith(".jsonl") and "/" not in name


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir()}
