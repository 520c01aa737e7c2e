"""What was measured on real peers, as a file that a simulation starts from."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..gossip.errors import ConfigError
from ..gossip.protocol.rule import requirements_of
from ..gossip.rules.registry import read_rule
from ..gossip.transport.addresses import is_loopback
from ..train.storage.files import write_json
from ..train.storage.jsonl import read_metrics
from .config import FLOAT_MAX, SimulationConfig
from .models.network import PRESETS, NetworkConfig, network_as_json, network_of, read_network

__all__ = [
    "Calibration",
    "LivePeer",
    "LiveRun",
    "PeerPace",
    "calibrate",
    "read_calibration",
    "read_live_run",
]


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
            "network": network_as_json(self.network),
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


# As `train.run` and `cli.launch.folder` write them.
_OPTIONS: Final = "options.json"
_METRICS: Final = "metrics.jsonl"
_REPORT: Final = "peer.json"
_SUMMARY: Final = "summary.json"

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePeer:
    """One peer, all its lives together."""

    id: str
    index: int
    """Which part of the data it had."""
    options: Mapping[str, Any]
    """What its last life was told, as ``options.json`` has it."""
    lives: tuple[tuple[Row, ...], ...]
    """Rows of metrics, by folder, in order."""
    report: Mapping[str, Any] | None
    """Its ``peer.json``; None where it was killed, or still runs."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, in order of time."""
        return tuple(row for rows in self.lives for row in rows)

    @property
    def finished(self) -> bool:
        """Whether it took all its steps."""
        return self.report is not None and self.report.get("state") == "finished"

    @property
    def address(self) -> str | None:
        """Where it listened, as far as is known; None where it was told nothing, and so at
        a port of this machine alone."""
        said = [(self.report or {}).get("address")]
        said += [each for name in ("advertise", "bind") for each in self.options.get(name) or ()]
        return next((address for address in said if isinstance(address, str)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """A swarm of real peers that was run, or is running."""

    folder: Path
    peers: tuple[LivePeer, ...]
    """In the order of their parts of the data; each has at least one row."""
    summary: Mapping[str, Any] | None
    """What ``rumor launch`` made of it in the end; None where it did not come to that."""

    @property
    def began_unix_s(self) -> float:
        """When the first peer began its first step, seconds by the calendar."""
        firsts = [peer.rows[0] for peer in self.peers]
        return float(min(row["unix_s"] - row["time_s"] for row in firsts))

    @property
    def trained_s(self) -> float:
        """How long all trained: until the first that took all its steps had done so, seconds.

        Peers that are killed or leave do not end it; where none finished, it is as long as anybody
        trained.
        """
        ends = [self.times(peer)[-1] for peer in self.peers if peer.finished]
        return float(min(ends) if ends else max(self.times(peer)[-1] for peer in self.peers))

    def times(self, peer: LivePeer) -> NDArray[np.float64]:
        """Seconds since `began_unix_s` of each row of *peer*, float64, axes ``(row,)``."""
        return np.array([row["unix_s"] for row in peer.rows], np.float64) - self.began_unix_s

    def steps(self, peer: LivePeer, at_s: float) -> float:
        """Optimizer steps that *peer* had taken, those that a crash has lost counted once.

        Args:
            peer: One of these.
            at_s: Seconds since `began_unix_s`; between two rows it steps evenly.
        """
        values = np.maximum.accumulate([float(row["step"]) for row in peer.rows])
        return self._between(peer, values, at_s)

    def bytes_sent(self, at_s: float, *, membership: bool = False) -> float | None:
        """What all peers together had sent, those that are gone included.

        Args:
            at_s: Seconds since `began_unix_s`; between two rows of a peer it sends evenly.
            membership: Only what was about who lives.

        Returns:
            Bytes; None where the rows do not say it.
        """
        name = "membership_bytes" if membership else "bytes_sent"
        if any(name not in row for peer in self.peers for row in peer.rows):
            return None
        sent = [_over_lives(peer.rows, name) for peer in self.peers]
        return sum(self._between(p, v, at_s) for p, v in zip(self.peers, sent, strict=True))

    def _between(self, peer: LivePeer, values: NDArray[np.float64], at_s: float) -> float:
        times = np.concatenate([[0.0], self.times(peer)])
        return float(np.interp(at_s, times, np.concatenate([[0.0], values])))


def read_live_run(folder: Path | str) -> LiveRun:
    """Read a run, also while it goes on.

    Args:
        folder: Of ``rumor launch``, of one ``rumor peer --out``, or one that holds folders of
            several such peers.

    Raises:
        ConfigError: There is no peer in it, or what one left cannot be read.
        TrainingError: A row of metrics cannot be read.
    """
    folder = Path(folder)
    found = _peer_folders(folder)
    if not found:
        what = "" if folder.is_dir() else ", which does not exist,"
        raise ConfigError(
            f"{folder}{what} is not the folder of a live run: give that of `rumor launch`, or of "
            "`rumor peer --out`"
        )
    peers = [_live_peer(id, folders) for id, folders in found.items()]
    trained = [peer for peer in peers if peer.rows]
    if not trained:
        raise ConfigError(f"{folder}: none of its peers has taken a step yet")
    return LiveRun(
        folder=folder,
        peers=tuple(sorted(trained, key=lambda peer: (peer.index, peer.id))),
        summary=_json(folder / _SUMMARY) if (folder / _SUMMARY).exists() else None,
    )


def _peer_folders(folder: Path) -> dict[str, list[Path]]:
    """The folders of each peer, those of former lives first."""
    if (folder / _OPTIONS).exists():
        return {folder.name or "peer": [folder]}
    found: dict[str, list[tuple[int, Path]]] = {}
    for path in sorted([*folder.glob(f"peers/*/{_OPTIONS}"), *folder.glob(f"*/{_OPTIONS}")]):
        match = re.fullmatch(r"(.+?)(?:\.life-(\d+))?", path.parent.name)
        assert match is not None
        found.setdefault(match[1], []).append((int(match[2] or 1), path.parent))
    return {id: [each for _, each in sorted(several)] for id, several in found.items()}


def _live_peer(name: str, folders: Sequence[Path]) -> LivePeer:
    options, last = _json(folders[-1] / _OPTIONS), folders[-1]
    index = options.get("index", 0)
    return LivePeer(
        id=str(options.get("id") or name),
        index=index if isinstance(index, int) else 0,
        options=options,
        lives=tuple(tuple(read_metrics(each / _METRICS)) for each in folders),
        report=_json(last / _REPORT) if (last / _REPORT).exists() else None,
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} is no JSON object")
    return content


def _over_lives(rows: Sequence[Row], name: str) -> NDArray[np.float64]:
    """A count that begins again in each life, as one that goes on."""
    found, before, last = [], 0.0, 0.0
    for row in rows:
        value = float(row.get(name) or 0.0)
        if value < last:
            before += last
        last = value
        found.append(before + value)
    return np.array(found, np.float64)


# Options of `rumor peer` that are called as settings of a simulation are.
_ALIKE: Final = (
    *("task", "steps", "total_steps", "lr", "batch_size", "partition", "seed", "topology", "rule"),
    *("p", "emission", "wire", "shards", "shards_per_push", "shard_order", "exact", "timing"),
    "eval_every",
)

# What a simulation has no word for, where it is not as said here.
_UNSIMULATED: Final = {
    "lr_schedule": ("constant", "a simulation keeps its learning rate"),
    "mixing": ("step", "a simulation mixes between two steps, at once"),
}


def calibrate(
    run: LiveRun, *, network: NetworkConfig | None = None, push_mbit: float | None = None
) -> Calibration:
    """Draw up what a simulation needs to go as a live run went.

    A step lasts from the end of the one before: evaluations, logs and mixing count. Under a rule
    that waits for others it lasts as long as it does without them, and at least ``step_s_min``.

    Args:
        run: The live run; one that still goes on is as good.
        network: Between the peers, where it was measured.
        push_mbit: What each peer might send, Mbit/s; None for as much as it liked.

    Returns:
        The calibration; its notes say what was left out.

    Raises:
        ConfigError: A peer has not been seen for two steps, or the rule is not known.
    """
    first = run.peers[0].options
    settings = {name: first[name] for name in _ALIKE if first.get(name) is not None}
    if push_mbit is not None:
        settings["push_mbit"] = push_mbit
    rule = read_rule(
        str(first.get("rule", "gosgd")), first.get("p"), first.get("emission", "per-step")
    )
    # Apart from the rule, so that another p or emission can be typed in their place.
    settings |= {name: value for name, value in rule.short_forms().items() if value is not None}
    waits = requirements_of(rule.make()).fixed_members
    between, notes = (network, []) if network is not None else _network_of(run)
    return Calibration(
        source=str(run.folder),
        peers=tuple(_pace(peer, waits=waits) for peer in run.peers),
        network=between,
        settings=settings,
        notes=(*notes, *_notes(run)),
    )


def _pace(peer: LivePeer, *, waits: bool) -> PeerPace:
    spans = [span for rows in peer.lives for span in _spans(rows)]
    steps, seconds = sum(n for n, _, _ in spans), math.fsum(s for _, s, _ in spans)
    if not steps:
        raise ConfigError(f"{peer.id} has not been seen for two steps: let it train for longer")
    if not waits:
        return PeerPace(id=peer.id, step_s=seconds / steps, step_s_cv=_cv(spans), steps=steps)
    known = [(n, row["own_s"], row) for n, _, row in spans if row.get("own_s") is not None]
    if not known:
        raise ConfigError(
            f"the rows of {peer.id} do not say how long it waited for others: they are of an "
            "older rumor"
        )
    own_s = math.fsum(n * mean for n, mean, _ in known) / sum(n for n, _, _ in known)
    least_s = float(peer.options.get("step_s_min") or 0.0)
    # A step that sleeps sleeps less for having waited, so that what it takes alone is unknown.
    cv = _cv(spans, "own_s") if own_s >= least_s else 0.0
    return PeerPace(id=peer.id, step_s=max(own_s, least_s), step_s_cv=cv, steps=steps)


def _spans(rows: Sequence[Row]) -> list[tuple[int, float, Row]]:
    """Steps, seconds and the row at the end of each stretch between two rows.

    Where a peer went back to a checkpoint, the stretch is left out; so is the first step, which
    takes longer than any other.
    """
    found = []
    for before, row in pairwise(rows):
        steps, seconds = row["step"] - before["step"], row["time_s"] - before["time_s"]
        if steps > 0 and seconds > 0:
            found.append((steps, seconds, row))
    return found


def _cv(spans: Sequence[tuple[int, float, Row]], name: str = "step_s") -> float:
    """Standard deviation over mean of single steps, as far as the rows say it."""
    known = [(n, row[name], row.get(f"{name}_sd")) for n, _, row in spans if row.get(name)]
    total = sum(n for n, _, _ in known)
    if not total:
        return 0.0
    mean = math.fsum(n * each for n, each, _ in known) / total
    square = math.fsum(n * ((sd or 0.0) ** 2 + (each - mean) ** 2) for n, each, sd in known) / total
    return math.sqrt(square) / mean


def _network_of(run: LiveRun) -> tuple[NetworkConfig, list[str]]:
    """What can be said of the network without having measured it."""
    addresses = [peer.address for peer in run.peers]
    if all(address is None or is_loopback(address) for address in addresses):
        return PRESETS["ideal"], ["all peers ran on one machine: messages take no time"]
    words = "the network was not measured: lan is a guess (rumor calibrate --join measures it)"
    return PRESETS["lan"], [words]


def _notes(run: LiveRun) -> list[str]:
    first, found = run.peers[0].options, []
    for name, (usual, words) in _UNSIMULATED.items():
        if first.get(name, usual) != usual:
            found.append(f"{name} was {first[name]}: {words}")
    for name in _ALIKE:
        if any(peer.options.get(name) != first.get(name) for peer in run.peers):
            found.append(f"{name} was not the same for all peers: that of {run.peers[0].id} is")
    count = first.get("count", 1)
    if first.get("partition", "shared") != "shared" and count != len(run.peers):
        found.append(f"the data was cut into {count} parts, and {len(run.peers)} peers were seen")
    if run.summary is not None and run.summary.get("faults"):
        found.append("faults were done to the run: give simulate the same --faults")
    return found
