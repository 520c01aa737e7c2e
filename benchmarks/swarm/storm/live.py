"""Runs of real peers on this machine: launched, waited for, and read from what they left."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from ....gossip.errors import RumorError
from ....sim.results.live_run import LivePeer, LiveRun, read_live_run
from ....train.model import with_own_names
from ....train.tasks.task import Task
from .figures import Course, Span, Strikes

__all__ = ["Ran", "StormError", "courses_of", "held_out_loss", "launch"]

_LAUNCH: Final = (sys.executable, "-P", "-m", "rumor.cli", "launch", "--json")

_KILLED: Final = "is killed"
_AGAIN: Final = "begins its next life"
_STILL: Final = "stands still"


class StormError(RumorError):
    """A launch failed, or took too long; its folder says more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A run that is over."""

    run: LiveRun
    summary: Mapping[str, Any]
    """What the launch printed."""
    courses: tuple[Course, ...]
    end_s: float
    """When the last step was taken, seconds since all trained."""
    began_unix_s: float
    """When all trained, by the calendar."""


def launch(
    out: Path,
    options: Mapping[str, object],
    *,
    faults: Path | None = None,
    threads: int = 1,
    timeout_s: float,
) -> Ran:
    """Launch peers and wait for their end.

    Args:
        out: The run's folder, absolute, which does not exist yet; peers work in the one above.
        options: Of `rumor launch`, by their names without dashes.
        faults: What is done to the peers.
        threads: That each computes with.
        timeout_s: How long to wait, seconds.

    Raises:
        StormError: It failed, or took too long.
    """
    words = [f"--{name}={value}" for name, value in {**options, "out": out}.items()]
    if faults is not None:
        words.append(f"--faults={faults}")
    process = subprocess.Popen(
        (*_LAUNCH, *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=out.parent,
        env={**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": _paths()},
    )
    try:
        told, said = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise StormError(f"the run in {out} took more than {timeout_s:.0f} s") from None
    finally:
        # Asked twice, a launcher kills its peers; if it is killed itself, they go on.
        for _ in range(2):
            if process.poll() is None:
                process.terminate()
    if process.returncode:
        why = (said.strip().splitlines() or ["no reason given"])[-1]
        raise StormError(f"rumor launch ended with status {process.returncode}: {why}")
    summary = json.loads(told.splitlines()[-1])
    run = read_live_run(out)
    began_unix_s = max(peer.rows[0]["unix_s"] for peer in run.peers)
    courses = courses_of(run.peers, summary["faults"], began_unix_s)
    end_s = max(course.steps_s[-1] for course in courses)
    return Ran(run=run, summary=summary, courses=courses, end_s=end_s, began_unix_s=began_unix_s)


def _paths() -> str:
    """Where peers find a task of the user's: where this process does."""
    return os.pathsep.join([os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])])


def courses_of(
    peers: Iterable[LivePeer], faults: Sequence[Mapping[str, Any]], began_unix_s: float
) -> tuple[Course, ...]:
    """Read when peers stepped, exchanged and were down.

    Args:
        peers: Which wrote a row for each step.
        faults: What was done to them, as a launch's summary tells it.
        began_unix_s: What times are counted from.
    """
    return tuple(
        _course(peer, _strikes(faults, peer.id, began_unix_s), began_unix_s) for peer in peers
    )


def _strikes(faults: Sequence[Mapping[str, Any]], id: str, began_unix_s: float) -> Strikes:
    kills: list[float] = []
    starts: list[float] = []
    pauses: list[Span] = []
    cuts: list[Span] = []
    for fault in faults:
        done = [(each["unix_s"] - began_unix_s, each["what"]) for each in fault["done"]]
        if not done:
            continue
        (when_s, what), *later = done
        if any(id in group for group in fault.get("groups", ())):
            cuts.append((when_s, later[0][0] if later else inf))
        if not what.startswith(f"{id} "):
            continue
        if what.endswith(_KILLED):
            kills.append(when_s)
        elif _AGAIN in what:
            starts.append(when_s)
        elif what.endswith(_STILL):
            pauses.append((when_s, later[0][0] if later else inf))
    return Strikes(
        kills_s=tuple(kills),
        starts_s=tuple(sorted(starts)),
        pauses=tuple(pauses),
        cuts=tuple(cuts),
    )


def _course(peer: LivePeer, strikes: Strikes, began_unix_s: float) -> Course:
    rows = sorted(peer.rows, key=lambda row: row["unix_s"])
    times = [row["unix_s"] - began_unix_s for row in rows]
    exchanges, last, lives = [], 0, iter([*strikes.starts_s, inf])
    next_life_s = next(lives)
    for row, time_s in zip(rows, times, strict=True):
        while time_s > next_life_s:
            # Counts begin again in each life.
            last, next_life_s = 0, next(lives)
        count = row["pushes"] + row["mixed"]
        if count > last:
            exchanges.append(time_s)
        last = count
    return Course(
        id=peer.id,
        steps_s=tuple(times),
        exchanges_s=tuple(exchanges),
        down=strikes.down(max(times[-1], *strikes.kills_s, *strikes.starts_s, 0.0)),
        starts_s=strikes.starts_s,
        cuts=strikes.cuts,
    )


def held_out_loss(task: Task, state: Mapping[str, Tensor]) -> float:
    """Measure a model on a task's held-out data.

    Args:
        task: What it was trained for.
        state: Its parameters, as a merged model's file has them.
    """
    model = task.model()
    model.load_state_dict(with_own_names(model, dict(state)))
    return task.evaluate(model).loss
