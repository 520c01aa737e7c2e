"""Names of cells: the same arguments, files and code, the same name, and no other."""

import json
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ...gossip.errors import ConfigError
from ..config import SimulationConfig
from ..fault_plan import given
from ..faults import as_json
from .cell_files import hashes_of
from .code_version import code_version
from .sources import DIGEST_BYTES

__all__ = ["RUNNERS", "cell_key", "config_of", "settings_as_json"]

RUNNERS = ("threads", "window", "memory_gib")
"""Settings that change no bit of a result."""


def cell_key(settings: Mapping[str, Any]) -> str:
    """Hash all that a cell's result depends on.

    That is every argument, those among them that are left to their defaults; what the files
    contain that it names: faults, network, recorded durations, graphs, and the module of a task of
    the user's own with all others of theirs that it imports; and the code of this project.

    Args:
        settings: Fields of `SimulationConfig`.

    Returns:
        32 hexadecimal digits (BLAKE2b).

    Raises:
        ConfigError: A setting is not valid, cannot be written down, or a file cannot be read.
        TopologyError: The topology is not of the form of one.
    """
    config = config_of(settings)
    told = {
        "arguments": settings_as_json(config),
        "files": hashes_of(config),
        "code": code_version(),
    }
    text = json.dumps(told, sort_keys=True)
    return blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()


def config_of(settings: Mapping[str, Any]) -> SimulationConfig:
    """Make a simulation's settings of a cell's.

    Raises:
        ConfigError: There is no such setting, or its value is not valid.
    """
    known = [field.name for field in fields(SimulationConfig)]
    for name in settings:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f", did you mean {close[0]!r}?" if close else ""
            raise ConfigError(f"there is no setting {name!r}{hint}")
    # Where SimulationConfig has a tuple, JSON and TOML have a list.
    usable: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in settings.items()
    }
    try:
        return SimulationConfig(**usable)
    except TypeError as error:
        raise ConfigError(f"a setting is of the wrong kind: {error}") from error


def settings_as_json(config: SimulationConfig) -> dict[str, Any]:
    """Write down every argument that a result depends on, defaults too.

    Raises:
        ConfigError: A task or a network is an object: what it is made of cannot be told.
    """
    found = {
        field.name: getattr(config, field.name)
        for field in fields(SimulationConfig)
        if field.name not in RUNNERS
    }
    for name in ("task", "network"):
        if not isinstance(found[name], str):
            raise ConfigError(f"{name} is an object: a study needs its name, or that of a file")
    faults = found["faults"]
    found["faults"] = str(faults) if isinstance(faults, str | Path) else as_json(given(faults))
    return {name: list(v) if isinstance(v, tuple) else v for name, v in found.items()}
