"""Settings that `rumor run` gives a script in its environment, and their effect on its peer."""

import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

import torch

from ....gossip import ConfigError, ProtocolConfig
from ....gossip.errors import did_you_mean
from ....gossip.specs.parameter import setting, settings_of
from ....gossip.wire.messages import is_name
from ...config import CHECKPOINTS, PeerConfig
from ...tensors.cuda import find_device
from .cluster import ClusterTask, cluster_task, take_place

__all__ = ["Environment", "environment", "peers_before", "resolve_config"]

_log = logging.getLogger("rumor")

_PREFIX: Final = "RUMOR_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A script's settings from outside; the defaults apply without any."""

    index: int = setting(0, "Number of this process, from 0 to ``count`` - 1.")
    count: int = setting(1, "Number of processes.")
    local_index: int = setting(
        0,
        "Number of this process on its machine, from 0: with device ``auto``, each takes a GPU of "
        "its own as long as there are some.",
    )
    ranks: int = 1
    """Number of processes that make one peer; with several, the numbers above count peers."""
    rank: int = 0
    """Number of this process in its peer."""
    seed: int = setting(0, "The seed, the same in all processes.")
    out: Path | None = setting(None, "Folder of this process.")
    device_name: str = setting(
        "auto", "Device as given: cpu, cuda, cuda:1; auto is a GPU if available."
    )
    slow: float = setting(1.0, "Factor by which this peer's steps are prolonged, by sleeping.")
    resume: bool = setting(
        False, "True to continue from the last checkpoint in the peer's folder, if any."
    )
    ready: Path | None = setting(
        None, "A file that exists while the peer is a member of a swarm, for readiness probes."
    )
    network_faults: Path | None = setting(None, "The network-faults.json of a run with faults.")
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a `PeerConfig`, by name."""
    placed: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, of Slurm or torchrun, for scripts that do not set which peers to join."""
    task: ClusterTask | None = None
    """The task from which ``placed`` follows."""

    def of_swarm(self, swarm: str | None, before: Sequence[str]) -> tuple[Self, str]:
        """Derive the environment of one more peer of this process, in a swarm of its own.

        It has a rendezvous, a folder and ports that no peer of the swarms *before* uses. The second
        value is the swarm's name, by default from its number; empty for the first.
        """
        number = len(before)
        if swarm is not None and (not is_name(swarm) or swarm[0] == "." or swarm == CHECKPOINTS):
            raise ConfigError(
                f"swarm is {swarm!r}: it must be 1 to 64 letters, digits, '.', '_' or '-', must "
                f"not begin with '.', and must not be {CHECKPOINTS!r}"
            )
        swarm = swarm or (f"swarm-{number + 1}" if number else "")
        if swarm in before:
            raise ConfigError(
                f"swarm is {swarm!r}: this process has made a peer of that swarm already; give "
                "each peer a swarm of its own"
            )
        told, placed = dict(self.fields), self.placed
        for each in {"out", "rendezvous"} & {*told} if swarm else ():
            told[each] = told[each] / swarm
        if number:
            for each in {"advertise", "bind", "join"} & {*told}:
                told[each] = self._moved(told[each], number)
            if told.get("metrics_port"):
                told["metrics_port"] += number * self.count
            if self.task is not None:
                placed = _understood(self.task.variables(number=number))[1]
        return replace(self, fields=told, placed=placed), swarm

    def _moved(self, addresses: str | Sequence[str], number: int) -> Any:
        """Move addresses to the ports of another swarm."""
        if not isinstance(addresses, str):
            return tuple(self._moved(each, number) for each in addresses)
        host, _, port = addresses.rpartition(":")
        if not port.isdecimal():
            return addresses
        return f"{host}:{int(port) + number * self.count}"

    @property
    def device(self) -> torch.device:
        """Device for the model.

        Raises:
            ConfigError: The device does not exist.
        """
        name = self.device_name
        if name == "auto" and torch.cuda.is_available():
            number = self.local_index * self.ranks + self.rank
            name = f"cuda:{number % torch.cuda.device_count()}"
        return find_device(name)

    def fill(self, config: PeerConfig) -> PeerConfig:
        """Fill in the fields that a script does not set itself."""
        told, taken = dict(self.fields), {}
        if not any(map(config.is_given, _PLACES)):
            told = {**self.placed, **told}
        for name, value in told.items():
            if not config.is_given(name):
                taken[name] = value
            elif (said := getattr(config, name)) != value:
                _log.warning(
                    "%s is %s in the script, which counts: %s%s=%s is not used",
                    *(name, said, _PREFIX, name.upper(), value),
                )
        try:
            return replace(config, **taken)
        except ConfigError as error:
            for name, value in taken.items():
                try:
                    replace(config, **{name: value})
                except ConfigError:
                    raise ConfigError(f"{_PREFIX}{name.upper()}: {error}") from None
            raise


_OWN: Final = {name.removesuffix("_name"): each for name, each in settings_of(Environment).items()}
_OF_PEER: Final = settings_of(PeerConfig)
_OF_PROTOCOL: Final = settings_of(ProtocolConfig)

_PLACES: Final = ("id", "bind", "join", "founders", "rendezvous")
"""Fields that each determine the peer's place in a swarm."""


def environment(variables: Mapping[str, str] | None = None, *, ranks: int = 1) -> Environment:
    """Read the settings of this process from the variables that `rumor run` sets.

    They may also be set by hand. Without them, settings follow from those of Slurm or torchrun if
    this process is one of several tasks.

    Args:
        variables: Default: the environment of the process.
        ranks: Number of processes that torchrun or Slurm has started for each peer, see *group* of
            `Peer`.

    Raises:
        ConfigError: A variable has an invalid value; the message names it. Or the scheduler's
            processes are not a multiple of *ranks*.

    >>> environment({"RUMOR_INDEX": "2", "RUMOR_COUNT": "4", "RUMOR_RULE": "sgp"}).index
    2
    """
    variables = os.environ if variables is None else variables
    own, told = _understood(variables)
    is_placed = not told.keys().isdisjoint(_PLACES)
    task, rank = None, 0
    if ranks > 1 or not is_placed:
        task, rank = cluster_task(variables, ranks)
    own |= {"ranks": ranks, "rank": rank}
    if ranks > 1 and variables.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        # torchrun has started all processes of this peer again.
        own.setdefault("resume", True)
    if is_placed or task is None:
        return Environment(**own, fields=told)
    found, placed = _understood(task.variables())
    return Environment(**(found | own), fields=told, placed=placed, task=task)


_made: Final[dict[tuple[object, ...], list[str]]] = {}


def peers_before(told: Environment) -> list[str]:
    """Return the swarm names of the peers that this process has made; the caller adds the next."""
    fields = {**told.placed, **told.fields}
    places = tuple(str(fields.get(name)) for name in ("id", "join", "rendezvous", "out"))
    if fields.keys().isdisjoint((*_PLACES, "out")):
        return []  # Peers without a place from outside cannot be in each other's way.
    # A forked child starts a new list; the folder's lock keeps it out of its parent's places.
    return _made.setdefault((os.getpid(), *places), [])


def _understood(variables: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parse the variables into fields of an `Environment`, and of a `PeerConfig`."""
    own: dict[str, Any] = {}
    told: dict[str, Any] = {}
    protocol: dict[str, Any] = {}
    for key, text in variables.items():
        name = key.removeprefix(_PREFIX).lower()
        if not key.startswith(_PREFIX) or key != _PREFIX + name.upper() or name == "cluster":
            continue
        settings = ((_OWN, own), (_OF_PEER, told), (_OF_PROTOCOL, protocol))
        takers = [(known[name], values) for known, values in settings if name in known]
        if not takers:
            every = [_PREFIX + each.upper() for known, _ in settings for each in known]
            near = did_you_mean(key, every, ": `rumor config` lists all")
            raise ConfigError(f"{key} is in the environment, and there is no such setting{near}")
        if not text:
            raise ConfigError(f"{key} is empty: unset it, or give it a value")
        for parameter, values in takers:
            try:
                values[parameter.name] = parameter.read_all(text)
            except ConfigError as error:
                raise ConfigError(f"{key}: {error}") from None
    if protocol:
        told["protocol"] = ProtocolConfig(**protocol)
    index, count = own.get("index", 0), own.get("count", math.inf)
    if not 0 <= index < count:
        raise ConfigError(
            f"RUMOR_INDEX is {index} and RUMOR_COUNT {count}: the processes of a run are numbered "
            "from 0 to RUMOR_COUNT - 1"
        )
    return own, told


def resolve_config(
    config: PeerConfig | None, given: Mapping[str, Any], told: Environment
) -> PeerConfig:
    """Return all settings of a peer: those *given*, else of *config*, else of the environment."""
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    filled = told.fill(replace(config or PeerConfig(), **changes))
    # If a peer has several processes, the first one listens.
    return filled if told.rank else take_place(filled)
