"""`simulate`: a swarm from its settings to its `Run`.

Deciding comes first, computing follows:

1. `Simulation` makes a plan of the settings, and chooses who decides: machine code for plain rules
   without faults (`FastFleet`), else the protocols (`Fleet`).
2. `Scheduler.next_window` lets that fleet run for some thousand steps of virtual time. `Fleet.step`
   calls the protocol of a worker whose step is due; `EffectExecutor` turns what it asks for into
   messages that arrive later, and into operations on values: snapshot, mix, release, step.
3. A `Program` sorts these operations into levels, none of which depends on another of its level.
4. `Models.execute` carries a window's levels out: a `Stepper` (`dense`, `vmap` or `loop`) computes
   the gradients of all workers of a level, and `Shares` copies and mixes rows of one matrix.
5. Between two windows, `Curves` measures the models, and `summarize` makes the `Run` in the end.

So no decision depends on a value, unless a rule measures shares: then the fleet asks for them, and
what was decided so far is computed first.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cached_property, partial
from numbers import Real
from typing import Any

import torch
from torch import nn

from ..gossip import TrainingError
from ..gossip.errors import ConfigError, did_you_mean
from ..gossip.protocol.rule import require_topology, requirements_of
from ..gossip.protocol.state import Neighbors
from ..gossip.rules.registry import make_rule
from ..gossip.wire.schema import Schema
from ..topology import TopologyError, parse
from ..topology.live import LiveTopology
from ..train.faults.schedule import KINDS, Fault, read_faults, resolve
from ..train.tasks.data import n_samples_of
from ..train.tasks.random_state import kept_random_state
from ..train.tasks.task import Task, trained_by
from .batched import values as values_of
from .batched.cores import Threads, usable_cores
from .batched.models import Models
from .batched.schedule import Cost, Deciding, Ending, Progress, Scheduler, Window
from .batched.steppers.engines import Engine, alone
from .batched.steppers.stepper import Failure
from .batched.values import PreparedRun, check_memory, find_task, prepare
from .batched.vector_tasks import VectorRows, VectorTask
from .config import SimulationConfig
from .kernel.fast_path.choice import must_compile, takes_fast_path, verify_against_protocol
from .kernel.fast_path.fleet import FastFleet
from .kernel.faults.attacks import attacks_of, require_attackable
from .kernel.fleet import Fleet
from .kernel.gc import paused
from .kernel.plan import Attack, FaultPlan, FleetPlan, worker_names
from .kernel.program import Level
from .models.links import Links
from .models.network import NetworkConfig, network_of, read_network
from .models.stand_in import slowed_network, smaller_exchange
from .models.step_time import make_step_time
from .models.topology import VIEWS_KEPT, WorkerTopology, machines_of, require_machines
from .results.figures import describe_cost
from .results.measure import Curves
from .results.run import Run, summarize
from .storm import Storm, draw_storm

__all__ = ["Simulation", "simulate"]


def _plan_faults(
    config: SimulationConfig, faults: Sequence[Fault]
) -> tuple[FaultPlan | None, tuple[Attack, ...], tuple[Fault, ...]]:
    """Return faults of processes and network (None without any), attacks, and all by name."""
    if not faults:
        return None, (), ()
    faults = resolve(faults, worker_names(config.workers))
    if config.time_s is not None:
        for fault in faults:
            if fault.at_s > config.time_s:
                where = f"fault {fault.row or faults.index(fault) + 1} ({fault.kind})"
                end = f"after the end of the run at {config.time_s:g} s"
                raise ConfigError(f"{where} is at {fault.at_s:g} s, {end}")
    others = tuple(fault for fault in faults if not KINDS[fault.kind].is_attack)
    plan = None
    if others:
        plan = FaultPlan(
            faults=others, founders=config.workers, checkpoint_every_s=config.checkpoint_every_s
        )
    attacks = attacks_of(faults, worker_names(config.workers, plan))
    require_attackable(attacks, config.rule_spec.make(), config.wire)
    return plan, attacks, faults


# Larger fleets are verified by their first workers: the verified steps are then several of each,
# and few protocols are cheap.
_WORKERS_PROVEN_MAX, _WORKERS_PROVEN = 512, 256

_POINTS = 40
_POINTS_MAX = 60
_WINDOW_MIN = 2000
_WINDOW_PER_WORKER = 4

# In the second step all have received from all that they need.
_STEPS_TRIED = 2

# How long steps are tried for an estimate of a run's time, and how many samples a measurement.
_TRIAL_S = 0.1
_SAMPLES_TRIED = 64

# Time between two reports about one window, seconds.
_REPORT_S = 1.0


class Simulation:
    """A run that is prepared and checked."""

    def __init__(self, config: SimulationConfig, task: Task | VectorTask | None = None) -> None:
        # Before anything is made for each of a billion workers.
        check_memory(config, row_bytes=0, registers=0)
        self._cores = config.threads or usable_cores()
        task = values_of.with_test(find_task(config) if task is None else task, config.tested)
        if not isinstance(config.task, str):
            # The task that a function made replaces it, for its name.
            config = replace(config, task=task)
        self.config = config
        self._trained_by: dict[str, Any] = {}
        if isinstance(task, Task):
            task = task.trained_with(optimizer=config.optimizer, momentum=config.momentum)
            full = "float32" if task.precision == "auto" else None
            task = task.trained_with(precision=config.precision or full)
            self._trained_by = trained_by(task, config.lr, config.lr_schedule)
        self._task = task
        storm: Storm | None = None
        if config.storm is not None:
            drawn_for = config.workers, config.time_s or 0.0, config.seed
            storm = draw_storm(config.storm, *drawn_for, scale=config.storm_scale)
        faults = read_faults(config.faults) if storm is None else storm.faults
        self._fault_plan, self._attacks, self._faults = _plan_faults(config, faults)
        self.ids = worker_names(config.workers, self._fault_plan)
        self._network = _network(config, storm)
        self._pace = make_step_time(
            config.pace,
            ids=self.ids[: config.workers],
            step_s=config.step_s,
            speeds=config.speeds,
            slow=config.slow,
            seed=config.seed,
        )
        self._topology = parse(config.topology, config.workers, seed=config.seed)
        rule = config.rule_spec.make()
        require_topology(rule, config.topology, lambda: self._topology.is_tree)
        require_machines(rule, self._topology)
        ends = config.time_s or config.total_steps
        self.steps = config.steps or (None if ends else task.steps)

    @cached_property
    def engine(self) -> Engine:
        """How values are computed; the choice takes as long as some steps do."""
        return self._prepared.choose()

    @cached_property
    def _prepared(self) -> PreparedRun:
        return prepare(self.config, self._task, self.ids)

    @cached_property
    def _is_fast(self) -> bool:
        return takes_fast_path(self.config.decide, self._plan, self._steps_expected)

    def check(self, *, rehearse: bool = True) -> float:
        """Check that it can run, without choosing an engine or computing a step.

        Args:
            rehearse: Let a rule that needs all workers decide for two steps on this topology.

        Returns:
            Estimated memory of its values, GiB.
        """
        plan, memory_gib = self._plan, self._prepared.memory_gib
        if self.config.decide == "compiled":
            _ = self._is_fast  # refuses unsupported settings
        # If a crash ends a rule that needs all workers, the run itself is to show it.
        rehearse = rehearse and self._fault_plan is None
        if not (rehearse and requirements_of(plan.rule()).fixed_members):
            plan.links()
            return memory_gib
        fleet = Fleet(replace(plan, steps=_STEPS_TRIED))
        with paused():
            fleet.run(math.inf, _STEPS_TRIED * len(self.ids))
        if fleet.halts:
            raise TrainingError(next(iter(fleet.halts.values())))
        return memory_gib

    def cost(self) -> Cost | None:
        """Estimate time and memory by a trial, whose values are discarded; None without a model."""
        estimated_gib = self._prepared.memory_gib + values_of.peak_rss_mib() / 1024
        values = self._prepared.make(self.engine.name, Threads(self._cores))
        if isinstance(values, VectorRows):
            return None
        try:
            steps_per_s = self._try_steps(values)
            few = values_of.with_test(values.task, _SAMPLES_TRIED)
            assert isinstance(few, Task)
            trial = Models(values.rows, values.stepper, few, workers_tested=1)
            began_s = time.perf_counter()
            trial.evaluate_workers()
            measured_s = time.perf_counter() - began_s
        except Failure:
            # The run ends with the error.
            return None
        finally:
            values.rows.threads.close()
        if steps_per_s is None:
            return None
        # A measurement evaluates the merged model and single workers' models.
        samples = (1 + values.workers_tested) * n_samples_of(values.task.test)
        lasts_s = self._steps_expected / len(self.ids) * self.config.step_s
        times = 2 + int(lasts_s / self._every_s())
        return Cost(
            steps=self._steps_expected,
            steps_per_s=steps_per_s,
            measuring_s=times * samples * measured_s / n_samples_of(few.test),
            # Activations of many workers at once may take more than their values.
            memory_gib=max(estimated_gib, values_of.peak_rss_mib() / 1024),
            engine=self.engine.name,
            engine_why=self.engine.why,
        )

    def _try_steps(self, values: Models) -> float | None:
        """Return how many steps of all workers are decided and computed in a second."""
        scheduler = self._scheduler(values)
        scheduler.next_window()
        began_s = time.perf_counter()
        window = scheduler.next_window()
        decided_s = time.perf_counter() - began_s
        levels = [] if window is None else [level for level in window.levels if level.workers]
        if window is None or not levels:
            return None
        n, first = 2 * self._cores, levels[0]
        while True:
            # A level of a large model may take minutes.
            few = Level(first.workers[:n], first.steps[:n])
            # A worker's first step also makes what it trains with.
            values.stepper.take(few)
            began_s = time.perf_counter()
            values.stepper.take(few)
            taken_s = time.perf_counter() - began_s
            if taken_s > _TRIAL_S or n >= len(first.workers):
                break
            n *= 4
        return 1 / (taken_s / len(few.workers) + decided_s / window.steps)

    def run(self, progress: Callable[[Progress], None] | None = None) -> Run:
        """Run it.

        Raises:
            TrainingError: A worker's values became non-finite, or a rule cannot continue.
        """
        engine, started_s = self.engine, time.perf_counter()
        config, curves = self.config, Curves()
        threads = Threads(self._cores, lambda: scheduler.is_ahead)
        values = self._prepared.make(engine.name, threads)
        if self._fault_plan is not None:
            values.live_again()
        ending: Ending | None = None
        steps, time_s = 0, 0.0

        def report(steps: int, time_s: float) -> None:
            if progress is not None:
                progress(self._progress(curves, steps, time_s, time.perf_counter() - started_s))

        scheduler = self._scheduler(values)
        try:
            for window in scheduler.windows(ahead=self._is_fast and self._cores > 1):
                values.execute(_reported(window, steps, time_s, report))
                ending = window.ending
                if window.reading is not None:
                    curves.add(window.reading, values)
                steps, time_s = window.steps, window.time_s
                report(steps, time_s)
        except Failure as failure:
            raise TrainingError(self._why_diverged(failure)) from None
        finally:
            values.rows.threads.close()
        assert ending is not None
        if ending.halts:
            raise TrainingError(next(iter(ending.halts.values())))
        return summarize(
            config,
            values=values,
            topology=self._topology.spec,
            curves=curves,
            ending=ending,
            faults=self._faults,
            attacks=self._attacks,
            ids=self.ids,
            wall_s=time.perf_counter() - started_s,
            means_s=[self._pace.mean_s(worker) for worker in range(len(self.ids))],
            samples=self._prepared.samples,
            more={
                **self._trained_by,
                "engine": engine.name,
                "engine_why": engine.why,
            },
        )

    def _why_diverged(self, failure: Failure) -> str:
        """Name the worker whose values became non-finite, and say what to do."""
        lr = self.config.lr if self.config.lr is not None else "the task's"
        advice = f"lower the learning rate ({lr})"
        if self._attacks:
            advice += ", or give the rule the parameter robust against Byzantine peers"
        if failure.step == 0:
            advice = f"look for such numbers in data and loss, or {advice}"
        when = "" if failure.step is None else f" at its step {failure.step + 1}"
        why = "its loss or parameters are not finite"
        return f"{self.ids[failure.worker]} diverged{when}: {why}; {advice}"

    def _scheduler(self, values: Models | VectorRows) -> Scheduler:
        config = self.config
        plan = self._plan
        if requirements_of(plan.rule()).measures:
            plan = replace(plan, measure=values.measure)
        every_s, shift_s = self._every_s(), config.step_s / 2
        window = config.window or max(_WINDOW_MIN, _WINDOW_PER_WORKER * config.workers)
        first_s = min(every_s + shift_s, config.time_s or math.inf)
        decide: Callable[[], Deciding] = partial(Fleet, plan)
        if self._is_fast:
            decide = partial(FastFleet, plan)
            # The first window must be the same whichever way is used to decide.
            with paused():
                verify_against_protocol(self._small(plan), first_s, window)
        return Scheduler(
            decide,
            every_s=every_s,
            shift_s=shift_s,
            time_s=config.time_s,
            # A rule that waits may take much longer than its steps do.
            marks_max=_POINTS_MAX if config.eval_every is None else None,
            window=window,
        )

    def _small(self, plan: FleetPlan) -> FleetPlan:
        """Return the plan, or for many workers that of the first ones, which cost less memory."""
        if len(self.ids) <= _WORKERS_PROVEN_MAX:
            return plan
        ids, config = self.ids[:_WORKERS_PROVEN], self.config
        try:
            few = parse(config.topology, len(ids), seed=config.seed)
        except TopologyError:
            return plan
        links = self._links(plan.schema, ids)
        return replace(plan, ids=ids, neighbors=WorkerTopology(few, ids), links=links)

    @cached_property
    def _plan(self) -> FleetPlan:
        config, rule, prepared = self.config, self.config.rule_spec.make(), self._prepared
        protocol, factor = config.protocol, self._stand_in_factor(prepared.schema)
        if factor is not None:
            protocol = smaller_exchange(protocol, factor, prepared.schema.share_bytes)
        neighbors: Neighbors = WorkerTopology(self._topology, self.ids)
        if self._fault_plan is not None:
            neighbors = LiveTopology(config.topology, config.seed, VIEWS_KEPT)
        return FleetPlan(
            ids=self.ids,
            schema=prepared.schema,
            anchor=prepared.anchor,
            rule=partial(make_rule, str(config.rule_spec)),
            neighbors=neighbors,
            pace=self._pace,
            links=self._links(prepared.schema, self.ids),
            seed=config.seed,
            steps=self.steps,
            protocol=protocol,
            steps_total=config.total_steps,
            fault_plan=self._fault_plan,
            attacks=self._attacks,
            exchange_s=config.exchange_s,
            samples=prepared.samples if requirements_of(rule).by_samples else (),
            overlaps=requirements_of(rule).overlaps,
            lr=(lambda step: config.lr or self._task.lr) if requirements_of(rule).lr else None,
            lr_factor=prepared.lr_factor,
            machines=machines_of(rule, self._topology, config.seed, self.ids),
        )

    def _links(self, schema: Schema, ids: Sequence[str]) -> Callable[[], Links]:
        """Return the network, scaled so that this model takes as long as the one it stands for."""
        network, factor = self._network, self._stand_in_factor(schema)
        if factor is not None:
            network = slowed_network(network, factor)
        return partial(Links, network, ids, self.config.seed, factor or 1.0)

    def _stand_in_factor(self, schema: Schema) -> float | None:
        """Return the model's size relative to the float32 one it stands for; None without one."""
        stands_for = self.config.stands_for
        return None if stands_for is None else schema.share_bytes / (4 * stands_for)

    def _every_s(self) -> float:
        step_s = self.config.step_s
        if self.config.eval_every is not None:
            return self.config.eval_every * step_s
        if self.steps is None and self.config.total_steps is None:
            return (self.config.time_s or 0.0) / _POINTS
        slowest_s = max(self._pace.mean_s(worker) for worker in range(len(self.ids)))
        shared = (self.config.total_steps or math.inf) / self.config.workers
        return math.ceil(min(self.steps or math.inf, shared) / _POINTS) * slowest_s

    @property
    def _steps_expected(self) -> int:
        """Number of steps of all workers, roughly if time ends the run."""
        steps = self._steps_total()
        if steps is None:
            steps = int((self.config.time_s or 0.0) / self.config.step_s * len(self.ids))
        return steps

    def _steps_total(self) -> int | None:
        ends = [self.config.total_steps, None if self.steps is None else self.steps * len(self.ids)]
        return min((end for end in ends if end is not None), default=None)

    def at_start(self) -> Progress:
        """Progress before anything is computed."""
        compiles = self._is_fast and must_compile()
        return replace(self._progress(Curves(), 0, 0.0, 0.0), compiles=compiles)

    def _progress(self, curves: Curves, steps: int, time_s: float, wall_s: float) -> Progress:
        evaluation = curves.evaluation
        return Progress(
            steps=steps,
            steps_total=self._steps_total(),
            time_s=time_s,
            wall_s=wall_s,
            loss=evaluation.loss if evaluation else None,
            accuracy=evaluation.accuracy if evaluation else None,
        )


def _reported(
    window: Window, steps: int, time_s: float, report: Callable[[int, float], None]
) -> Iterator[Level]:
    """Yield the levels of a window that begins at these *steps* and *time_s*, and report every
    second: with a large model it may take minutes."""
    told_s, done = time.perf_counter(), steps
    for level in window.levels:
        yield level
        done += len(level.workers)
        if time.perf_counter() - told_s > _REPORT_S:
            told_s = time.perf_counter()
            # Levels have no time of their own.
            part = (done - steps) / max(1, window.steps - steps)
            report(done, time_s + part * (window.time_s - time_s))


def _network(config: SimulationConfig, storm: Storm | None) -> NetworkConfig:
    network = config.network
    if storm is not None and storm.network is not None:
        network = network_of(storm.network)
    elif isinstance(network, str):
        network = read_network(network)
    return network.with_changes(
        latency_s=config.latency_s,
        bandwidth_mbit=config.bandwidth_mbit,
        loss=config.loss,
        duplicates=config.duplicates,
    )


def simulate(
    config: SimulationConfig | None = None,
    *,
    model: Callable[[], nn.Module] | None = None,
    progress: Callable[[Progress], None] | None = None,
    **settings: Any,
) -> Run:
    """Train one model with many simulated workers under virtual time.

    Workers decide with the code of live peers, and compute real gradients. The same settings give
    the same run, to the last bit of every parameter, whatever the window, the number of threads and
    the process.

    Args:
        config: All settings; defaults if None.
        model: Makes the model to train, for which *settings* then also have fields of `Task`:
            ``train`` and ``test``, and where the defaults do not fit, functions such as ``loss``,
            ``accuracy`` or ``optimizer``. The estimated time and memory are printed on stderr,
            unless *progress* gets them.
        progress: Called once all settings are valid, with the estimated `Cost`, after each window,
            and each second within one.
        settings: Fields of `SimulationConfig` that differ from *config*.

    Returns:
        Figures, curves over virtual time, and the merged model.

    Raises:
        ConfigError: A setting is out of range, or memory is too small.
        TopologyError: The topology is not valid for this number of workers.
        TrainingError: A worker diverged, or a synchronous rule lost a worker that it needs.

    >>> run = simulate(task="consensus", workers=8, topology="complete", steps=50, p=0.5, seed=1)
    >>> bool(run.series["disagreement"][-1] < 0.1 * run.series["disagreement"][0])
    True
    """
    if model is not None:
        settings["task"] = _task_of(model, settings)
        progress = progress or _print_cost
    known = [field.name for field in fields(SimulationConfig)]
    for name in settings:
        if name not in known:
            hint = did_you_mean(name, known, f": it must be one of {known}")
            if name in _OF_TASKS:
                hint = ": give it with model, train and test, or in a Task"
            raise ConfigError(f"simulate has no setting {name!r}{hint}")
    config = replace(config or SimulationConfig(), **settings)
    # Also within a caller's torch.no_grad() or torch.inference_mode().
    with alone(), torch.inference_mode(False):
        simulation = Simulation(config)
        simulation.check(rehearse=False)
        if progress is not None:
            progress(simulation.at_start())
        _ = simulation.engine
        if progress is not None:
            # Steps may change random states that belong to the process.
            with kept_random_state():
                progress(replace(simulation.at_start(), cost=simulation.cost()))
        return simulation.run(progress)


# Some name a function of a task, and a number or a name among a simulation's settings.
_OF_TASKS = {field.name for field in fields(Task)}


def _task_of(model: Callable[[], nn.Module], settings: dict[str, Any]) -> Task:
    """Make a task of a model and those of the settings that belong to it; remove these."""
    if "task" in settings:
        raise ConfigError("model and task are both given: give model with its data, or a task")
    usual = {field.name for field in fields(SimulationConfig)}
    own = {
        name: settings.pop(name)
        for name in [*settings]
        if name in _OF_TASKS
        and (name not in usual or not isinstance(settings[name], str | Real | None))
    }
    if missing := [name for name in ("train", "test") if name not in own]:
        raise ConfigError(
            f"model needs {' and '.join(missing)}, as in simulate(model=Net, train=dataset, "
            "test=dataset, workers=300)"
        )
    return Task(model=model, **own)


def _print_cost(progress: Progress) -> None:
    if progress.cost is not None:
        print(describe_cost(progress.cost), file=sys.stderr, flush=True)
