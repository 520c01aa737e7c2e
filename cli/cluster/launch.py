"""``rumor run --hosts``: what is to run where, and the machines reached."""

import shlex
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from ...gossip.errors import ConfigError
from ..launch.script.config import MachinesConfig, ScriptConfig
from ..launch.script.folder import find_command, find_folder, require_no_stdin, script_of
from .connection import ssh_command
from .fleet import Fleet, Station, connect, stations, told_by_machine
from .hosts import read_hosts

__all__ = ["Remote"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A run on several machines, before any of them is reached."""

    config: ScriptConfig
    machines: MachinesConfig
    command: tuple[str, ...]
    script: str
    """Its name."""
    out: Path
    stations: tuple[Station, ...]
    """Which peers are where, with ports as they would be if all were free."""

    @classmethod
    def read(
        cls,
        config: ScriptConfig,
        machines: MachinesConfig,
        words: Sequence[str],
        names: Set[str],
    ) -> Self:
        """Read the machines' file, and see that all goes together.

        Args:
            config: The run.
            machines: Names the file.
            words: Of the command.
            names: Of the options that were given.

        Raises:
            ConfigError: It does not, or the file makes no sense.
        """
        assert machines.hosts is not None
        made = stations(read_hosts(machines.hosts), machines.port)
        count = sum(len(station.peers) for station in made)
        if "peers" in names and config.peers != count:
            raise ConfigError(
                f"--peers is {config.peers}, and {machines.hosts} has {count} slots: give slots= "
                "there, and no --peers"
            )
        config = replace(config, peers=count)
        command, script = find_command(words, here=False)
        require_no_stdin(command)
        out = find_folder(config, script, here=False)
        remote = cls(
            config=config,
            machines=machines,
            command=command,
            script=script,
            out=out,
            stations=made,
        )
        # Devices and ssh are looked at, too.
        remote.environment(), remote.settings()
        return remote

    def settings(self) -> dict[str, Any]:
        """What is run by ssh, machine by machine."""
        commands = (shlex.join(ssh_command(self.machines.ssh, s.host)) for s in self.stations)
        return {
            f"{station.host.name} ({self._names(station)})": command
            for station, command in zip(self.stations, commands, strict=True)
        }

    def environment(self) -> Mapping[str, Mapping[str, str]]:
        """What each peer is told, by its name."""
        told = told_by_machine(self.config, self.out, self.stations)
        return {id: told[index] for index, id in enumerate(self.config.ids())}

    @contextmanager
    def connected(self) -> Iterator[Fleet]:
        """Reach all machines and check them, for as long as the block lasts.

        Raises:
            ConfigError: One cannot be reached, or lacks something.
        """
        made, connections = connect(
            self.stations,
            self.machines.ssh,
            self.out,
            self.config.ids(),
            self.command,
            script_of(self.command),
        )
        fleet = Fleet(
            made,
            connections,
            self.machines.ssh,
            self.config,
            self.out,
            self.command,
            models=not self.machines.no_models,
        )
        try:
            yield fleet
        finally:
            fleet.close()

    def _names(self, station: Station) -> str:
        ids = self.config.ids()
        return ", ".join(ids[index] for index in station.peers)
