"""What a launcher can see of its peers from outside: their files, and how their processes ended."""

import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from .plan import Place

__all__ = ["Process", "Sight", "State", "Tail", "Watch", "last_words", "read_report"]


class State(StrEnum):
    """Where a peer is in its life."""

    STARTING = "starting"
    """Its process is there; it has not trained yet."""
    TRAINING = "training"
    FINISHED = "finished"
    """It has taken all its steps; as long as others train it goes on mixing."""
    LEFT = "left"
    """It was asked to stop, and handed its weight on."""
    KILLED = "killed"
    """A signal ended it: to the others a machine that died."""
    FAILED = "failed"
    """It stopped with an error."""


OVER = {State.LEFT, State.KILLED, State.FAILED}


class Process(Protocol):
    """As much of ``subprocess.Popen`` as watching needs."""

    def poll(self) -> int | None:
        """Exit status, minus the signal's number for a killed one; None while it runs."""


class Tail:
    """Rows of a JSON-lines file as they come, each once and only when it is whole.

    Args:
        path: The file, which need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def rows(self) -> list[dict[str, Any]]:
        """The rows that were completed since the last call."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [json.loads(line) for line in whole.splitlines() if line]


@dataclass(slots=True)
class Sight:
    """What is known of one peer now."""

    id: str
    steps: int
    """How many it is to take."""
    state: State = State.STARTING
    step: int = 0
    step_s: float | None = None
    loss: float | None = None
    accuracy: float | None = None
    test_loss: float | None = None
    weight: float | None = None
    pushes: int = 0
    live: int | None = None
    why: str = ""
    """How it ended, where it did not finish."""

    def take(self, row: dict[str, Any]) -> None:
        """Bring it up to date with one row of metrics; what a row leaves out stays."""
        for name in ("step", "step_s", "loss", "accuracy", "test_loss", "weight", "pushes", "live"):
            if row.get(name) is not None:
                setattr(self, name, row[name])


class Watch:
    """The peers of one run.

    Args:
        places: Where they write.
        processes: In the same order.
        steps: That each is to take.
    """

    def __init__(self, places: Sequence[Place], processes: Sequence[Process], steps: int) -> None:
        self.sights = [Sight(place.id, steps) for place in places]
        self._places = places
        self._processes = processes
        self._tails = [Tail(place.folder / "metrics.jsonl") for place in places]
        self._over = [False] * len(places)

    @property
    def over(self) -> bool:
        """Whether all processes have ended."""
        return all(self._over)

    def update(self) -> list[str]:
        """Look again.

        Returns:
            Sentences about what has happened to peers since the last call.
        """
        news: list[str] = []
        for index, sight in enumerate(self.sights):
            if self._over[index]:
                continue
            before = sight.state
            status = self._processes[index].poll()
            for row in self._tails[index].rows():
                sight.take(row)
                sight.state = State.FINISHED if sight.step >= sight.steps else State.TRAINING
            if status is not None:
                self._over[index] = True
                sight.state, sight.why = _ending(self._places[index].folder, status)
            if sight.state is not before and sight.state in OVER:
                news.append(_sentence(sight))
        return news


def read_report(folder: Path) -> dict[str, Any] | None:
    """A peer's ``peer.json``; None where it left none."""
    try:
        report = json.loads((folder / "peer.json").read_text())
    except (FileNotFoundError, ValueError):
        return None
    return report if isinstance(report, dict) else None


def last_words(folder: Path) -> str:
    """The last line of a peer's log that says something, without ``error:``."""
    try:
        lines = (folder / "log.txt").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    said = [line.strip() for line in lines if line.strip()]
    errors = [line for line in said if line.startswith("error: ")]
    return (errors or said or [""])[-1].removeprefix("error: ")


def _ending(folder: Path, status: int) -> tuple[State, str]:
    report = read_report(folder)
    if report is not None:
        return State(report["state"]), report.get("error") or ""
    if status < 0:
        return State.KILLED, signal.Signals(-status).name
    return State.FAILED, last_words(folder) or f"exit status {status}"


def _sentence(sight: Sight) -> str:
    match sight.state:
        case State.KILLED:
            return f"{sight.id} was killed by {sight.why} at step {sight.step}"
        case State.LEFT:
            return f"{sight.id} left at step {sight.step}"
        case _:
            return f"{sight.id} failed at step {sight.step}: {sight.why}"
