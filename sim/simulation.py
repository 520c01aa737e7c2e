"""A simulation as its settings describe it: made ready once, checked, run as often as need be."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial

from ..gossip import PeerId, Schema, TrainingError
from ..gossip.rule import demands_of
from ..gossip.rules import make_rule
from ..gossip.state import Neighbors
from ..topology import parse
from ..train.task import Task
from ..train.tasks import load_task
from .ahead import ahead, can_run_ahead
from .collector import settled
from .config import SimulationConfig
from .cores import usable_cores
from .fault_plan import names_of, plan_faults
from .fleet import Fleet
from .links import Links
from .measure import Curves
from .memory import check_memory
from .models import Models
from .neighborhood import LiveNeighborhood, Neighborhood
from .network import NetworkConfig, read_network
from .pace import InTurn, make_pace
from .plan import FleetPlan, Stop
from .progress import Progress
from .run import Run
from .schedule import Ending, Window, schedule
from .summary import summarize
from .values import Values, check_values, prepare
from .vectors import VECTOR_TASKS, VectorRows, VectorTask

__all__ = ["Simulation", "find_task", "why_diverged"]

_POINTS = 40
_POINTS_MAX = 60
_WINDOW_MIN = 2000
_WINDOW_PER_WORKER = 4

# Below so many steps in all, starting a process does not pay.
_STEPS_AHEAD = 4_000

# In the second all have heard from all that they need.
_STEPS_TRIED = 2


class Simulation:
    """What stays the same however often a run has to start over.

    Args:
        config: What is asked for.
        task: What is trained, where it was found before.

    Raises:
        ConfigError: A setting is out of range, or a file cannot be read.
        TopologyError: The topology is not valid for so many workers.
    """

    def __init__(self, config: SimulationConfig, task: Task | VectorTask | None = None) -> None:
        self.config = config
        # Before anything is made for each of a billion workers.
        check_memory(config, row_bytes=0, registers=0)
        self._cores = config.threads or usable_cores()
        self._task = task = find_task(config) if task is None else task
        self._trouble = plan_faults(config)
        self.ids = names_of(config.workers, self._trouble)
        self._network = _network(config)
        pace = make_pace(
            config.pace,
            ids=self.ids[: config.workers],
            step_s=config.step_s,
            speeds=config.speeds,
            slow=config.slow,
            seed=config.seed,
        )
        self._pace = pace if self._trouble is None else InTurn(pace, config.workers)
        self._topology = parse(
            config.topology, config.workers, seed=config.seed, mixing=config.mixing
        )
        ends = config.time_s or config.total_steps
        self.steps = config.steps or (None if ends else task.steps)

    @cached_property
    def _values(self) -> Values:
        return prepare(self.config, self._task, self.ids, self._cores, trouble=self._trouble)

    def prepare(self) -> None:
        """Choose how to compute, which takes as long as some steps do.

        Raises:
            ConfigError: It cannot be computed in the way that was asked for, or does not fit.
        """
        _ = self._values

    def check(self, *, rehearse: bool = True) -> float:
        """See whether it can run, without choosing an engine or computing a step.

        Args:
            rehearse: Whether a rule that needs everybody decides for a step or two, for that shows
                whether it can work on this topology.

        Returns:
            What its values will take of memory, an estimate, GiB.

        Raises:
            ConfigError: The data cannot be split so, the rule cannot work with shares of this
                kind, or memory does not suffice.
            TrainingError: The rule could not go on.
        """
        checked = check_values(self.config, self._task, self.ids)
        plan = self._plan(checked.schema, checked.anchor)
        if not (rehearse and demands_of(plan.rule()).fixed_members):
            plan.links()
            return checked.memory_gib
        fleet = Fleet(replace(plan, steps=_STEPS_TRIED))
        with settled():
            fleet.run(math.inf, _STEPS_TRIED * len(self.ids))
        if fleet.halts:
            raise TrainingError(next(iter(fleet.halts.values())))
        return checked.memory_gib

    def run(
        self,
        stops: Sequence[Stop],
        started_s: float,
        progress: Callable[[Progress], None] | None,
    ) -> Run:
        """Run once, from the start to the end.

        Raises:
            Failure: A worker's values are not finite any more; nothing of this run counts.
            TrainingError: The rule could not go on.
        """
        values, curves = self._values.make(), Curves()
        ending: Ending | None = None
        try:
            for window in self._windows(values, stops):
                values.execute(window.levels)
                ending = window.ending
                if window.reading is not None:
                    curves.add(window.reading, values)
                if progress is not None:
                    progress(self._progress(window, curves, time.perf_counter() - started_s))
        finally:
            values.close()
        assert ending is not None
        if ending.halts:
            raise TrainingError(self._why_halted(stops, next(iter(ending.halts.values()))))
        return summarize(
            self.config,
            values=values,
            topology=self._topology.spec,
            rule=self.config.rule_spec.make(),
            curves=curves,
            ending=ending,
            stopped=[self.ids[worker] for worker in sorted({stop.worker for stop in stops})],
            faults=() if self._trouble is None else self._trouble.faults,
            ids=self.ids,
            engine=self._values.engine,
            engine_why=self._values.why,
            wall_s=time.perf_counter() - started_s,
        )

    def _why_halted(self, stops: Sequence[Stop], reason: str) -> str:
        if not stops:
            return reason
        why = why_diverged(self.ids, stops, self.config)
        return f"{self.config.rule} cannot go on without a worker: {why}"

    def _windows(self, values: Models | VectorRows, stops: Sequence[Stop]) -> Iterator[Window]:
        config = self.config
        source = values.rows if isinstance(values, Models) else values
        windows = partial(
            schedule,
            self._plan(source.schema, source.anchor),
            stops,
            every_s=self._every_s(),
            shift_s=config.step_s / 2,
            time_s=config.time_s,
            # A rule that waits may take much longer than its steps do.
            marks_max=_POINTS_MAX if config.eval_every is None else None,
            window=config.window or max(_WINDOW_MIN, _WINDOW_PER_WORKER * config.workers),
        )
        return ahead(windows) if self._runs_ahead() else windows()

    def _plan(self, schema: Schema, anchor: bytes) -> FleetPlan:
        config = self.config
        neighbors: Neighbors = Neighborhood(self._topology, self.ids)
        if self._trouble is not None:
            neighbors = LiveNeighborhood(config.topology, config.seed, config.mixing)
        return FleetPlan(
            ids=self.ids,
            schema=schema,
            anchor=anchor,
            rule=partial(make_rule, str(config.rule_spec)),
            neighbors=neighbors,
            pace=self._pace,
            links=partial(Links, self._network, self.ids, config.seed),
            seed=config.seed,
            steps=self.steps,
            protocol=config.protocol,
            steps_total=config.total_steps,
            trouble=self._trouble,
        )

    def _runs_ahead(self) -> bool:
        """Whether deciding is worth a process of its own: where computing takes no longer."""
        total = self.config.total_steps or math.inf
        steps = min(total, len(self.ids) * (self.steps or math.inf))
        batches = self._values.engine in ("batched", "fast")
        return self._cores > 1 and batches and steps >= _STEPS_AHEAD and can_run_ahead()

    def _every_s(self) -> float:
        """Virtual seconds between two measurements."""
        step_s = self.config.step_s
        if self.config.eval_every is not None:
            return self.config.eval_every * step_s
        if self.steps is None and self.config.total_steps is None:
            return (self.config.time_s or 0.0) / _POINTS
        slowest_s = max(self._pace.mean_s(worker) for worker in range(len(self.ids)))
        shared = (self.config.total_steps or math.inf) / self.config.workers
        return math.ceil(min(self.steps or math.inf, shared) / _POINTS) * slowest_s

    def _steps_total(self) -> int | None:
        """How many steps it will be, as far as that is known."""
        ends = [self.config.total_steps, None if self.steps is None else self.steps * len(self.ids)]
        return min((end for end in ends if end is not None), default=None)

    def _progress(self, window: Window, curves: Curves, wall_s: float) -> Progress:
        evaluation = curves.evaluation
        return Progress(
            steps=window.steps,
            steps_total=self._steps_total(),
            time_s=window.time_s,
            wall_s=wall_s,
            loss=evaluation.loss if evaluation else None,
            accuracy=evaluation.accuracy if evaluation else None,
        )


def find_task(config: SimulationConfig) -> Task | VectorTask:
    """Find what is trained.

    Raises:
        ConfigError: There is no such task, or it cannot be built.
    """
    task = config.task
    if not isinstance(task, str):
        return task
    return VECTOR_TASKS[task]() if task in VECTOR_TASKS else load_task(task, seed=config.seed)


def _network(config: SimulationConfig) -> NetworkConfig:
    network = config.network
    found = read_network(network) if isinstance(network, str) else network
    return found.with_changes(
        latency_s=config.latency_s,
        bandwidth_mbit=config.bandwidth_mbit,
        loss=config.loss,
        duplicates=config.duplicates,
    )


def why_diverged(ids: Sequence[PeerId], stops: Sequence[Stop], config: SimulationConfig) -> str:
    """Say whose values were not finite any more, and why that may be."""
    first = min(stops, key=lambda stop: stop.step)
    lr = config.lr if config.lr is not None else "the task's"
    several = "1 worker" if len(stops) == 1 else f"{len(stops)} workers"
    return (
        f"{several} of {len(ids)} diverged, the first {ids[first.worker]} at its step "
        f"{first.step + 1}: the learning rate ({lr}) is too high for this task"
    )
