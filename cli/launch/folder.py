"""The folders of a run's peers, and how each incarnation of a peer is started."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...gossip.errors import ConfigError
from ...gossip.specs.parameter import typed
from ...gossip.transport.addresses import bind_error, split_address
from ..settings.exchange import ExchangeConfig
from .config import NOT_OF_TASK, Job, LaunchConfig, Place, device_of

if TYPE_CHECKING:
    from ...train.config import RunConfig

__all__ = ["RunFolder", "require_same", "variables"]


class RunFolder:
    """The folder of a run, and all places in it."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._out, self._rendezvous = job.out, job.out / "rendezvous"
        self.network_faults = job.out / "network-faults.json" if job.network_fails else None
        """File from which peers read the faults of the network; None without any."""

    def found(self) -> list[Place]:
        """Return the places of founders and of peers that had joined a run that is resumed."""
        goes_on, ids = self._job.config.goes_on, self._job.config.ids()
        lives: Mapping[str, Sequence[Path]] = {}
        if goes_on:
            lives = _folders_of(self._out)
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
        """Make a place for a peer that joins: join-1, join-2 and so on."""
        return self._make(self._job.config.peers + number - 1, f"join-{number}")

    def next_life(self, place: Place, *, kept: bool) -> Place:
        """Make a place for the next incarnation of a peer."""
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
            # The end of its last incarnation must not pass for the end of the next one.
            for file in ("peer.json", "model.safetensors"):
                with suppress(FileNotFoundError):
                    (folder / file).replace(folder / f"former.{file}")
        config, training = self._job.config, self._job.training
        if index >= config.peers:
            config = replace(config, slow=())
        told = {"id": id, "out": folder.absolute(), "founders": config.peers if founds else 1}
        if kept:
            told["resume"] = 1
        if again or kept:
            # The address at which the others expect it.
            told["bind"] = f"tcp://127.0.0.1:{self._port_again(id)}"
        if self.network_faults is not None:
            told["network_faults"] = self.network_faults.absolute()
        # A newcomer shares its index with a founder: data are cut into as many parts as founders.
        own = variables(config, self._out, index % config.peers, index, training) | _named(told)
        # Otherwise a script's output would reach its log only at its end.
        own["PYTHONUNBUFFERED"] = "1"
        return Place(
            index=index,
            id=id,
            folder=folder,
            command=self._job.command,
            earlier=earlier,
            variables=own,
        )

    def _port_again(self, id: str) -> int | str:
        """Return the port that a peer had, if that is free; else any."""
        try:
            port = int(split_address((self._rendezvous / f"{id}.addr").read_text().strip())[1])
        except (OSError, ValueError):
            return "*"
        return port if bind_error("127.0.0.1", port) is None else "*"


def variables(
    config: LaunchConfig,
    out: Path,
    index: int,
    local: int | None = None,
    training: "RunConfig | None" = None,
) -> dict[str, str]:
    """Return additions to the environment of one process; see `rumor.train.environment`.

    Args:
        config: The run.
        out: Its folder.
        index: Index of the process; *local* is that on its machine, by default the same.
        training: Training of `rumor peer`; None for a script.
    """
    local, id = index if local is None else local, config.ids()[index]
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
    for name in ("topology", "rule"):
        if getattr(config, name) is not None:
            told[name] = getattr(config, name)
    if config.key is not None and config.roster is not None:
        told |= {"key": config.key.absolute(), "roster": config.roster.absolute()}
    if config.device is not None:
        told["device"] = device_of(config.device, local)
    if config.metrics_port is not None:
        told["metrics_host"] = config.metrics_host
        told["metrics_port"] = config.metrics_port and config.metrics_port + local
    if config.goes_on:
        told["resume"] = 1
    factor = config.slowness().get(index, 1.0)
    if training is not None:
        for each in fields(training):
            value = getattr(training, each.name)
            if each.name not in NOT_OF_TASK and value != each.default:
                told[each.name] = value * factor if each.name == "step_s_min" else value
        return _named(told | config.exchange.given())
    told["signals"] = 1
    if factor != 1:
        told["slow"] = factor
    usual, given = ExchangeConfig().settings(), config.exchange.settings()
    before, now = asdict(usual.pop("protocol")), asdict(given.pop("protocol"))
    told |= {name: given[name] for name in given if given[name] != usual[name]}
    return _named(told | {name: now[name] for name in now if now[name] != before[name]})


def _named(told: Mapping[str, Any]) -> dict[str, str]:
    return {f"RUMOR_{name.upper()}": typed(value) for name, value in told.items()}


def _folders_of(out: Path) -> dict[str, list[Path]]:
    from ...train.runtime.peer_folder import peer_folders

    folders = (path for path in (out / "peers").iterdir() if path.is_dir())
    return peer_folders(folder / "options.json" for folder in folders)


def require_same(config: LaunchConfig, out: Path) -> None:
    """Check that the run in a folder is over, and had the same peers."""
    folders = _folders_of(out)
    others = sorted({*folders} - {*config.ids()})
    if other := [id for id in others if re.fullmatch(r"join-\d+", id, re.ASCII) is None]:
        raise ConfigError(
            f"--resume {out}: {other[0]} was a peer there, and would be none now: give the same "
            "options as before, -n among them"
        )
    from ...train.storage.incarnation import is_locked

    # A peer that has outlived its launcher could not start again.
    running = [id for id, several in sorted(folders.items()) if any(map(is_locked, several))]
    if running:
        raise ConfigError(
            f"--resume {out}: {', '.join(running)} still running: wait until the end, or stop them "
            f"(`kill` the processes that {out}/peers/*/pid name); nothing was touched"
        )
