"""Peers on several machines, from the launcher's view: started, watched, stopped.

Their files are copied, so that a run on many machines leaves the same folder as a run on one.
"""

import base64
import shlex
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Self

from ...gossip.errors import ConfigError
from ...gossip.protocol.rule import requirements_of
from ...gossip.transport.addresses import PORT, is_loopback, join_address
from ...train.runtime.script.cluster import joins
from ..errors import printable
from ..launch.checks import script_job, script_of
from ..launch.config import Job, LaunchConfig, MachinesConfig, Place
from ..launch.folder import variables
from ..launch.monitor import Life
from .agent import COPIED, MODEL, STREAMED, versions
from .connection import Connection, ssh_command
from .hosts import Host, read_hosts

__all__ = ["Fleet", "Remote", "Station", "stations", "told_by_machine"]

_PING_S: Final = 5.0
_KILL_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """One machine, and its peers."""

    host: Host
    peers: tuple[int, ...]
    """Numbers of its peers."""

    ports: tuple[int, ...]
    """Ports of its peers."""

    @property
    def bind(self) -> str:
        """The host to bind, without brackets."""
        if is_loopback(join_address(self.host.address, "1")):
            return "127.0.0.1" if self.host.address == "localhost" else self.host.address
        return "::" if ":" in self.host.address else "0.0.0.0"


def stations(hosts: Sequence[Host], port: int | None) -> tuple[Station, ...]:
    """Number the peers consecutively; ports are those they would have if all were free."""
    made, before = [], 0
    for host in hosts:
        first = host.listen or port or PORT
        peers = tuple(range(before, before + host.slots))
        ports = tuple(range(first, first + host.slots))
        made.append(Station(host=host, peers=peers, ports=ports))
        before += host.slots
    return tuple(made)


def _folder_there(out: Path, station: Station, id: str) -> str:
    # Another folder than that of the copies, as the machine may be this one.
    return str(out / "hosts" / station.host.name / id)


def told_by_machine(
    config: LaunchConfig, out: Path, made: Sequence[Station]
) -> dict[int, dict[str, str]]:
    """Return additions to the environment of each peer, by its number."""
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
                "RUMOR_OUT": _folder_there(out, station, found["RUMOR_ID"]),
                "RUMOR_FOUNDERS": str(config.peers if together else 1),
                "RUMOR_JOIN": ",".join(joins(places, (host.address, port))),
                "RUMOR_BIND": join_address(station.bind, str(port)),
                "RUMOR_ADVERTISE": join_address(host.address, str(port)),
                "PYTHONUNBUFFERED": "1",
            }
            if config.key is not None and config.roster is not None:
                # Paths on that machine.
                found |= {"RUMOR_KEY": str(config.key), "RUMOR_ROSTER": str(config.roster)}
            told[index] = found | dict(host.variables)
    return told


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A run on several machines, before any of them is reached."""

    job: Job
    machines: MachinesConfig
    stations: tuple[Station, ...]
    """The peers of each machine, with ports as if all were free."""

    @classmethod
    def read(
        cls,
        config: LaunchConfig,
        machines: MachinesConfig,
        words: Sequence[str],
        names: Set[str],
    ) -> Self:
        """Read the machines' file, and check that the settings are consistent."""
        assert machines.hosts is not None
        made = stations(read_hosts(machines.hosts), machines.port)
        count = sum(len(station.peers) for station in made)
        if "peers" in names and config.peers != count:
            raise ConfigError(
                f"--peers is {config.peers}, and {machines.hosts} has {count} slots: give slots= "
                "there, and no --peers"
            )
        job = script_job(replace(config, peers=count), words, here=False)
        return cls(job=job, machines=machines, stations=made)

    def settings(self) -> dict[str, Any]:
        """Return the ssh command for each machine."""
        ids = self.job.config.ids()
        return {
            f"{station.host.name} ({', '.join(ids[index] for index in station.peers)})": shlex.join(
                ssh_command(self.machines.ssh, station.host)
            )
            for station in self.stations
        }

    def environment(self) -> Mapping[str, Mapping[str, str]]:
        """Return the environment of each peer, by its name."""
        told = told_by_machine(self.job.config, self.job.out, self.stations)
        return {id: told[index] for index, id in enumerate(self.job.config.ids())}

    @contextmanager
    def connected(self) -> "Iterator[Fleet]":
        """Connect to all machines and check them, for as long as the block lasts.

        Raises:
            ConfigError: Some cannot be reached, or lack a requirement; all of these are named.
        """
        job, connections = self.job, list[Connection]()
        try:
            for station in self.stations:
                connections.append(Connection(station.host, self.machines.ssh))
            for station, connection in zip(self.stations, connections, strict=True):
                ids = [job.config.ids()[index] for index in station.peers]
                check = {
                    "dir": station.host.dir,
                    "command": job.command,
                    "script": script_of(job.command),
                    "folders": [_folder_there(job.out, station, id) for id in ids],
                    "host": station.bind,
                    "first": station.ports[0],
                    "count": len(station.ports),
                }
                connection.say(check=check)
            hellos = [_hello(connection) for connection in connections]
            pairs = [*zip(self.stations, hellos, strict=True)]
            problems = [f"{s.host.name}: {why}" for s, (_, whys) in pairs for why in whys]
            if problems:
                raise ConfigError("; ".join(problems))
            made = [replace(station, ports=tuple(ports)) for station, (ports, _) in pairs]
            yield Fleet(job, made, connections, models=self.machines.models)
        finally:
            for connection in connections:
                connection.close()


def _hello(connection: Connection) -> tuple[list[int], list[str]]:
    """Return free ports of a machine, and its problems."""
    hello = next((told["hello"] for told in connection.news() if "hello" in told), None)
    if hello is None:
        return [], [connection.why()]
    wrong = [
        f"{name} is {hello[name]} there and {own} here"
        for name, own in versions().items()
        if hello[name] != own
    ]
    return hello["ports"], [*wrong, *hello["problems"]]


@dataclass(slots=True)
class _RemoteProcess:
    """One peer's process on another machine; without a status it runs, or is not known."""

    status: int | None = None

    def poll(self) -> int | None:
        return self.status


class Fleet:
    """The processes of a run on several machines."""

    def __init__(
        self,
        job: Job,
        made: Sequence[Station],
        connections: Sequence[Connection],
        *,
        models: bool,
    ) -> None:
        self._job, self._models = job, models
        self._stations = [*zip(made, connections, strict=True)]
        self._told = told_by_machine(job.config, job.out, made)
        self.places = [
            Place(index=index, id=id, folder=job.out / "peers" / id, command=job.command)
            for index, id in enumerate(job.config.ids())
        ]
        """Places of all peers, in order: the folders of the copies of their files."""
        self.processes = [_RemoteProcess() for _ in self.places]
        """Processes in the same order."""
        self.unreached: list[str] = []
        """Peers whose last files could not be copied."""
        self._partial: dict[int, bytes] = {}
        self._lines: deque[str] = deque()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start all."""
        for place in self.places:
            place.folder.mkdir(parents=True)
            (place.folder / "log.txt").touch()
        for station, connection in self._stations:
            peers = [
                {
                    "index": index,
                    "id": self.places[index].id,
                    "folder": _folder_there(self._job.out, station, self.places[index].id),
                    "variables": self._told[index],
                }
                for index in station.peers
            ]
            connection.say(
                start={
                    "peers": peers,
                    "command": self._job.command,
                    "leave_s": self._job.config.leave_s,
                    "models": self._models,
                }
            )
            self._run(self._follow, station, connection)
        self._run(self._ping)

    def _say(self, **order: Any) -> None:
        for _, connection in self._stations:
            connection.say(**order)

    def leave_all(self, number: int = signal.SIGTERM) -> None:
        """Send all running peers a signal that asks them to leave."""
        self._say(leave=int(number))

    def tell_dead(self, lives: Sequence[Life]) -> None:
        """Tell all running peers that these incarnations are dead."""
        if lives:
            self._say(dead=list(lives))

    def kill_all(self) -> None:
        """Kill all running peers; a machine that does not answer is given up."""
        self._say(kill=True)
        give_up = threading.Timer(_KILL_S, self._give_up)
        give_up.daemon = True
        give_up.start()

    def release_all(self) -> None:
        """Do nothing: peers of other machines are never paused."""

    def wait(self) -> None:
        """Wait until all have ended."""
        while any(process.poll() is None for process in self.processes):
            time.sleep(_PING_S / 100)

    def _give_up(self) -> None:
        for process in self.processes:
            if process.status is None:
                process.status = -signal.SIGKILL

    def lines(self) -> list[str]:
        """Return what peers have printed since the last call, and events of connections."""
        return [self._lines.popleft() for _ in range(len(self._lines))]

    def close(self) -> None:
        """End all connections, and wait until nothing is written any more."""
        self._closing.set()
        for _, connection in self._stations:
            connection.end()
        for thread in self._threads:
            thread.join()

    def _run(self, target: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _ping(self) -> None:
        while not self._closing.wait(_PING_S):
            self._say(ping=True)

    def _follow(self, station: Station, connection: Connection) -> None:
        """Process the messages of an agent, until its connection ends."""
        failed = ""
        for told in connection.news():
            failed = str(told.get("failed", failed))
            if (index := told.get("peer")) in station.peers:
                if "file" in told:
                    self._copy(index, str(told["file"]), base64.b64decode(told["data"]), station)
                elif "exit" in told:
                    self.processes[index].status = int(told["exit"])
        missing = [i for i in station.peers if self.processes[i].status is None]
        if not missing or self._closing.is_set():
            return
        name, why = station.host.name, failed or connection.why()
        if not failed:
            there = Path(station.host.dir) / self._job.out / "hosts" / name
            self._lines.append(
                f"{name}: the connection was lost ({why}); its peers hand their weight on and "
                f"leave. What they leave stays there, in {there}"
            )
        for index in missing:
            self.unreached.append(self.places[index].id)
            with suppress(OSError), open(self.places[index].folder / "log.txt", "a") as log:
                log.write(f"error: {name}: {why}\n")
            self.processes[index].status = 1

    def _copy(self, index: int, name: str, data: bytes, station: Station) -> None:
        # Another machine must not choose where this one writes.
        known = any(fnmatchcase(name, each) for each in (*STREAMED, *COPIED, MODEL))
        if not known or "/" in name:
            return
        place = self.places[index]
        if name == "log.txt":
            *lines, rest = (self._partial.get(index, b"") + data).split(b"\n")
            self._partial[index] = rest
            for line in lines:
                # Only the last state of a progress bar.
                shown = line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]
                self._lines.append(f"[{station.host.name} {place.id}] {printable(shown)}")
        if place.id in self.unreached:
            return
        try:
            with open(place.folder / name, "ab") as file:
                file.write(data)
        except OSError as error:
            # Training continues, and the original files are complete on that machine.
            self.unreached.append(place.id)
            self._lines.append(f"{place.folder / name} cannot be written: {error.strerror}")
