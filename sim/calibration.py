"""What was measured on real peers, as a file that a simulation starts from."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ..gossip.errors import ConfigError
from ..train.durable import write_json
from .config import FLOAT_MAX, SimulationConfig
from .network import NetworkConfig, as_json, network_of, read_network

__all__ = ["Calibration", "PeerPace", "read_calibration"]

FORMAT: Final = 1

# They are of the peers and of the network, which a file says apart from the rest.
_SAID_APART: Final = ("workers", "step_s", "pace", "speeds", "slow", "network", "faults")

# A variation below this changes no barrier by more than a step's measurement does.
_CV_MIN: Final = 0.005
_CV_MAX: Final = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerPace:
    """How long the steps of one peer take.

    Raises:
        ConfigError: A field is out of range.
    """

    id: str
    """What it is called."""
    step_s: float
    """Mean duration of a step, seconds, without what it waited for others."""
    step_s_cv: float = 0.0
    """Standard deviation over mean."""
    steps: int = 0
    """How many were measured."""

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise ConfigError(f"id is {self.id!r}: it must be a name")
        if not _is_number(self.step_s) or not 0 < self.step_s <= FLOAT_MAX:
            raise ConfigError(f"step_s is {self.step_s!r}: it must be above 0, in seconds")
        if not _is_number(self.step_s_cv) or not 0 <= self.step_s_cv <= FLOAT_MAX:
            raise ConfigError(f"step_s_cv is {self.step_s_cv!r}: it must be a number, 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The pace of real peers, the network between them, and what they were told to do.

    Raises:
        ConfigError: There is no peer, or a setting that a simulation does not have.
    """

    source: str
    """Where it was measured, in words."""
    peers: tuple[PeerPace, ...]
    """In the order of the workers that stand for them."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """What lies between them; `ideal` unless it was measured."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `SimulationConfig`: what the run was told."""
    notes: tuple[str, ...] = ()
    """What a simulation will not do as the peers did, in sentences."""

    def __post_init__(self) -> None:
        if not self.peers:
            raise ConfigError("peers is empty: a calibration needs the pace of one peer at least")
        known = {entry.name for entry in fields(SimulationConfig)} - set(_SAID_APART)
        if unknown := [name for name in self.settings if name not in known]:
            raise ConfigError(f"settings has {unknown[0]!r}, which is no setting of a simulation")
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))

    def simulation(self, workers: int | None = None) -> dict[str, Any]:
        """Say what a simulation of these peers is asked for.

        The fastest peer's pace is 1x, and how long the others take follows from ``slow``. Where
        there are to be more workers than peers, these lend them their paces in turn.

        Args:
            workers: How many; as many as peers unless given.

        Returns:
            Fields of `SimulationConfig`.

        >>> paces = (PeerPace(id="a", step_s=0.1), PeerPace(id="b", step_s=0.3))
        >>> found = Calibration(source="a test", peers=paces).simulation(workers=3)
        >>> found["step_s"], found["slow"], found["pace"]
        (0.1, ('1:3',), 'constant')
        """
        n = len(self.peers) if workers is None else workers
        step_s = min(peer.step_s for peer in self.peers)
        factors = [self.peers[worker % len(self.peers)].step_s / step_s for worker in range(n)]
        return {
            **self.settings,
            "workers": n,
            "step_s": step_s,
            "pace": self._pace(),
            "slow": tuple(
                f"{worker}:{factor:.6f}".rstrip("0").rstrip(".")
                for worker, factor in enumerate(factors)
                if factor >= 1 + 1e-6
            ),
            "network": self.network,
        }

    def write(self, path: Path) -> None:
        """Write the file; one that is there is replaced when the new one is whole.

        Raises:
            OSError: It cannot be written; what was there still is.
        """
        write_json(path, self.as_json())

    def as_json(self) -> dict[str, Any]:
        """What the file says, as values that JSON has."""
        return {
            "rumor_calibration": FORMAT,
            "source": self.source,
            "settings": dict(self.settings),
            "peers": [{e.name: getattr(p, e.name) for e in fields(p)} for p in self.peers],
            "network": as_json(self.network),
            "notes": list(self.notes),
        }

    def _pace(self) -> str:
        # A simulation has one variation for all: the root mean square keeps that of the sum.
        squares = [peer.step_s_cv**2 for peer in self.peers]
        cv = min(_CV_MAX, math.sqrt(math.fsum(squares) / len(squares)))
        return "constant" if cv < _CV_MIN else f"lognormal:cv={cv:.3g}"


def read_calibration(path: Path | str) -> Calibration:
    """Read a file that `Calibration.write` wrote, or that somebody changed since.

    Raises:
        ConfigError: It cannot be read, or is not as that has it; the message names file and key.
    """
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict) or "rumor_calibration" not in content:
        raise ConfigError(f"{path} is no calibration: `rumor calibrate -o FILE` writes one")
    if content["rumor_calibration"] != FORMAT:
        version = content["rumor_calibration"]
        raise ConfigError(f"{path} is of format {version!r}: this rumor reads {FORMAT}")
    try:
        found = _calibration(content)
        # Here, where the file can be named: whatever a simulation would refuse in it.
        SimulationConfig(**found.simulation())
    except (ConfigError, TypeError, ValueError, ArithmeticError) as error:
        raise ConfigError(f"{path}: {error}") from None
    return found


def _calibration(content: Mapping[str, Any]) -> Calibration:
    peers = content.get("peers")
    if not isinstance(peers, list) or not all(isinstance(peer, dict) for peer in peers):
        raise ConfigError("peers must be a list of objects with id and step_s")
    settings = content.get("settings", {})
    if not isinstance(settings, dict):
        raise ConfigError(f"settings is {settings!r}: it must be an object")
    return Calibration(
        source=str(content.get("source", "")),
        peers=tuple(_peer(peer, f"peers[{index}]") for index, peer in enumerate(peers)),
        network=_network(content.get("network", {})),
        settings=settings,
        notes=tuple(map(str, content.get("notes", ()))),
    )


def _network(said: object) -> NetworkConfig:
    if isinstance(said, str):
        return read_network(said)
    if not isinstance(said, dict):
        raise ConfigError(f"network is {said!r}: it must be an object, or the name of a network")
    try:
        return network_of(said)
    except ConfigError as error:
        raise ConfigError(f"network: {error}") from None


def _peer(entry: Mapping[str, Any], where: str) -> PeerPace:
    known = [each.name for each in fields(PeerPace)]
    for key in entry:
        if key not in known:
            raise ConfigError(f"{where} has an unknown key {key!r}: it must be {', '.join(known)}")
    if missing := [key for key in ("id", "step_s") if key not in entry]:
        raise ConfigError(f"{where} needs {missing[0]}")
    try:
        return PeerPace(**entry)
    except ConfigError as error:
        raise ConfigError(f"{where}.{error}") from None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
