"""Measurements of real peers, as a file that a simulation starts from."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

from ..gossip.errors import ConfigError
from ..gossip.protocol.rule import requirements_of
from ..gossip.rules.registry import RuleSpec, read_rule
from ..gossip.specs.parameter import check_settings, setting
from ..gossip.transport.addresses import is_loopback
from ..train.storage.files import write_json
from .config import SimulationConfig
from .models.network import PRESETS, NetworkConfig, network_of, network_text, read_network
from .models.tables import as_table, from_table
from .results.files import read_object
from .results.live_run import LivePeer, LiveRun, Row

__all__ = ["Calibration", "PeerPace", "calibrate", "differences", "read_calibration"]

FORMAT: Final = 1

# They belong to the peers and to the network, which a file keeps separate.
_SAID_APART: Final = frozenset(
    ("workers", "step_s", "exchange_s", "pace", "speeds", "slow", "network", "faults")
)

# Giving a key here makes the measured values of its entries obsolete: the first three end a run,
# speed is set by speeds or by slow, and the rest belongs to a rule or to a task.
_DISPLACED: Final[Mapping[str, Sequence[str]]] = {
    "steps": ("total_steps",),
    "total_steps": ("steps",),
    "time_s": ("steps", "total_steps"),
    "speeds": ("slow",),
    "rule": ("p",),
    "task": ("lr", "optimizer", "momentum", "precision", "batch_size", "stands_for"),
}

# A smaller variation changes no barrier by more than a step's measurement does.
_CV_MIN: Final = 0.005
_CV_MAX: Final = 100.0

# Minimum number of stretches to estimate the cost of an exchange; a step that hardly takes longer
# than its sleep hides it.
_STRETCHES_MIN: Final = 5
_HIDDEN: Final = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerPace:
    """How long the steps of one peer take."""

    id: str = setting(MISSING, "Its name.")
    step_s: float = setting(
        MISSING,
        "Mean duration of a step, seconds, without waiting for others and without ``exchange_s``.",
        above=0,
    )
    step_s_cv: float = setting(0.0, "Standard deviation over mean.", low=0)
    steps: int = setting(0, "Number of steps measured.")
    exchange_s: float = setting(
        0.0, "Additional time of a step per push and per mix, seconds.", low=0
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.id:
            raise ConfigError("id is empty: it must be a name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The pace of real peers, the network between them, and their settings."""

    source: str
    """Place of the measurement, in words."""
    peers: tuple[PeerPace, ...]
    """The peers, in the order of the workers that stand for them."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """Network between them; `ideal` if it was not measured."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the run, as fields of `SimulationConfig`."""
    notes: tuple[str, ...] = ()
    """How a simulation will differ from the peers, in sentences."""

    def __post_init__(self) -> None:
        if not self.peers:
            raise ConfigError("peers is empty: a calibration needs the pace of one peer at least")
        known = {entry.name for entry in fields(SimulationConfig)} - _SAID_APART
        if unknown := [name for name in self.settings if name not in known]:
            raise ConfigError(
                f"settings has {unknown[0]!r}, which is not a setting of a simulation"
            )
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))

    def simulation(self, workers: int | None = None) -> dict[str, Any]:
        """Return the settings of a simulation of these peers; more workers reuse paces in turn."""
        n = len(self.peers) if workers is None else workers
        # The fastest peer's pace is 1x, and `slow` makes the others slower.
        step_s = min(peer.step_s for peer in self.peers)
        factors = [self.peers[worker % len(self.peers)].step_s / step_s for worker in range(n)]
        # A simulation has one variation for all: the root mean square keeps that of the sum.
        squares = math.fsum(peer.step_s_cv**2 for peer in self.peers)
        cv = min(_CV_MAX, math.sqrt(squares / len(self.peers)))
        return {
            **self.settings,
            "workers": n,
            "step_s": step_s,
            "exchange_s": float(np.median([peer.exchange_s for peer in self.peers])),
            "pace": "constant" if cv < _CV_MIN else f"lognormal:cv={cv:.3g}",
            "slow": tuple(
                f"{worker}:{factor:.6f}".rstrip("0").rstrip(".")
                for worker, factor in enumerate(factors)
                if factor >= 1 + 1e-6
            ),
            "network": network_text(self.network),
        }

    def simulation_with(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a simulation in which those *given* take precedence.

        >>> paces = (PeerPace(id="a", step_s=0.1),)
        >>> found = Calibration(source="a test", peers=paces, settings={"steps": 9, "p": 0.5})
        >>> both = found.simulation_with({"workers": 3, "rule": "adpsgd"})
        >>> both["steps"], both["workers"], both["rule"], "p" in both
        (9, 3, 'adpsgd', False)
        """
        gone = {name for key in given for name in _DISPLACED.get(key, ())}
        measured = self.simulation(given.get("workers"))
        return {name: measured[name] for name in measured if name not in gone} | dict(given)

    def write(self, path: Path) -> None:
        """Write the file atomically, in place of an existing one."""
        write_json(path, self.as_json())

    def as_json(self) -> dict[str, Any]:
        """Return the content of the file, as JSON values."""
        return {
            "rumor_calibration": FORMAT,
            "source": self.source,
            "settings": dict(self.settings),
            "peers": [asdict(peer) for peer in self.peers],
            "network": as_table(self.network),
            "notes": list(self.notes),
        }


def read_calibration(path: Path | str) -> Calibration:
    """Read a file written by `Calibration.write`, perhaps edited since."""
    path = Path(path)
    content = read_object(path)
    if "rumor_calibration" not in content:
        raise ConfigError(f"{path} is not a calibration: `rumor calibrate -o FILE` writes one")
    if content["rumor_calibration"] != FORMAT:
        version = content["rumor_calibration"]
        raise ConfigError(f"{path} is of format {version!r}: this rumor reads {FORMAT}")
    try:
        peers, settings = content.get("peers"), content.get("settings", {})
        if not isinstance(peers, list):
            raise ConfigError(f"peers is {peers!r}: it must be a list")
        if not isinstance(settings, dict):
            raise ConfigError(f"settings is {settings!r}: it must be an object")
        found = Calibration(
            source=str(content.get("source", "")),
            peers=tuple(
                from_table(PeerPace, peer, f"peers[{index}]") for index, peer in enumerate(peers)
            ),
            network=_network(content.get("network", {})),
            settings=settings,
            notes=tuple(map(str, content.get("notes", ()))),
        )
        # Here, where the error can name the file: whatever a simulation would refuse in it.
        SimulationConfig(**found.simulation())
    except (ConfigError, TypeError, ValueError, ArithmeticError) as error:
        raise ConfigError(f"{path}: {error}") from None
    return found


def _network(said: object) -> NetworkConfig:
    if isinstance(said, str):
        return read_network(said)
    if not isinstance(said, dict):
        raise ConfigError(f"network is {said!r}: it must be an object, or the name of a network")
    try:
        return network_of(said)
    except ConfigError as error:
        raise ConfigError(f"network: {error}") from None


# Options of `rumor peer` that have the names of a simulation's settings.
_ALIKE: Final = (
    *("task", "steps", "total_steps", "lr", "lr_schedule", "optimizer", "momentum", "precision"),
    *("batch_size", "partition", "seed"),
    *("topology", "rule"),
    *("p", "wire", "shards", "shards_per_push", "timing"),
    "eval_every",
)

# What a simulation is asked to repeat; a summary would show the others.
_COMPARED: Final = ("task", "topology", "partition", "seed", "wire", "shards")


def calibrate(run: LiveRun, *, network: NetworkConfig | None = None) -> Calibration:
    """Derive the settings with which a simulation behaves like a live run.

    Args:
        run: The live run, which may still be running.
        network: Network between the peers, if it was measured.
    """
    rule, settings = _settings_of(run)
    waits = requirements_of(rule.make()).waits
    notes = []
    if network is None:
        is_one_machine = all(p.address is None or is_loopback(p.address) for p in run.peers)
        network = PRESETS["ideal" if is_one_machine else "lan"]
        notes = [
            "all peers ran on one machine: messages take no time"
            if is_one_machine
            else "the network was not measured: lan is a guess (rumor calibrate --join measures it)"
        ]
    return Calibration(
        source=str(run.folder),
        peers=tuple(_pace(peer, waits=waits) for peer in run.peers),
        network=network,
        settings=settings,
        notes=(*notes, *_notes(run)),
    )


def differences(run: LiveRun, config: SimulationConfig) -> list[str]:
    """Describe settings of a simulation that a live run did not have."""
    _, was = _settings_of(run)
    now = {name: getattr(config, name) for name in _COMPARED} | config.rule_spec.short_forms()
    return [
        f"{name} is {now[name]!r} in the simulation, and was {was[name]!r}"
        for name in now
        if name in was and was[name] != now[name]
    ]


def _settings_of(run: LiveRun) -> tuple[RuleSpec, dict[str, Any]]:
    """Return the rule of a run, and its settings as fields of `SimulationConfig`."""
    first = run.peers[0].options
    settings = {name: first[name] for name in _ALIKE if first.get(name) is not None}
    rule = read_rule(str(first.get("rule", "gosgd")), first.get("p"))
    # Separate from the rule, so that another p can be typed in its place.
    forms = {name: value for name, value in rule.short_forms().items() if value is not None}
    return rule, settings | forms


class _Stretch(NamedTuple):
    """A peer's work between two rows of its table."""

    steps: int
    seconds: float
    exchanges: int  # pushes and mixes together
    row: Row  # row at its end


def _stretches(peer: LivePeer) -> list[_Stretch]:
    # Without returns to a checkpoint, and without the first step of an incarnation, which takes
    # longer than any other.
    found = []
    for before, row in (both for rows in peer.lives for both in pairwise(rows)):
        steps, seconds = row["step"] - before["step"], row["time_s"] - before["time_s"]
        done = sum((row.get(name) or 0) - (before.get(name) or 0) for name in ("pushes", "mixed"))
        if steps > 0 and seconds > 0 and done >= 0:
            found.append(_Stretch(steps, seconds, done, row))
    return found


def _pace(peer: LivePeer, *, waits: bool) -> PeerPace:
    # A step lasts from the end of the previous one: evaluations, logs and mixing count. Under a
    # rule that waits for others, the waits do not, but a step lasts at least step_s_min.
    stretches = _stretches(peer)
    steps, least_s = sum(s.steps for s in stretches), float(peer.options.get("step_s_min") or 0.0)
    if not steps:
        raise ConfigError(f"{peer.id} needs at least two recorded steps: let it train for longer")
    if not waits:
        exchange_s, each = _exchange(stretches, least_s)
        step_s = math.fsum(s.seconds for s in stretches) / steps - exchange_s * each
        return PeerPace(
            id=peer.id,
            step_s=step_s,
            step_s_cv=_cv(stretches, "step_s"),
            steps=steps,
            exchange_s=exchange_s,
        )
    known = [(s.steps, s.row["own_s"]) for s in stretches if s.row.get("own_s") is not None]
    if not known:
        raise ConfigError(
            f"the rows of {peer.id} do not say how long it waited for others: they are of an "
            "older rumor"
        )
    counts, each_s = zip(*known, strict=True)
    own_s = float(np.average(each_s, weights=counts))
    # A step that has waited sleeps less, so its own duration is unknown.
    cv = _cv(stretches, "own_s") if own_s >= least_s else 0.0
    return PeerPace(id=peer.id, step_s=max(own_s, least_s), step_s_cv=cv, steps=steps)


def _exchange(stretches: Sequence[_Stretch], asleep_s: float) -> tuple[float, float]:
    """Return what a push, or a mix, adds to a step, seconds, and how many of them a step had."""
    found = [
        (n, done, n * (row["step_s"] - row["own_s"]), n * row["step_s"])
        for n, _, done, row in stretches
        if row.get("own_s") is not None and row.get("step_s") is not None
    ]
    if len(found) < _STRETCHES_MIN:
        return 0.0, 0.0
    steps, done, exchange_s, whole_s = np.array(found, np.float64).T
    # Sleep at the end of a step hides its cost; without variation it cannot be separated.
    if whole_s.sum() < _HIDDEN * asleep_s * steps.sum() or np.ptp(done / steps) == 0:
        return 0.0, 0.0
    # Other costs of the exchange are paid at each step.
    columns = np.stack([steps, done], axis=1)
    cost_s = float(np.linalg.lstsq(columns, exchange_s, rcond=None)[0][1])
    # A step takes the rest, so that at the measured rate of exchanges the total is as measured.
    most_s = float(exchange_s.sum() / done.sum())
    return min(max(0.0, cost_s), most_s), float(done.sum() / steps.sum())


def _cv(stretches: Sequence[_Stretch], name: str) -> float:
    known = [
        (n, row[name], row.get(f"{name}_sd") or 0.0) for n, *_, row in stretches if row.get(name)
    ]
    if not known:
        return 0.0
    counts, means, deviations = np.array(known, np.float64).T
    mean = np.average(means, weights=counts)
    square = np.average(deviations**2 + (means - mean) ** 2, weights=counts)
    return float(np.sqrt(square) / mean)


def _notes(run: LiveRun) -> list[str]:
    first, found = run.peers[0].options, []
    for name in _ALIKE:
        if any(peer.options.get(name) != first.get(name) for peer in run.peers):
            found.append(f"{name} was not the same for all peers: that of {run.peers[0].id} is")
    count = first.get("count", 1)
    if first.get("partition", "shared") != "shared" and count != len(run.peers):
        found.append(f"the data was cut into {count} parts, and {len(run.peers)} peers were seen")
    if run.summary is not None and run.summary.get("faults"):
        found.append("faults were done to the run: give simulate the same --faults")
    return found
