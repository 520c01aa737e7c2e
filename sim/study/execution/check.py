"""A study checked before anything runs: which trials cannot, and what the others take."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ....gossip.errors import ConfigError, RumorError
from ....train.tasks.task import Task
from ...batched.steppers.engines import alone
from ...batched.values import find_task
from ...batched.vector_tasks import VectorTask
from ...config import SimulationConfig
from ...simulate import Simulation
from ..study import Trial
from .cache_key import config_of, settings_as_json, trial_key

__all__ = ["InvalidTrial", "InvalidTrials", "ReadyTrial", "check_trials"]

# What a process takes that has loaded torch and has computed nothing yet, as measured.
_PROCESS_GIB = 0.45


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyTrial:
    """A trial that can run, as far as can be told without running it."""

    trial: Trial
    key: str
    """Its name in the store."""

    settings: dict[str, Any]
    """Every argument, as JSON has it."""

    task: str
    """Name of its task, and"""

    rule: str
    """of its rule."""

    steps: float
    """Optimizer steps of a worker, roughly."""

    memory_gib: float
    """What a process takes that computes it, an estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidTrial:
    """A trial that cannot run."""

    trial: Trial
    why: str


class InvalidTrials(ConfigError):
    """Some trials of a study cannot run; nothing was started."""

    def __init__(self, bad: Sequence[InvalidTrial], trials: Sequence[Trial]) -> None:
        super().__init__("\n".join([_headline(len(bad), len(trials)), *_reasons(bad, trials)]))
        self.bad = tuple(bad)


def check_trials(trials: Iterable[Trial]) -> tuple[list[ReadyTrial], list[InvalidTrial]]:
    """See which trials can run, without training anything.

    Graphs are built, data is split and files are read; rules that need everybody take two steps,
    with the first seed of a group alone.

    Returns:
        Those that can, and those that cannot, both in order.
    """
    good: list[ReadyTrial] = []
    bad: list[InvalidTrial] = []
    tasks = cache(lambda task, seed: find_task(SimulationConfig(task=task, seed=seed)))
    rehearsed: set[tuple[str, ...]] = set()
    for trial in trials:
        try:
            with alone():
                good.append(_check(trial, tasks, rehearse=trial.group not in rehearsed))
        except (RumorError, OSError) as error:
            bad.append(InvalidTrial(trial=trial, why=str(error) or type(error).__name__))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            why = f"a setting is of the wrong kind: {type(error).__name__}: {error}"
            bad.append(InvalidTrial(trial=trial, why=why))
        rehearsed.add(trial.group)
    return good, bad


def _check(trial: Trial, tasks: Any, *, rehearse: bool) -> ReadyTrial:
    config = config_of(trial.settings)
    settings = settings_as_json(config)
    # First, since its words for a task that cannot be found help more than those of the key.
    task: Task | VectorTask = tasks(config.task, config.seed)
    key = trial_key(settings)
    memory_gib = Simulation(config, task).check(rehearse=rehearse)
    return ReadyTrial(
        trial=trial,
        key=key,
        settings=settings,
        task=config.task_name,
        rule=config.rule,
        steps=_steps(config, task.steps),
        memory_gib=memory_gib + _PROCESS_GIB,
    )


def _steps(config: SimulationConfig, usual: int) -> float:
    ends = [
        config.steps,
        None if config.total_steps is None else config.total_steps / config.workers,
        None if config.time_s is None else config.time_s / config.step_s,
    ]
    return float(min((end for end in ends if end is not None), default=usual))


def _headline(bad: int, trials: int) -> str:
    some = "the study's only trial" if bad == trials == 1 else f"{bad:,} of {trials:,} trials"
    return (
        f"{some} cannot run, and nothing was started. Change them, or leave them out by [[skip]]:"
    )


def _reasons(bad: Sequence[InvalidTrial], trials: Sequence[Trial]) -> Iterable[str]:
    """Every reason once, and below it the trials that it holds for."""
    reasons: dict[str, list[Trial]] = {}
    for one in bad:
        reasons.setdefault(one.why, []).append(one.trial)
    for why, these in reasons.items():
        yield f"- {why}"
        yield from (f"    {line}" for line in _lines(these, trials))


def _lines(these: Sequence[Trial], trials: Sequence[Trial]) -> Iterable[str]:
    """Name some trials of a study: in one line if they are all that have certain labels."""
    places = [_place(trial) for trial in trials]
    wanted = [dict.fromkeys(labels) for labels in zip(*map(_place, these), strict=True)]
    alike = sum(all(map(dict.__contains__, wanted, place)) for place in places)
    if alike == len(these):
        names = [*these[0].labels, "seed"]
        there = [set(labels) for labels in zip(*places, strict=True)]
        said = [
            f"{name} {' or '.join(labels)}"
            for name, labels, all_labels in zip(names, wanted, there, strict=True)
            if len(labels) < len(all_labels)
        ]
        counted = f"{len(these):,} trial{'s' * (len(these) != 1)}"
        yield f"{', '.join(said) or 'all'} ({counted})"
        return
    seeds: dict[str, list[int]] = {}
    for trial in these:
        where = ", ".join(f"{axis} {label}" for axis, label in trial.labels.items())
        seeds.setdefault(where, []).append(trial.seed)
    for where, found in seeds.items():
        yield f"{where} ({'seed' if len(found) == 1 else 'seeds'} {', '.join(map(str, found))})"


def _place(trial: Trial) -> tuple[str, ...]:
    return (*trial.group, str(trial.seed))
