"""What `rumor run` tells a script in its environment, and what that means to its peer."""

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

import torch

from ....gossip import ConfigError, ProtocolConfig
from ...config import PeerConfig
from ...tensors.cuda import find_device

__all__ = ["Environment", "environment"]

_log = logging.getLogger("rumor")

_PREFIX: Final = "RUMOR_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a script was told from outside; the defaults hold where nobody told it anything."""

    index: int = 0
    """Which of the processes this is, from 0 to ``count`` - 1: for the script's part of the data,
    say."""

    count: int = 1
    """Number of processes."""

    seed: int = 0
    """The same in all of them."""

    out: Path | None = None
    """This process's own folder."""

    device_name: str = "auto"
    """As it was given: cpu, cuda, cuda:1; auto is a GPU if there is one."""

    slow: float = 1.0
    """How many times as long as they take this peer's steps are to last, asleep: for experiments
    with machines of unequal speed."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a `PeerConfig`, by name."""

    @property
    def device(self) -> torch.device:
        """Where to put the model.

        Raises:
            ConfigError: There is no such device.
        """
        return find_device(self.device_name)

    def fill(self, config: PeerConfig) -> PeerConfig:
        """Complete what a script says of its peer: what is not as by default stays.

        Raises:
            ConfigError: The two do not go together.
        """
        usual, taken = PeerConfig(), {}
        for name, value in self.fields.items():
            said = getattr(config, name)
            if said == getattr(usual, name):
                taken[name] = value
            elif said != value:
                _log.warning(
                    "%s is %s in the script, which counts: %s%s=%s is not used",
                    *(name, said, _PREFIX, name.upper(), value),
                )
        return replace(config, **taken)


def _folder(text: str) -> Path:
    return Path(text).absolute()


def _several(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (each.strip() for each in text.split(","))))


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError
    return text == "1"


def _protocol(text: str) -> ProtocolConfig:
    given = json.loads(text)
    unknown = sorted({*given} - {each.name for each in fields(ProtocolConfig)})
    if unknown:
        raise ConfigError(f"ProtocolConfig has no field {unknown[0]}")
    return ProtocolConfig(**given)


_OWN: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "index": ("index", int),
    "count": ("count", int),
    "seed": ("seed", int),
    "out": ("out", _folder),
    "device": ("device_name", str),
    "slow": ("slow", float),
}

_OF_PEER: Final[Mapping[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("id", "topology", "rule", "bind", "mixing"), str),
    **dict.fromkeys(("founders", "seed", "log_every", "shards", "metrics_port"), int),
    **dict.fromkeys(
        ("linger_s", "leave_s", "join_timeout_s", "mix_budget_s", "memory_models"), float
    ),
    **dict.fromkeys(("join", "advertise"), _several),
    **dict.fromkeys(("rendezvous", "out", "key", "roster"), _folder),
    **dict.fromkeys(("frozen_may_differ", "signals"), _switch),
    "protocol": _protocol,
}


def environment(variables: Mapping[str, str] | None = None) -> Environment:
    """What this process was told by `rumor run`, or by whoever set the same variables.

    Args:
        variables: Those of the process unless given.

    Raises:
        ConfigError: A variable has a value that makes no sense; it is named.

    >>> environment({"RUMOR_INDEX": "2", "RUMOR_COUNT": "4", "RUMOR_RULE": "sgp"}).index
    2
    """
    variables = os.environ if variables is None else variables
    own: dict[str, Any] = {}
    told: dict[str, Any] = {}
    for key, text in variables.items():
        name = key.removeprefix(_PREFIX).lower()
        if not key.startswith(_PREFIX) or key != _PREFIX + name.upper():
            continue
        if name in _OWN:
            field_name, read = _OWN[name]
            own[field_name] = _read(key, text, read)
        if name in _OF_PEER:
            told[name] = _read(key, text, _OF_PEER[name])
    return Environment(**own, fields=told)


def _read(key: str, text: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(text)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(f"{key} is {text!r}, which makes no sense there") from None
