"""Peers on several machines, from the launcher's view: started, watched, stopped.

Their files are copied, so that a run on many machines leaves the same folder as a run on one.
"""

import base64
import shlex
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path
from typing import Any, Final, Self

from ...gossip.errors import ConfigError
from ...gossip.protocol.rule import requirements_of
from ...gossip.transport.addresses import join_address
from ...train.runtime.script.cluster import joins
from ..errors import printable
from ..launch.checks import script_job, script_of
from ..launch.config import Job, LaunchConfig, MachinesConfig, Place
from ..launch.folder import variables
from ..launch.monitor import Life
from .agent import COPIED, MODEL, STREAMED, versions
from .hosts import read_hosts
from .machine import Machine, machines_of

__all__ = ["Fleet", "told_by_machine"]

_PING_S: Final = 5.0
_KILL_S: Final = 5.0
_LOOK_S: Final = 0.05


def told_by_machine(
    config: LaunchConfig, out: Path, machines: Sequence[Machine]
) -> dict[int, dict[str, str]]:
    """Return additions to the environment of each peer, by its number."""
    places = [place for machine in machines for place in machine.places]
    spec = config.rule_spec
    together = spec is not None and requirements_of(spec.make()).fixed_members
    told: dict[int, dict[str, str]] = {}
    for machine in machines:
        devices = (machine.host.device or "").split(",")
        for local, index in enumerate(machine.peers):
            device = devices[local % len(devices)]
            own = replace(config, device=device) if device else config
            found = variables(own, out, index, local)
            del found["RUMOR_RENDEZVOUS"]
            host, port = machine.places[local]
            found |= {
                "RUMOR_OUT": machine.folder(out, found["RUMOR_ID"]),
                "RUMOR_FOUNDERS": str(config.peers if together else 1),
                "RUMOR_JOIN": ",".join(joins(places, (host, port))),
                "RUMOR_BIND": join_address(machine.bind, str(port)),
                "RUMOR_ADVERTISE": join_address(host, str(port)),
                "PYTHONUNBUFFERED": "1",
            }
            if config.key is not None and config.roster is not None:
                # Paths on that machine.
                found |= {"RUMOR_KEY": str(config.key), "RUMOR_ROSTER": str(config.roster)}
            told[index] = found | dict(machine.host.variables)
    return told


@dataclass(slots=True)
class _RemoteProcess:
    """One peer's process on another machine; without a status it runs, or is not known."""

    status: int | None = None

    def poll(self) -> int | None:
        return self.status


class Fleet:
    """A run on several machines."""

    def __init__(self, job: Job, machines: Sequence[Machine], config: MachinesConfig) -> None:
        self.job = job
        self._machines, self._config = machines, config
        told = told_by_machine(job.config, job.out, machines)
        self.places = [
            Place(
                index=index,
                id=id,
                folder=job.out / "peers" / id,
                command=job.command,
                variables=told[index],
            )
            for index, id in enumerate(job.config.ids())
        ]
        """Places of all peers, in order: the folders of the copies of their files."""
        self.processes = [_RemoteProcess() for _ in self.places]
        """Processes in the same order."""
        self.unreached: list[str] = []
        """Peers whose last files could not be copied."""
        self._connected: list[Machine] = []
        self._threads: list[threading.Thread] = []
        self._partial: dict[int, bytes] = {}
        self._lines: deque[str] = deque()
        self._ping_s = 0.0
        self._give_up_s = inf

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
        made = machines_of(read_hosts(machines.hosts), machines.port)
        count = sum(len(machine.peers) for machine in made)
        if "peers" in names and config.peers != count:
            raise ConfigError(
                f"--peers is {config.peers}, and {machines.hosts} has {count} slots: give slots= "
                "there, and no --peers"
            )
        job = script_job(replace(config, peers=count), words, here=False)
        return cls(job, made, machines)

    def commands(self) -> dict[str, str]:
        """Return the ssh command for each machine."""
        return {
            f"{machine.host.name} ({', '.join(place.id for place in self._on(machine))})": (
                shlex.join(machine.command(self._config.ssh))
            )
            for machine in self._machines
        }

    def _on(self, machine: Machine) -> Sequence[Place]:
        return self.places[machine.peers.start : machine.peers.stop]

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Connect to all machines and check them, for as long as the block lasts.

        Raises:
            ConfigError: Some cannot be reached, or lack a requirement; all of these are named.
        """
        try:
            for machine in self._machines:
                machine.connect(self._config.ssh)
                self._connected.append(machine)
                machine.say(job=self._job_of(machine))
            problems = [
                f"{machine.host.name}: {problem}"
                for machine in self._machines
                for problem in _problems(machine)
            ]
            if problems:
                raise ConfigError("; ".join(problems))
            yield
        finally:
            for machine in self._connected:
                machine.close()

    def _job_of(self, machine: Machine) -> dict[str, Any]:
        """Return the job of a machine's agent; see `agent`."""
        job = self.job
        peers = [
            {
                "index": place.index,
                "id": place.id,
                "folder": machine.folder(job.out, place.id),
                "variables": place.variables,
            }
            for place in self._on(machine)
        ]
        return {
            "dir": machine.host.dir,
            "command": job.command,
            "script": script_of(job.command),
            "host": machine.bind,
            "ports": [port for _, port in machine.places],
            "peers": peers,
            "leave_s": job.config.leave_s,
            "models": self._config.models,
        }

    def start(self) -> None:
        """Start all."""
        for place in self.places:
            place.folder.mkdir(parents=True)
            (place.folder / "log.txt").touch()
        for machine in self._machines:
            machine.say(start=True)
            thread = threading.Thread(target=self._follow, args=(machine,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _say(self, **order: Any) -> None:
        for machine in self._machines:
            machine.say(**order)

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
        self._give_up_s = min(self._give_up_s, time.monotonic() + _KILL_S)

    def wait(self) -> None:
        """Wait until all have ended."""
        while any(process.poll() is None for process in self.processes):
            self._ping()
            time.sleep(_LOOK_S)

    def look(self) -> list[str]:
        """Give the machines a sign of life; return what peers have printed since, and other news.

        To be called again and again: a machine that hears nothing lets its peers leave.
        """
        self._ping()
        return [self._lines.popleft() for _ in range(len(self._lines))]

    def _ping(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._ping_s:
            self._ping_s = now_s + _PING_S
            self._say(ping=True)
        for process in self.processes if now_s >= self._give_up_s else ():
            if process.status is None:
                process.status = -signal.SIGKILL

    def close(self) -> None:
        """End all connections, and wait until nothing is written any more."""
        for machine in self._machines:
            machine.end()
        for thread in self._threads:
            thread.join()

    def _follow(self, machine: Machine) -> None:
        """Process the messages of an agent, until its connection ends."""
        failed = ""
        for told in machine.news():
            failed = str(told.get("failed", failed))
            index = told.get("peer")
            if isinstance(index, int) and index in machine.peers:
                if "file" in told:
                    self._copy(index, str(told["file"]), base64.b64decode(told["data"]), machine)
                elif "exit" in told:
                    self.processes[index].status = int(told["exit"])
        missing = [i for i in machine.peers if self.processes[i].status is None]
        if not missing:
            return
        name, why = machine.host.name, failed or machine.why()
        if not failed:
            there = Path(machine.host.dir) / self.job.out / "hosts" / name
            self._lines.append(
                f"{name}: the connection was lost ({why}); its peers hand their weight on and "
                f"leave. What they leave stays there, in {there}"
            )
        for index in missing:
            self.unreached.append(self.places[index].id)
            with suppress(OSError), open(self.places[index].folder / "log.txt", "a") as log:
                log.write(f"error: {name}: {why}\n")
            self.processes[index].status = 1

    def _copy(self, index: int, name: str, data: bytes, machine: Machine) -> None:
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
                self._lines.append(f"[{machine.host.name} {place.id}] {printable(shown)}")
        if place.id in self.unreached:
            return
        try:
            with open(place.folder / name, "ab") as file:
                file.write(data)
        except OSError as error:
            # Training continues, and the original files are complete on that machine.
            self.unreached.append(place.id)
            self._lines.append(f"{place.folder / name} cannot be written: {error.strerror}")


def _problems(machine: Machine) -> list[str]:
    """Return what a machine lacks, or why it was not reached."""
    hello = next((told["hello"] for told in machine.news() if "hello" in told), None)
    if hello is None:
        return [machine.why()]
    wrong = [
        f"{name} is {hello[name]} there and {own} here"
        for name, own in versions().items()
        if hello[name] != own
    ]
    return [*wrong, *hello["problems"]]
