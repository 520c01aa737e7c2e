"""The launcher's view of its peers from outside: their files, and the ends of their processes."""

import os
import re
import signal
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

from ...gossip.errors import TrainingError
from ...train.storage.jsonl import Tail, read_metrics
from ..errors import not_written, with_advice
from .config import Place

__all__ = [
    *("Life", "LifeEnd", "Monitor", "OnRow", "PeerView", "Process", "State", "ended_view"),
    *("last_words", "lives_in", "read_log", "read_report"),
]

OnRow = Callable[[str, dict[str, Any]], None]
"""Called with a peer's name and a row of its metrics."""

Life = tuple[str, int]
"""One incarnation of a peer: its name and number."""


class State(StrEnum):
    """The phase of a peer's life."""

    STARTING = "starting"
    """Its process runs; it has not trained yet."""
    TRAINING = "training"
    FINISHED = "finished"
    """It has taken all its steps; while others train it continues to mix."""
    LEFT = "left"
    """It was asked to stop, and handed on its weight."""
    KILLED = "killed"
    """A signal ended it: to the others it is a machine that died."""
    FAILED = "failed"
    """It stopped with an error."""


OVER = {State.LEFT, State.KILLED, State.FAILED}

_RANK: Final = re.compile(r"^\[\w*\d\]: ?")
_TORCHRUN: Final = "torch/distributed/elastic/multiprocessing/"
"""Marks of torchrun: before what a process says, and in its report on those that failed."""

_ASKED: Final = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1))
"""Signals that ask a process to end: a peer that has left after one ended in order."""

_CRASHES: Final = frozenset(
    (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSYS)
)
"""Signals of a crash: a process that ends by one has failed."""


class Process(Protocol):
    """The part of ``subprocess.Popen`` that monitoring needs."""

    def poll(self) -> int | None:
        """Exit status, minus the signal's number for a killed one; None while it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeEnd:
    """The end of one incarnation of a peer."""

    state: State | None
    """None if it ended before this launcher began."""
    why: str
    step: int | None
    lives: frozenset[Life]
    """The incarnations in its ledgers that this end belongs to."""


@dataclass(slots=True)
class PeerView:
    """The known state of one peer."""

    id: str
    steps: int | None
    """Number of steps it is to take; None if only all peers together have one."""
    state: State = State.STARTING
    step: int = 0
    step_s: float | None = None
    loss: float | None = None
    accuracy: float | None = None
    test_loss: float | None = None
    weight: float | None = None
    pushes: int = 0
    live: int | None = None
    swarm_steps: int = 0
    """Steps of all peers together, as far as this one knows."""
    steps_total: int | None = None
    """Number of steps all are to take together; None if only each peer has one."""
    why: str = ""
    """How it ended, if it did not finish, or not with its own steps."""
    script_error: str = ""
    """How its process failed after training was over; empty if it did not."""
    earlier: list[LifeEnd] = field(default_factory=list)
    """Its earlier incarnations."""

    @property
    def progress(self) -> float:
        """The finished part of its training, from 0 to 1."""
        own = self.step / self.steps if self.steps else 0.0
        common = self.swarm_steps / self.steps_total if self.steps_total else 0.0
        return min(1.0, max(own, common))

    def take(self, row: dict[str, Any]) -> None:
        """Update from one row of metrics; values that a row leaves out stay."""
        for name in _FIGURES:
            if row.get(name) is not None:
                setattr(self, name, row[name])


_FIGURES = (
    *("step", "step_s", "loss", "accuracy", "test_loss", "weight", "pushes", "live"),
    "swarm_steps",
)


class Monitor:
    """Monitors the peers of one run, including later changes of *places* and *processes*."""

    def __init__(
        self,
        places: Sequence[Place],
        processes: Sequence[Process],
        steps: int | None,
        steps_total: int | None = None,
        on_row: OnRow | None = None,
    ) -> None:
        self.views: list[PeerView] = []
        self._places = places
        self._processes = processes
        self._steps = steps, steps_total
        self._on_row = on_row or (lambda id, row: None)
        self._tails: list[Tail] = []
        # Rows of further peers that a process has made after its first one.
        self._further: dict[Path, Tail] = {}
        self._over: list[bool] = []
        self._news: list[str] = []
        self._deaths: list[Life] = []
        for _ in places:
            self.joined()

    @property
    def over(self) -> bool:
        """True if all processes have ended."""
        return all(self._over)

    @property
    def began(self) -> bool:
        """True if no peer is still before its first step."""
        return all(
            view.state is not State.STARTING or over
            for view, over in zip(self.views, self._over, strict=True)
        )

    def joined(self) -> None:
        """Add one more peer, whose place and process have been added."""
        place = self._places[len(self.views)]
        self.views.append(PeerView(place.id, self._steps[0], steps_total=self._steps[1]))
        self._tails.append(Tail(place.folder / "metrics.jsonl"))
        self._over.append(False)
        # Rows of a run that is resumed.
        for row in self._tails[-1].rows():
            self.views[-1].take(row)

    def ended(self, index: int) -> None:
        """Record the end of an incarnation whose process is gone, before the next one begins."""
        self._look(index)
        view, place = self.views[index], self._places[index]
        known = {life for end in view.earlier for life in end.lives}
        lives = frozenset(lives_in(place) - known)
        view.earlier.append(LifeEnd(state=view.state, why=view.why, step=view.step, lives=lives))

    def reborn(self, index: int) -> None:
        """Record the next incarnation of a peer, whose place and process have been changed."""
        view, path = self.views[index], self._places[index].folder / "metrics.jsonl"
        view.state, view.why, view.script_error = State.STARTING, "", ""
        self._deaths = [life for life in self._deaths if life[0] != view.id]
        if self._tails[index].path != path:
            self._tails[index] = Tail(path)
        self._over[index] = False

    def update(self) -> list[str]:
        """Read the current state, and return sentences about events since the last call."""
        for index in range(len(self.views)):
            self._look(index)
        news, self._news = self._news, []
        return news

    def take_deaths(self) -> list[Life]:
        """Return incarnations that died since the last call, and have no successor yet."""
        deaths, self._deaths = self._deaths, []
        return deaths

    def _look(self, index: int) -> None:
        if self._over[index]:
            return
        view = self.views[index]
        status = self._processes[index].poll()
        for row in self._tails[index].rows():
            view.take(row)
            self._on_row(view.id, row)
            view.state = State.FINISHED if view.progress == 1.0 else State.TRAINING
        folder = self._places[index].folder
        for path in sorted(folder.glob("*/metrics.jsonl")):
            for row in self._further.setdefault(path, Tail(path)).rows():
                view.take(row)
                self._on_row(f"{view.id}/{path.parent.name}", row)
                view.state = State.TRAINING
        if status is not None:
            before = view.state
            self._over[index] = True
            view.state, view.why, view.script_error = _ending(folder, status)
            if (view.state is not before and view.state in OVER) or (
                view.state is State.FINISHED and view.why
            ):
                why = f": {view.why}" if view.why else ""
                self._news.append(f"{view.id} {view.state} at step {view.step}{why}")
            if view.script_error:
                self._news.append(f"{view.id}: its script failed afterwards: {view.script_error}")
            if view.state in (State.KILLED, State.FAILED):
                self._deaths += lives_in(self._places[index])


def ended_view(place: Place, status: int | None, earlier: Sequence[LifeEnd] = ()) -> PeerView:
    """Return the view of one of several peers of a process that has ended."""
    view = PeerView(place.id, None, earlier=list(earlier))
    for row in Tail(place.folder / "metrics.jsonl").rows():
        view.take(row)
    view.state, view.why, view.script_error = _ending(place.folder, status or 0)
    return view


def read_report(folder: Path) -> dict[str, Any] | None:
    """Return a peer's report of its end; None if it is missing."""
    try:
        from ...train.storage.files import read_json

        report = read_json(folder / "peer.json")
    except (OSError, ValueError):
        return None
    is_one = isinstance(report, dict) and report.get("state", State.FINISHED) in list(State)
    return report if is_one else None


def last_words(folder: Path) -> str:
    """Return the last informative line of a peer's log, without ``error:``."""
    try:
        lines = read_log(folder)
    except FileNotFoundError:
        return ""
    said = [_RANK.sub("", line).strip() for line in lines if any(map(str.isalnum, line))]
    errors = [line for line in said if line.startswith("error: ")]
    return (errors or said or [""])[-1].removeprefix("error: ")


def read_log(folder: Path) -> list[str]:
    """Read the lines of a peer's log, without torchrun's report on the processes that failed."""
    lines = (folder / "log.txt").read_text(errors="replace").splitlines()
    reports = (n for n, line in enumerate(lines) if _TORCHRUN in line and "failed" in line)
    return lines[: max(reports, default=len(lines))]


def _ending(folder: Path, status: int) -> tuple[State, str, str]:
    """Return the state, its reason, and how the process failed once training was over."""
    report = read_report(folder)
    if report is None and status == 0:
        # All peers of the process may have names, and therefore folders of their own.
        further = (read_report(path.parent) for path in sorted(folder.glob("*/peer.json")))
        report = next(filter(None, further), None)
    # The convention of shells, and `rumor.train.Peer`, for a process that a signal has ended.
    by_shell = status - 128 if status - 128 in set(signal.Signals) else 0
    number = -status if status < 0 else by_shell
    if report is not None:
        state = State(report["state"])
        asked = state is State.LEFT and number in _ASKED
        tail = status != 0 and state is not State.FAILED and not asked
        error = report.get("error") or ""
        by = f"ended by {report['ended_by']}" if report.get("ended_by") else ""
        if tail:
            return state, by, error or _last_error(folder, status, number)
        return state, error or by, ""
    if number and number not in _CRASHES:
        return State.KILLED, _signal(number), ""
    return State.FAILED, _last_error(folder, status, number), ""


def _last_error(folder: Path, status: int, number: int) -> str:
    """Return why a process failed, as far as known."""
    if problem := _why_not_writable(folder):
        # Its log is on the same disk: its error message is lost.
        return problem
    if number:
        return f"ended by {_signal(number)}"
    if not status:
        return (
            "its process ended with exit status 0, and no peer trained to its end in it: see that "
            "it reaches the end of a `with Peer(model)` block, and is not read from stdin, which "
            "is empty"
        )
    return with_advice(last_words(folder)) or f"exit status {status}"


_PROBE_BYTES: Final = 1 << 16


def _why_not_writable(folder: Path) -> str:
    """Return why a peer's folder has become read-only; empty if it has not."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return not_written("its folder", error)
    return ""


def _signal(number: int) -> str:
    # Most real-time signals have no name.
    return next((each.name for each in signal.Signals if each == number), f"signal {number}")


def lives_in(place: Place) -> set[Life]:
    """Return the incarnations that have opened a ledger in a place."""
    found = set()
    for folder in (*place.earlier, place.folder):
        for path in folder.glob("ledger*.jsonl"):
            # Without a row, the incarnation ended within its first line.
            for opened in read_metrics(path)[:1]:
                try:
                    found.add((str(opened["id"]), int(opened["incarnation"])))
                except (LookupError, TypeError, ValueError) as error:
                    raise TrainingError(f"{path} is not a ledger: {error!r}") from None
    return found
