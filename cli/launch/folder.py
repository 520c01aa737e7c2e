"""Where each peer of a run writes, and how its process is started, life after life."""

import socket as sockets
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

from ...gossip.errors import ConfigError
from ...gossip.transport.addresses import split_address
from ..settings.options import option
from .config import LaunchConfig, step_s_min

__all__ = ["PROGRAM", "Place", "Places", "RunFolder", "set_aside"]

# -P, or a file types.py in the working directory would stand in for Python's own.
PROGRAM: Final = (sys.executable, "-P", "-m", "rumor.cli", "peer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One peer's place in a run: what it is called, where it writes, how it is started."""

    index: int
    id: str
    folder: Path
    command: tuple[str, ...]
    earlier: tuple[Path, ...] = ()
    """Folders of earlier lives, where those are not this one's."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of its environment, beside what it inherits."""


class Places(Protocol):
    """What faults need of a run's folder: places for those who come back, and for newcomers."""

    network_faults: Path | None
    """Where peers read what happens to the network; None where nothing does."""

    def newcomer(self, number: int) -> Place:
        """Make a place for a peer that joins: join-1, join-2 and so on.

        Raises:
            OSError: The folder cannot be made.
        """

    def next_life(self, place: Place, *, kept: bool) -> Place:
        """A place for the next life of a peer, which goes on from what it left, if that is kept.

        Raises:
            OSError: The folder cannot be made.
        """


class RunFolder:
    """The folder of a run, and all places in it.

    Args:
        config: The run.
        steps: Of each peer; None where all together have a number of them.
        out: The run's folder.
        program: What a peer's options are appended to.
    """

    def __init__(
        self,
        config: LaunchConfig,
        steps: int | None,
        out: Path,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self._config = config
        self._steps = steps
        self.out = out
        self._program = tuple(program)
        self._rendezvous = out / "rendezvous"
        self.network_faults = out / "network-faults.json" if config.network_fails else None
        """Where peers read what happens to the network; None where nothing does."""

    def found(self) -> list[Place]:
        """Make the run's folders.

        Returns:
            The places of the peers that found it.

        Raises:
            OSError: A folder cannot be made.
        """
        self._rendezvous.mkdir(parents=True)
        return [
            self._make(index, id, id, founders=self._config.peers)
            for index, id in enumerate(self._config.ids())
        ]

    def newcomer(self, number: int) -> Place:
        """Make a place for a peer that joins: join-1, join-2 and so on.

        Its part of the data is one that another has, too: they are cut into as many parts as
        founders.

        Raises:
            OSError: The folder cannot be made.
        """
        id, index = f"join-{number}", self._config.peers + number - 1
        return self._make(index, id, id, founders=1)

    def next_life(self, place: Place, *, kept: bool, changes: Sequence[str] = ()) -> Place:
        """A place for the next life of a peer.

        It listens at the port that it had, where that is free, so that the others find it.

        Args:
            place: Of the life that is over.
            kept: Whether it goes on from what it left there; else it gets a new folder.
            changes: Options of one that goes on, beside those that it kept.

        Raises:
            OSError: The folder cannot be made.
        """
        bind = f"--bind=tcp://127.0.0.1:{self._port_again(place.id)}"
        if kept:
            set_aside(place.folder)
            if not (place.folder / "options.json").exists():
                # It was killed before it had begun: there is nothing to go on from.
                first = (each for each in place.command if not each.startswith("--founders="))
                return replace(place, command=(*first, "--founders=1", bind, *changes))
            # Whoever started this run, or goes on with it, has decided on its code.
            command = (*self._program, f"--resume={place.folder}", "--trust", bind, *changes)
            if self.network_faults is not None:
                command = (*command, f"--network-faults={self.network_faults}")
            return replace(place, command=command)
        earlier = (*place.earlier, place.folder)
        name = f"{place.id}.life-{len(earlier) + 1}"
        fresh = self._make(place.index, place.id, name, founders=1)
        return replace(fresh, command=(*fresh.command, bind), earlier=earlier)

    def _port_again(self, id: str) -> int | str:
        port = _port_in(self._rendezvous / f"{id}.addr")
        if port is None:
            return "*"
        with sockets.socket() as probe:
            probe.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return "*"
        return port

    def _make(self, index: int, id: str, name: str, *, founders: int) -> Place:
        folder = self.out / "peers" / name
        folder.mkdir(parents=True)
        options = self._options(index) | {
            "--founders": founders,
            "--id": id,
            "--rendezvous": str(self._rendezvous),
            "--out": str(folder),
        }
        if self.network_faults is not None:
            options["--network-faults"] = self.network_faults
        # One argument each, or a value that begins with a dash would be taken for an option.
        command = (*self._program, *(f"{name}={value}" for name, value in options.items()))
        command = (*command, *self._config.exchange.arguments())
        if self._config.journal:
            command = (*command, "--journal")
        return Place(index=index, id=id, folder=folder, command=command)

    def _options(self, index: int) -> dict[str, Any]:
        config = self._config
        options = config.for_peers() | {
            "index": index % config.peers,
            "count": config.peers,
            "step_s_min": step_s_min(config, index),
        }
        if config.metrics_port is not None:
            options["metrics_port"] = config.metrics_port and config.metrics_port + index
        if self._steps is not None:
            options["steps"] = self._steps
        if index < config.peers and (batch_size := config.own_batch_sizes()[index]) is not None:
            options["batch_size"] = batch_size
        return {option(name): value for name, value in options.items()}


def set_aside(folder: Path) -> None:
    """Keep how a peer's last life ended apart: it would pass for the end of the next one."""
    for name in ("peer.json", "model.safetensors"):
        with suppress(FileNotFoundError):
            (folder / name).replace(folder / f"former.{name}")


def _port_in(path: Path) -> int | None:
    try:
        return int(split_address(path.read_text().strip())[1])
    except (OSError, ValueError, ConfigError):
        return None
