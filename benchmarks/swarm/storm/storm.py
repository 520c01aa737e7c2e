"""``storm``: real peers under a storm: who takes part, pauses and comes back, what is learnt."""

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch
from safetensors.torch import load_file

from ....gossip.errors import ConfigError
from ....sim.calibration.calibration import calibrate
from ....sim.kernel.faults.files import Fault, read_faults
from ....train.storage.files import write_json
from ....train.tasks.registry import load_task
from ....train.tasks.task import Task
from ...results import Result
from .figures import longest_pause, participation, returns
from .live import Ran, StormError, held_out_loss, launch
from .predicted import Predicted, predict_courses, predict_model
from .rivals import RIVALS, rival_rows
from .rows import Seen, Storm, rows_of
from .schedule import drawn, kills_in_turn, write_faults
from .tasks import lean, lean_spec

__all__ = ["measure_storm"]

_log = logging.getLogger("rumor.benchmarks")

_P: Final = 0.2
_INTERVAL_PUSHES: Final = 3.0
"""An interval lasts for so many pushes of each peer, in the mean: one that is alive in all of it
pushes with 95 %."""

_BATCHES: Final = {"code-3.3m": 2}
"""Samples of a step, where the task's own would take too long for eight peers on two cores."""

_ROOM: Final = 1.5
"""How many times as long as its computing a step lasts, asleep for the rest: what the machine has
left is for processes that start."""
_STEP_S_MIN: Final = 0.05
_TIMED: Final = 5

_CALIBRATED: Final = 0.1
"""Of the time of the storm; and at least, and at most, so many seconds."""
_CALIBRATED_S: Final = (20.0, 60.0)
_DOWN_S: Final = 1.0

_SHORT_S: Final = 0.05

_END_S: Final = 600.0
"""For starts and ends of processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What is run."""

    spec: str
    """Of the task, as people type it."""
    told: str
    """The same, as peers are told."""
    folder: Path
    """Where all of it goes; the working directory of peers, too."""
    task: Task
    """The same, with all its held-out data."""
    peers: int
    seconds: float
    seed: int
    batch_size: int
    busy_s: float
    """What a step takes of a core, seconds."""
    step_s: float
    """How long it is to last."""
    p: float

    @property
    def options(self) -> dict[str, object]:
        """Of `rumor launch`, whatever is launched."""
        return {
            "task": self.told,
            "seed": self.seed,
            "device": "cpu",
            "log-every": 1,
            "eval-every": 10**9,
        }

    @property
    def of_peers(self) -> dict[str, object]:
        """Likewise, of a swarm."""
        return self.options | {
            "peers": self.peers,
            "batch-size": self.batch_size,
            "step-s-min": self.step_s,
            "p": self.p,
            "timing": "local",
            "checkpoint-every": f"{self.checkpoint_s:g}s",
        }

    @property
    def checkpoint_s(self) -> float:
        """Time between two checkpoints of a peer, seconds."""
        return round(10 * self.step_s, 3)

    @property
    def interval_s(self) -> float:
        """In which a peer is to take part once, seconds."""
        return _INTERVAL_PUSHES / self.p * self.step_s


def measure_storm(
    minutes: float = 10,
    peers: int = 8,
    task: str = "code-3.3m",
    seed: int = 0,
    out: Path | str | None = None,
    *,
    storm: str = "ft-diloco-125",
    scale: float | None = None,
    faults: Path | str | None = None,
    p: float = _P,
    rivals: tuple[str, ...] = tuple(RIVALS),
) -> Result:
    """Calibrate, predict, let a storm strike real peers, and train the same model alone.

    Args:
        minutes: How long the storm lasts.
        peers: How many processes.
        task: What they train.
        seed: Of everything random.
        out: Where the runs, the fault file and the prediction are kept; nowhere unless given.
        storm: Its name, or its file.
        scale: How many times as fast it goes; such that an hour of it strikes unless given.
        faults: A fault file in its place.
        p: Probability of a push at a step.
        rivals: Names of other systems that are run beside ours.

    Raises:
        ConfigError: An argument is out of range, or the folder exists.
        StormError: A run failed.
    """
    if not 0 < minutes <= 24 * 60:
        raise ConfigError(f"minutes is {minutes:g}: it must be above 0 and at most 1440")
    if peers < 2:
        raise ConfigError(f"peers is {peers}: a storm takes 2 at least")
    seconds = 60 * minutes
    with _folder(out) as folder:
        asked = _asked(task, folder, peers, seconds, seed, p)
        if faults is None:
            scale = 3600 / seconds if scale is None else scale
            strikes = drawn(storm, peers, seconds, seed, scale)
        else:
            strikes = read_faults(faults)
        found = _measure(asked, strikes)
    title = f"{peers} peers, {task}, {minutes:g} minutes, {len(strikes)} faults"
    if faults is None:
        title += f" of {storm}, {scale:g} times as fast"
    return Result(
        name="storm",
        title=title,
        columns=("what", "measured", "beside", "ratio", "unit", "beside what, and notes"),
        rows=(*rows_of(found), *rival_rows(rivals, found, _n_params(asked.task))),
    )


@contextmanager
def _folder(out: Path | str | None) -> Iterator[Path]:
    if out is None:
        with TemporaryDirectory() as folder:
            yield Path(folder).resolve()
        return
    path = Path(out)
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise ConfigError(f"{path} is there and not an empty folder: name one that does not exist")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be made: {error.strerror}") from error
    yield path.resolve()


def _asked(spec: str, folder: Path, peers: int, seconds: float, seed: int, p: float) -> _Asked:
    task = load_task(spec, seed=seed)
    batch_size = _BATCHES.get(spec, task.batch_size)
    busy_s = _busy_s(task, batch_size)
    crowd = max(1.0, peers / (os.cpu_count() or 1))
    step_s = max(_STEP_S_MIN, round(_ROOM * crowd * busy_s, 2))
    _log.info("a step takes %.3g s of a core, and is to last %.3g s", busy_s, step_s)
    return _Asked(
        spec=spec,
        told=lean_spec(spec, folder),
        folder=folder,
        task=task,
        peers=peers,
        seconds=seconds,
        seed=seed,
        batch_size=batch_size,
        busy_s=busy_s,
        step_s=step_s,
        p=p,
    )


def _busy_s(task: Task, batch_size: int) -> float:
    """Seconds of a core that an optimizer step takes."""
    if not isinstance(task.train, tuple):
        raise ConfigError(
            f"the data of {task.name} are no tensors: a storm takes a task of tensors"
        )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch.manual_seed(0)
        model = task.model()
        optimizer = task.optimizer(model.parameters(), task.lr)
        batch = tuple(each[:batch_size] for each in task.train)
        taken_s = []
        for _ in range(_TIMED + 1):
            start_s = time.process_time()
            optimizer.zero_grad()
            task.batch_loss(model, batch).backward()
            optimizer.step()
            taken_s.append(time.process_time() - start_s)
    finally:
        torch.set_num_threads(threads)
    return median(taken_s[1:])


def _measure(asked: _Asked, strikes: tuple[Fault, ...]) -> Storm:
    folder = asked.folder
    settings, start_s, calm = _calibrate(asked)
    file = write_faults(strikes, folder / "faults.json")
    given: dict[str, Any] = {"settings": settings, "faults": strikes, "start_s": start_s}
    total = predict_courses(**given, time_s=asked.seconds, total_steps=None).steps
    fleet = predict_courses(**given, time_s=asked.seconds, total_steps=total)
    _log.info("predicting %d steps", total)
    state = predict_model(**given, task=lean(asked.spec, seed=asked.seed), total_steps=total)
    predicted = _seen(asked, fleet, fleet.courses, held_out_loss(asked.task, state))
    # On disk before the first peer starts: what is predicted afterwards is no prediction.
    write_json(
        folder / "prediction.json",
        {"unix_s": time.time(), "start_s": start_s, "total_steps": total} | asdict(predicted),
    )
    written_unix_s = (folder / "prediction.json").stat().st_mtime
    _log.info("the storm: %g s, %d steps", asked.seconds, total)
    options = asked.of_peers | {"total-steps": total}
    ran = launch(folder / "live", options, faults=file, timeout_s=3 * asked.seconds + _END_S)
    loss = held_out_loss(asked.task, load_file(folder / "live" / "model.safetensors"))
    measured = _seen(asked, ran, ran.courses, loss)
    alone = {
        name: _alone(asked, folder / f"alone-{name}", batch, steps)
        for name, batch, steps in (
            ("wide", asked.peers * asked.batch_size, ceil(total / asked.peers)),
            ("long", asked.batch_size, total),
        )
    }
    return Storm(
        peers=asked.peers,
        batch_size=asked.batch_size,
        step_s=asked.step_s,
        p=asked.p,
        interval_s=asked.interval_s,
        total_steps=total,
        measured=measured,
        predicted=predicted,
        ahead_s=ran.began_unix_s - written_unix_s,
        start_s=start_s,
        calm=calm,
        ledger=ran.summary["ledger"],
        alone=alone,
        done=_done(ran.summary["faults"]),
    )


def _n_params(task: Task) -> int:
    return sum(parameter.numel() for parameter in task.model().parameters())


def _done(faults: list[dict[str, Any]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for fault in faults:
        if fault["done"]:
            found[fault["kind"]] = found.get(fault["kind"], 0) + 1
    return found


def _calibrate(asked: _Asked) -> tuple[Mapping[str, Any], float, Seen]:
    """Run the same peers for a while, and kill a few of them, one after another.

    Returns:
        Settings of a simulation; how long a process takes from its start to its first message,
        seconds; what was seen.
    """
    folder, (least_s, most_s) = asked.folder, _CALIBRATED_S
    seconds = min(most_s, max(least_s, _CALIBRATED * asked.seconds))
    total = ceil(seconds / asked.step_s) * asked.peers
    kills = kills_in_turn(asked.peers, seconds, _DOWN_S)
    _log.info("calibrating: %g s, %d steps", seconds, total)
    ran = launch(
        folder / "calibration",
        asked.of_peers | {"total-steps": total},
        faults=write_faults(kills, folder / "calibration.faults.json"),
        timeout_s=3 * seconds + _END_S,
    )
    found = calibrate(ran.run)
    found.write(folder / "calibration.json")
    settings = found.simulation() | {
        "checkpoint_every_s": asked.checkpoint_s,
        "task": lean(asked.spec, seed=asked.seed),
    }
    fleet = predict_courses(settings, kills, time_s=seconds, total_steps=total)
    calm = _seen(asked, ran, ran.courses, None)
    start_s = max(0.0, calm.returns.median_s - returns(fleet.courses).median_s)
    return settings, start_s, calm


def _seen(asked: _Asked, run: "Ran | Predicted", courses: Any, loss: float | None) -> Seen:
    return Seen(
        participation=participation(courses, asked.interval_s, run.end_s),
        pause=longest_pause(courses),
        returns=returns(courses),
        end_s=run.end_s,
        loss=loss,
    )


def _alone(asked: _Asked, out: Path, batch_size: int, steps: int) -> float | str:
    """Train in one process that sees all data; the loss, or why there is none."""
    _log.info("one process alone: %d steps of %d samples", steps, batch_size)
    options = asked.options | {"peers": 1, "batch-size": batch_size, "steps": steps}
    options |= {"log-every": max(1, steps // 100)}
    # Threads wait for one another in every step, which short ones are not worth.
    busy_s = asked.busy_s * batch_size / asked.batch_size
    threads = 1 if busy_s < _SHORT_S else os.cpu_count() or 1
    try:
        launch(out, options, threads=threads, timeout_s=3 * asked.seconds + _END_S)
    except StormError as error:
        return str(error)
    return held_out_loss(asked.task, load_file(out / "model.safetensors"))
