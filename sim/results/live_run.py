"""The files of real peers: paces, counts, and the quality of models over time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...gossip.errors import ConfigError
from ...train.runtime.peer_folder import peer_folders
from ...train.storage.jsonl import read_metrics
from .files import SUMMARY, read_object

__all__ = ["LivePeer", "LiveRun", "Row", "read_live_run"]

# File names, as `train.run` and `cli.launch.folder` write them.
_OPTIONS: Final = "options.json"

Row = Mapping[str, Any]
"""A row of ``metrics.jsonl``, by the names of its columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePeer:
    """One peer, with all its incarnations."""

    id: str
    index: int
    """Index of its part of the data."""
    options: Mapping[str, Any]
    """Options of its last incarnation, from ``options.json``."""
    lives: tuple[tuple[Row, ...], ...]
    """Rows of metrics of each folder, in order."""
    report: Mapping[str, Any] | None
    """Its ``peer.json``; None if it was killed, or still runs."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, in order of time."""
        return tuple(row for rows in self.lives for row in rows)

    @property
    def finished(self) -> bool:
        """True if it took all its steps."""
        return self.report is not None and self.report.get("state") == "finished"

    @property
    def address(self) -> str | None:
        """The address it listened at; None if unknown, or on this machine alone."""
        said = [(self.report or {}).get("address")]
        said += [each for name in ("advertise", "bind") for each in self.options.get(name) or ()]
        return next((address for address in said if isinstance(address, str)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """A swarm of real peers that ran, or is running."""

    folder: Path
    peers: tuple[LivePeer, ...]
    """Peers in the order of their parts of the data; each has at least one row."""
    summary: Mapping[str, Any] | None
    """The final summary of ``rumor launch``; None if it was not written."""

    @property
    def began_unix_s(self) -> float:
        """When the first peer began its first step, seconds by the calendar."""
        firsts = [peer.rows[0] for peer in self.peers]
        return float(min(row["unix_s"] - row["time_s"] for row in firsts))

    @property
    def trained_s(self) -> float:
        """How long all trained: until the first peer had taken all its steps, seconds."""
        ends = [self.times(peer)[-1] for peer in self.peers if peer.finished]
        # Peers that are killed or leave do not end it.
        return float(min(ends) if ends else max(self.times(peer)[-1] for peer in self.peers))

    def times(self, peer: LivePeer) -> NDArray[np.float64]:
        """Seconds since `began_unix_s` of each row of *peer*."""
        return np.array([row["unix_s"] for row in peer.rows], np.float64) - self.began_unix_s

    def steps(self, peer: LivePeer, at_s: float) -> float:
        """Return the steps of *peer* by *at_s* seconds since `began_unix_s`, counting steps that a
        crash has lost once."""
        values = np.maximum.accumulate([float(row["step"]) for row in peer.rows])
        return self._between(peer, values, at_s)

    def count(self, name: str, at_s: float) -> float | None:
        """Return the sum of a column over all peers by *at_s* seconds since `began_unix_s`; None if
        the rows lack it."""
        if any(name not in row for peer in self.peers for row in peer.rows):
            return None
        counts = [_over_lives(peer.rows, name) for peer in self.peers]
        return sum(self._between(p, v, at_s) for p, v in zip(self.peers, counts, strict=True))

    def _between(self, peer: LivePeer, values: NDArray[np.float64], at_s: float) -> float:
        times = np.concatenate([[0.0], self.times(peer)])
        return float(np.interp(at_s, times, np.concatenate([[0.0], values])))


def read_live_run(folder: Path | str) -> LiveRun:
    """Read a run, finished or in progress, from the folder of ``rumor launch``, of one ``rumor peer
    --out``, or of several such peers.

    Raises:
        ConfigError: The folder holds no peer, or its files cannot be read.
        TrainingError: A row of metrics cannot be read.
    """
    folder = Path(folder)
    found = {folder.name or "peer": [folder]}
    if not (folder / _OPTIONS).exists():
        found = peer_folders([*folder.glob(f"peers/*/{_OPTIONS}"), *folder.glob(f"*/{_OPTIONS}")])
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
        summary=read_object(folder / SUMMARY) if (folder / SUMMARY).exists() else None,
    )


def _live_peer(name: str, folders: Sequence[Path]) -> LivePeer:
    options, report = read_object(folders[-1] / _OPTIONS), folders[-1] / "peer.json"
    index = options.get("index", 0)
    return LivePeer(
        id=str(options.get("id") or name),
        index=index if isinstance(index, int) else 0,
        options=options,
        lives=tuple(tuple(read_metrics(each / "metrics.jsonl")) for each in folders),
        report=read_object(report) if report.exists() else None,
    )


def _over_lives(rows: Sequence[Row], name: str) -> NDArray[np.float64]:
    """Turn a count that restarts in each incarnation into a continuous count."""
    values = np.array([float(row.get(name) or 0.0) for row in rows])
    grown = np.diff(values, prepend=0.0)
    return np.cumsum(np.where(grown < 0, values, grown))
