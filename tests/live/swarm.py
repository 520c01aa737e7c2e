"""Peers in separate processes, control over them, and the records in their folders."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Self

from rumor.gossip import Audit, audit
from rumor.gossip.effects.ledger import Life
from rumor.train.storage.jsonl import read_metrics
from rumor.train.storage.ledger_file import ledger_paths, read_ledgers

from ..forked import Forked, forked
from ..waiting import LIMIT_S

__all__ = ["Pause", "Swarm", "Trainee"]

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Pause:
    """The longest time that gossip took in one step."""

    gossip_s: float
    cpu_s: float
    """CPU time of the training thread; the rest of the pause it waited, mostly for a core."""
    own_steps: float
    """Length of the pause in median steps of the same peer."""


class Trainee:
    """One peer with all its incarnations: each is a process, and all have one folder."""

    def __init__(
        self, id: str, folder: Path, settings: Mapping[str, Any], host: Sequence[str]
    ) -> None:
        self.id, self.folder = id, folder
        self._settings = json.dumps({"id": id, "out": str(folder), **settings})
        self._host = host
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._rows_before = 0

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Steps of the latest incarnation."""
        path = self.folder / "steps.jsonl"
        return read_metrics(path)[self._rows_before :] if path.exists() else []

    @property
    def address(self) -> str:
        """Address at which the peer listens."""
        return str(self.rows[-1]["address"])

    @property
    def has_joined(self) -> bool:
        """The peer has founded a swarm or received its copy."""
        assert self._process is not None and self._process.poll() is None, self.log_text()
        return bool(self.rows)

    def sees(self, *ids: str) -> bool:
        """Return whether the peer considers exactly these peers live, itself included."""
        rows = self.rows
        return bool(rows) and rows[-1]["live"] == sorted(ids)

    @property
    def incarnation(self) -> Life:
        """The latest incarnation."""
        return read_ledgers(self.folder)[-1].life

    def pushed_to(self, incarnation: Life) -> set[tuple[int, int]]:
        """Return shard and number of each share that the latest incarnation pushed to another."""
        return self._entries(self.incarnation, "pushed", incarnation)

    def decided(self, incarnation: Life, sender: Life) -> set[tuple[int, int]]:
        """Return shard and number of each share of *sender* that an incarnation decided."""
        return self._entries(incarnation, "accepted", sender)

    def _entries(self, incarnation: Life, kind: str, other: Life) -> set[tuple[int, int]]:
        found = set()
        for path in ledger_paths(self.folder):
            opened, *rows = read_metrics(path)
            if (opened["id"], opened["incarnation"]) == incarnation:
                found |= {
                    (row.get("shard", 0), row["seq"])
                    for row in rows
                    if row["kind"] == kind and (row["peer"], row["incarnation"]) == other
                }
        return found

    def start(self) -> None:
        """Start the next incarnation."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._rows_before += len(self.rows)
        log = self.folder / "stderr"
        if not self._host:
            self._process = forked(
                log, str(_ROOT / "tests" / "live" / "trainee.py"), self._settings
            )
            return
        command = [sys.executable, "-m", "tests.live.trainee", self._settings]
        with open(log, "ab") as errors:
            self._process = subprocess.Popen(
                [*self._host, *command],
                cwd=_ROOT,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stderr=errors,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process like a power cut."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def wait(self) -> None:
        """Wait until the peer has left."""
        assert self._process is not None
        assert self._process.wait(LIMIT_S) == 0, self.log_text()

    def log_text(self) -> str:
        """Return the log of all incarnations."""
        return (self.folder / "stderr").read_text()

    def pause(self, start_s: float, end_s: float) -> Pause:
        """Return the longest pause of the steps between two times."""
        rows = self.rows
        own_s = median(row["ended_s"] - row["began_s"] for row in rows)
        inside = [row for row in rows if row["ended_s"] >= start_s and row["began_s"] <= end_s]
        worst = max(inside, key=lambda row: row["gossip_s"])
        return Pause(worst["gossip_s"], worst["gossip_cpu_s"], worst["gossip_s"] / own_s)

    def steps(self, start_s: float, end_s: float) -> int:
        """Return the number of steps that ended between two times."""
        return sum(start_s <= row["ended_s"] <= end_s for row in self.rows)


class Swarm:
    """Peers in one folder; peers that have not left at the end are killed.

    Args:
        folder: Parent of the peers' folders, created if missing.
        settings: Arguments of `trainee.train` for all peers, except ids and folders.
    """

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.trainees: dict[str, Trainee] = {}
        self.killed: list[Life] = []
        self._folder = folder
        self._settings = settings
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def start(self, id: str, *, host: Sequence[str] = (), **settings: Any) -> Trainee:
        """Start a peer without waiting for it."""
        trainee = Trainee(id, self._folder / id, self._settings | settings, host)
        self.trainees[id] = trainee
        trainee.start()
        self._stack.callback(trainee.kill)
        return trainee

    def kill(self, trainees: Iterable[Trainee]) -> None:
        """Kill peers at once, like a power cut."""
        chosen = list(trainees)
        for trainee in chosen:
            trainee.signal(signal.SIGKILL)
        for trainee in chosen:
            trainee.kill()
            self.killed.append(trainee.incarnation)

    def end(self) -> Audit:
        """Let all peers but the first leave, and audit the ledgers of all incarnations."""
        running = [each for each in self.trainees.values() if each.incarnation not in self.killed]
        for trainee in running[1:]:
            trainee.signal(signal.SIGTERM)
        for trainee in running[1:]:
            trainee.wait()
        # The last peer would have to burn its weight, so it only stops and keeps its ledger.
        running[0].signal(signal.SIGINT)
        running[0].wait()
        accounts = [a for each in self.trainees.values() for a in read_ledgers(each.folder)]
        return audit(accounts, self.killed)
