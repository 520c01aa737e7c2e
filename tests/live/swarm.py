"""Peers in processes of their own, what is done to them, and what their folders tell of it."""

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
    """The longest time that gossip took of any one step of some peers."""

    gossip_s: float
    cpu_s: float
    """What of it the training thread computed; the rest it waited, mostly for a core."""
    own_steps: float
    """In median steps of the same peer."""


class Trainee:
    """One peer, through all its lives: each is a process, all have one folder."""

    def __init__(
        self, id: str, folder: Path, orders: Mapping[str, Any], host: Sequence[str]
    ) -> None:
        self.id, self.folder = id, folder
        self._orders = json.dumps({"id": id, "out": str(folder), **orders})
        self._host = host
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._rows_before = 0

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Steps of its latest life."""
        path = self.folder / "steps.jsonl"
        return read_metrics(path)[self._rows_before :] if path.exists() else []

    @property
    def address(self) -> str:
        """Where it listens."""
        return str(self.rows[-1]["address"])

    @property
    def is_in(self) -> bool:
        """Whether it has founded, or has its copy."""
        assert self._process is not None and self._process.poll() is None, self.said()
        return bool(self.rows)

    def sees(self, *ids: str) -> bool:
        """Whether these, itself included, are all it holds for alive."""
        rows = self.rows
        return bool(rows) and rows[-1]["live"] == sorted(ids)

    @property
    def life(self) -> Life:
        """The latest."""
        return read_ledgers(self.folder)[-1].life

    def pushed_to(self, life: Life) -> set[tuple[int, int]]:
        """Shares that its latest life pushed to a life of another: shard and number of each."""
        return self._entries(self.life, "pushed", life)

    def decided(self, life: Life, sender: Life) -> set[tuple[int, int]]:
        """Shares of a sender that one of its lives accepted or refused: shard and number."""
        return self._entries(life, "accepted", sender)

    def _entries(self, life: Life, kind: str, other: Life) -> set[tuple[int, int]]:
        found = set()
        for path in ledger_paths(self.folder):
            opened, *rows = read_metrics(path)
            if (opened["id"], opened["incarnation"]) == life:
                found |= {
                    (row.get("shard", 0), row["seq"])
                    for row in rows
                    if row["kind"] == kind and (row["peer"], row["incarnation"]) == other
                }
        return found

    def start(self) -> None:
        """Begin a life."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._rows_before += len(self.rows)
        log = self.folder / "stderr"
        if not self._host:
            self._process = forked(log, str(_ROOT / "tests" / "live" / "trainee.py"), self._orders)
            return
        words = [sys.executable, "-m", "tests.live.trainee", self._orders]
        with open(log, "ab") as errors:
            self._process = subprocess.Popen(
                [*self._host, *words],
                cwd=_ROOT,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stderr=errors,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End its life as a power cut would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def wait(self) -> None:
        """Wait until it has left."""
        assert self._process is not None
        assert self._process.wait(LIMIT_S) == 0, self.said()

    def said(self) -> str:
        """All that its lives have logged."""
        return (self.folder / "stderr").read_text()

    def pause(self, start_s: float, end_s: float) -> Pause:
        """The longest pause among the steps that touch a time."""
        rows = self.rows
        own_s = median(row["ended_s"] - row["began_s"] for row in rows)
        inside = [row for row in rows if row["ended_s"] >= start_s and row["began_s"] <= end_s]
        worst = max(inside, key=lambda row: row["gossip_s"])
        return Pause(worst["gossip_s"], worst["gossip_cpu_s"], worst["gossip_s"] / own_s)

    def steps(self, start_s: float, end_s: float) -> int:
        """How many it has taken in a time."""
        return sum(start_s <= row["ended_s"] <= end_s for row in self.rows)


class Swarm:
    """Some peers in one folder; at the end all are killed that have not left.

    Args:
        folder: Made if it is not there.
        orders: What all of them are told, see `trainee.train`; ids and folders are filled in.
    """

    def __init__(self, folder: Path, **orders: Any) -> None:
        self.trainees: dict[str, Trainee] = {}
        self.killed: list[Life] = []
        self._folder = folder
        self._orders = orders
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def start(self, id: str, *, host: Sequence[str] = (), **orders: Any) -> Trainee:
        """Start a peer, and do not wait."""
        trainee = Trainee(id, self._folder / id, self._orders | orders, host)
        self.trainees[id] = trainee
        trainee.start()
        self._stack.callback(trainee.kill)
        return trainee

    def kill(self, trainees: Iterable[Trainee]) -> None:
        """End them all at once, as a power cut would."""
        chosen = list(trainees)
        for trainee in chosen:
            trainee.signal(signal.SIGKILL)
        for trainee in chosen:
            trainee.kill()
            self.killed.append(trainee.life)

    def end(self) -> Audit:
        """Let all but the first leave, and count the weight of all lives from their ledgers."""
        running = [each for each in self.trainees.values() if each.life not in self.killed]
        for trainee in running[1:]:
            trainee.signal(signal.SIGTERM)
        for trainee in running[1:]:
            trainee.wait()
        # The last one would have to burn what it holds: it just ends, and its ledger says.
        running[0].signal(signal.SIGINT)
        running[0].wait()
        accounts = [a for each in self.trainees.values() for a in read_ledgers(each.folder)]
        return audit(accounts, self.killed)
