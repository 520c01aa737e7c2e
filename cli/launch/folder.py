"""Where each peer of a run writes, and how its process is started, life after life."""

import socket as sockets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ...gossip.errors import ConfigError
from ...gossip.specs.parameter import typed
from ...gossip.transport.addresses import split_address
from ..settings.exchange import ExchangeConfig
from .config import CHANGEABLE, NOT_OF_TASK, Job, LaunchConfig, Place, device_of, parse_slow
from .resume import folders_of

__all__ = ["RunFolder", "variables"]


class RunFolder:
    """The folder of a run, and all places in it.

    Args:
        job: The run.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._out, self._rendezvous = job.out, job.out / "rendezvous"
        self.network_faults = job.out / "network-faults.json" if job.network_fails else None
        """Where peers read what happens to the network; None where nothing does."""

    def found(self) -> list[Place]:
        """Make the run's folders, or find those of a run that goes on.

        Returns:
            The places of the peers that found it, and of those that had joined it.

        Raises:
            OSError: A folder cannot be made.
        """
        goes_on, ids = self._job.config.goes_on, self._job.config.ids()
        lives: Mapping[str, Sequence[Path]] = {}
        if goes_on:
            lives = folders_of(self._out)
            joined = (int(id.removeprefix("join-")) for id in {*lives} - {*ids})
            ids = (*ids, *(f"join-{number}" for number in sorted(joined)))
        self._rendezvous.mkdir(parents=True, exist_ok=goes_on)
        places = []
        for index, id in enumerate(ids):
            earlier = tuple(lives.get(id, ())[:-1])
            founds = index < self._job.config.peers
            places.append(self._make(index, id, earlier, founds=founds, kept=goes_on))
        for kind in ("addr", "swarms"):
            for path in self._rendezvous.rglob(f"*.{kind}"):
                path.unlink()  # of processes that are gone
        return places

    def newcomer(self, number: int) -> Place:
        """Make a place for a peer that joins: join-1, join-2 and so on.

        Its index is one that another has, too: data are cut into as many parts as founders.

        Raises:
            OSError: The folder cannot be made.
        """
        return self._make(self._job.config.peers + number - 1, f"join-{number}")

    def next_life(self, place: Place, *, kept: bool) -> Place:
        """A place for the next life of a peer.

        Args:
            place: Of the life that is over.
            kept: Whether it goes on from its last checkpoint; else it gets a new folder.

        Raises:
            OSError: The folder cannot be made.
        """
        earlier = place.earlier if kept else (*place.earlier, place.folder)
        return self._make(place.index, place.id, earlier, kept=kept, again=True)

    def _make(
        self,
        index: int,
        id: str,
        earlier: tuple[Path, ...] = (),
        *,
        founds: bool = False,
        kept: bool = False,
        again: bool = False,
    ) -> Place:
        name = f"{id}.life-{len(earlier) + 1}" if earlier else id
        folder = self._out / "peers" / name
        folder.mkdir(parents=True, exist_ok=kept)
        if kept:
            # How its last life ended would pass for the end of the next one.
            for file in ("peer.json", "model.safetensors"):
                with suppress(FileNotFoundError):
                    (folder / file).replace(folder / f"former.{file}")
        config, command = self._job.config, self._job.command
        told = {"id": id, "out": folder.absolute(), "founders": config.peers if founds else 1}
        own: dict[str, Any] = {}
        if self._job.training is not None:
            command = (*command, *self._arguments(index, told, kept=kept, again=again or kept))
        else:
            own = variables(config, self._out, index % config.peers, index)
            own |= _named(told | ({"resume": 1} if kept else {}))
            # Else what a script printed would be in its log once it is over.
            own["PYTHONUNBUFFERED"] = "1"
            if index >= config.peers:
                own.pop("RUMOR_SLOW", None)
        if self.network_faults is not None:
            own["RUMOR_NETWORK_FAULTS"] = str(self.network_faults.absolute())
        return Place(
            index=index, id=id, folder=folder, command=command, earlier=earlier, variables=own
        )

    def _arguments(self, index: int, told: dict[str, Any], *, kept: bool, again: bool) -> list[str]:
        """The options of `rumor peer`."""
        job, config, training = self._job, self._job.config, self._job.training
        assert training is not None
        trained = {
            entry.name: value
            for entry in fields(training)
            if entry.name not in NOT_OF_TASK
            and (value := getattr(training, entry.name)) != entry.default
        }
        options = _told(config, self._out, index % config.peers, index) | trained | told
        if kept and (told["out"] / "options.json").exists():
            options = {name: options[name] for name in CHANGEABLE if name in options}
            # Whoever started this run, or goes on with it, has decided on its code.
            options |= {"resume": told["out"], "trust": True}
            shared = config.exchange.shared_memory
            exchange = {} if shared else {"shared_memory": False}
        else:
            del options["local_index"]
            if kept:
                # It was killed before it had begun: there is nothing to go on from.
                options["founders"] = 1
            if config.rule is not None:
                options["rule"] = config.rule
            if index < config.peers:
                if training.step_s_min:
                    factor = parse_slow(config.slow, config.peers).get(index, 1.0)
                    options["step_s_min"] = training.step_s_min * factor
                if job.batch_sizes and (size := job.batch_sizes[index]) is not None:
                    options["batch_size"] = size
            exchange = config.exchange.given()
        if again:
            # Where the others find it again.
            options["bind"] = f"tcp://127.0.0.1:{self._port_again(str(told['id']))}"
        told = options | exchange
        return [f"--set={name}={typed(value)}" for name, value in told.items()]

    def _port_again(self, id: str) -> int | str:
        """The port that a peer had, where that is free; else any."""
        try:
            port = int(split_address((self._rendezvous / f"{id}.addr").read_text().strip())[1])
            with sockets.socket() as probe:
                probe.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except (OSError, ValueError, ConfigError):
            return "*"
        return port


def variables(
    config: LaunchConfig, out: Path, index: int, local: int | None = None
) -> dict[str, str]:
    """The environment of one process, beside what it inherits; see `rumor.train.environment`.

    Args:
        config: The run.
        out: Its folder.
        index: Which of the processes it is.
        local: Which of those on its machine; all are on one unless given.
    """
    told = _told(config, out, index, index if local is None else local) | {"signals": 1}
    if config.goes_on:
        told["resume"] = 1
    if config.rule_spec is not None:
        told["rule"] = config.rule_spec
    if (factor := parse_slow(config.slow, config.peers).get(index)) is not None:
        told["slow"] = factor
    usual, given = ExchangeConfig().settings(), config.exchange.settings()
    before, now = asdict(usual.pop("protocol")), asdict(given.pop("protocol"))
    told |= {name: given[name] for name in given if given[name] != usual[name]}
    return _named(told | {name: now[name] for name in now if now[name] != before[name]})


def _named(told: Mapping[str, Any]) -> dict[str, str]:
    return {f"RUMOR_{name.upper()}": str(value) for name, value in told.items()}


def _told(config: LaunchConfig, out: Path, index: int, local: int) -> dict[str, Any]:
    """What each peer is told of itself, a script's and a task's alike."""
    id = config.ids()[index]
    told: dict[str, Any] = {
        "id": id,
        "index": index,
        "local_index": local,
        "count": config.peers,
        "founders": config.peers,
        "seed": config.seed,
        "out": (out / "peers" / id).absolute(),
        "rendezvous": (out / "rendezvous").absolute(),
        "log_every": config.log_every,
        "linger_s": config.linger_s,
        "leave_s": config.leave_s,
    }
    if config.key is not None and config.roster is not None:
        told |= {"key": config.key.absolute(), "roster": config.roster.absolute()}
    if config.device is not None:
        told["device"] = device_of(config.device, local)
    if config.topology is not None:
        told["topology"] = config.topology
    if config.metrics_port is not None:
        told["metrics_host"] = config.metrics_host
        told["metrics_port"] = config.metrics_port and config.metrics_port + local
    return told
