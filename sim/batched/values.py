"""The values of a run: made once to check that they fit, and again for every start."""

import math
import os
import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.utils.data import Subset

from ...gossip import Rule
from ...gossip.effects.registers import is_pattern
from ...gossip.errors import ConfigError
from ...gossip.protocol.rule import require_fit, requirements_of
from ...gossip.types import PeerId
from ...gossip.wire.schema import Schema
from ...train.model import deep_copy
from ...train.tasks.data import is_tensors, map_tensors, n_samples_of
from ...train.tasks.lr_schedule import parse_lr_schedule
from ...train.tasks.registry import build_task
from ...train.tasks.task import Task, require_optimizer
from ...train.tensors.cuda import find_device
from ..config import SimulationConfig
from .batches import Batches, batch_sizes
from .cores import ONE_CORE, Threads
from .models import Models
from .parameters import CPU, ParameterMatrix
from .steppers.engines import Engine, Workshop, choose
from .vector_tasks import VECTOR_TASKS, Moment, VectorRows, VectorTask

__all__ = [
    *("PreparedRun", "check_memory", "find_task", "free_gib", "peak_rss_mib"),
    *("prepare", "with_test"),
]


_GIB = 1 << 30

# A protocol with its streams, its neighbors' names and accounts, as measured at 10,000 workers.
_PROTOCOL_BYTES = 12_000

# Parts of the values: vectors, an optimizer's state as large, shares in flight (up to two for each
# worker, and those that a window computes ahead), rows of a level and their gradients.
_ROWS_PER_WORKER = 5.0
_SHARES_PER_WORKER = 2


def find_task(config: SimulationConfig) -> Task | VectorTask:
    """Return the task to be trained."""
    task = config.task
    if isinstance(task, Task | VectorTask):
        return task
    if isinstance(task, str) and task in VECTOR_TASKS:
        return VECTOR_TASKS[task]()
    found: Task | VectorTask = build_task(task, Task, VectorTask, seed=config.seed)
    return found


def with_test(task: Task | VectorTask, samples: int | None) -> Task | VectorTask:
    """Reduce a task's held-out samples to a subset that is spread over all of them."""
    if samples is None or isinstance(task, VectorTask):
        return task
    n_samples = n_samples_of(task.test)
    chosen = np.linspace(0, n_samples - 1, min(samples, n_samples)).astype(np.int64)
    if is_tensors(task.test):
        return replace(task, test=map_tensors(task.test, lambda side: side[chosen]))
    return replace(task, test=Subset(task.test, chosen.tolist()))


def check_memory(
    config: SimulationConfig, *, row_bytes: int, registers: int, device: torch.device = CPU
) -> float:
    """Refuse a run that does not fit into memory; return the estimate, GiB.

    Args:
        row_bytes: Size of one worker's vector.
        registers: Additional vectors per worker, for the rule and for what was last sent.
        device: Device of the vectors, whose own memory is checked.
    """
    workers, memory_gib = config.workers, config.memory_gib
    rows = _ROWS_PER_WORKER + registers
    # Another device holds no protocols.
    protocol_bytes = _PROTOCOL_BYTES if device == CPU else 0
    wanted_gib = workers * (rows * row_bytes + protocol_bytes) / _GIB
    allowed_gib = free_gib(device) if memory_gib is None else memory_gib
    if wanted_gib > allowed_gib:
        fit = int(workers * allowed_gib / wanted_gib)
        has_free = "this machine has free" if device == CPU else f"{device} has free"
        where = has_free if memory_gib is None else "memory_gib allows"
        raise ConfigError(
            f"{workers:,} workers of {row_bytes / 1e6:.3g} MB each would take about "
            f"{wanted_gib:.1f} GiB, more than the {allowed_gib:.1f} GiB that {where}: "
            f"about {fit:,} workers fit"
        )
    return wanted_gib


def peak_rss_mib() -> float:
    """Return the peak memory use of this process, MiB."""
    try:
        with open("/proc/self/status") as lines:
            (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
        return int(peak) / 1024
    except OSError:
        # In bytes on macOS; on Linux this would include the process that started this one.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def free_gib(device: torch.device = CPU) -> float:
    """Return the memory available without swapping, GiB; the total if that is unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] / _GIB
    if device != CPU:
        return math.inf
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) / 1024**2
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """What a run needs before its values are made."""

    schema: Schema
    anchor: bytes
    """Hash of what deltas refer to."""
    memory_gib: float
    """Estimated memory of its values, GiB."""
    samples: tuple[int, ...]
    """Samples per step of each worker; from the settings for tasks without a model."""
    lr_factor: Callable[[int, int, float], float] | None = None
    """Factor of a learning rate, as in `FleetPlan`."""
    choose: Callable[[], Engine]
    """Chooses the engine, which takes as long as some steps."""
    make: Callable[[str, Threads], Models | VectorRows]
    """Makes the values for an engine."""


def prepare(
    config: SimulationConfig, task: Task | VectorTask, ids: Sequence[PeerId]
) -> PreparedRun:
    """Build what a run needs, and check that it can run."""
    rule = config.rule_spec.make()
    require_fit(rule, config.wire, config.shards)
    if not isinstance(task, VectorTask):
        return _of_models(config, task, tuple(ids), rule)
    return _of_vectors(config, task, tuple(ids), rule)


def _of_vectors(
    config: SimulationConfig, task: VectorTask, ids: tuple[PeerId, ...], rule: Rule
) -> PreparedRun:
    if config.device not in ("cpu", "auto"):
        raise ConfigError(
            f"device is {config.device!r}: the task {task.name} has no model, and its vectors are "
            "averaged on the CPU. Leave --device out"
        )
    if config.lr_schedule is not None:
        raise ConfigError(
            f"lr_schedule is {config.lr_schedule!r}: the task {task.name} has no optimizer whose "
            "learning rate could change. Leave --lr-schedule out"
        )
    config_of_all, beside = replace(config, workers=len(ids)), _rows_beside(config, rule)
    memory_gib = check_memory(config_of_all, row_bytes=8 * task.dim, registers=beside)
    requirements = requirements_of(rule)
    # Between two outer rounds vectors drift, which curves are to show. A worker that never waits
    # has no moment at which all have mixed: there, vectors count as they were sent.
    counts: Moment = "now" if requirements.waits else "after the step"
    if requirements.fixed_members:
        counts = "after the round"

    def make(engine: str, threads: Threads) -> VectorRows:
        return VectorRows(
            *(task, ids, config.seed, rule.registers),
            counts=counts,
            shards=config.shards,
            scattered=requirements.scattered,
            threads=threads,
            lr=config.lr,
        )

    rows = make(VectorRows.name, ONE_CORE)
    return PreparedRun(
        schema=rows.schema,
        anchor=rows.anchor,
        memory_gib=memory_gib,
        samples=tuple(batch_sizes(config.batch_sizes, ids, config.batch_size or 1)),
        choose=lambda: Engine(VectorRows.name, "the task has no model"),
        make=make,
    )


def _of_models(
    config: SimulationConfig, task: Task, ids: tuple[PeerId, ...], rule: Rule
) -> PreparedRun:
    device = find_device(config.device, torch.float64)
    torch.manual_seed(config.seed)
    module = task.build()
    require_optimizer(rule, task, module)
    try:
        alone = ParameterMatrix(deep_copy(module), 1)
    except TypeError as error:  # raised when an attribute cannot be copied
        raise ConfigError(
            f"the model of task {task.name} cannot be copied for each worker ({error}): keep "
            "numbers, lists, tensors or random generators in its attributes"
        ) from None
    row_bytes = sum(part.nbytes for part in (*alone.x, *alone.locals))
    config_of_all = replace(config, workers=len(ids))
    registers = _rows_beside(config, rule)
    memory_gib = check_memory(
        config_of_all, row_bytes=row_bytes, registers=registers, device=device
    )
    # Too many shards for this model are refused before anything is tried with it.
    schema = Schema(alone.schema.tensors, config.shards, requirements_of(rule).scattered)
    sizes = batch_sizes(config.batch_sizes, ids, config.batch_size or task.batch_size)
    given = task, ids, config.partition, sizes, config.seed, config.workers
    workshop = Workshop(
        make_rows=lambda n: ParameterMatrix(deep_copy(module), n, device=device),
        task=task,
        batches=Batches(*given, device=device),
        lr=config.lr or task.lr,
        ids=ids,
        seed=config.seed,
    )

    def make(engine: str, threads: Threads) -> Models:
        rows = ParameterMatrix(
            deep_copy(module),
            len(ids),
            rule.registers,
            shards=config.shards,
            scattered=requirements_of(rule).scattered,
            ids=ids,
            seed=config.seed,
            device=device,
            # A device runs what one thread submits.
            threads=threads if device == CPU else ONE_CORE,
        )
        stepper = workshop.stepper(engine, rows)
        return Models(rows, stepper, task, workers_tested=config.workers_tested)

    return PreparedRun(
        schema=schema,
        anchor=alone.anchor,
        memory_gib=memory_gib,
        samples=tuple(workshop.batches.sizes(np.arange(len(ids))).tolist()),
        lr_factor=_lr_factor(config, task),
        choose=lambda: choose(config.engine, workshop),
        make=make,
    )


def _lr_factor(config: SimulationConfig, task: Task) -> Callable[[int, int, float], float] | None:
    schedule = parse_lr_schedule(config.lr_schedule or task.lr_schedule)
    if schedule.is_constant:
        return None

    def factor(steps: int, swarm_steps: int, time_s: float) -> float:
        if config.total_steps is not None:
            return schedule.after(swarm_steps, config.total_steps)
        # Live peers always have a number of steps to take.
        if config.steps is None and config.time_s is not None:
            return schedule.after(time_s, config.time_s)
        return schedule.after(steps, config.steps or task.steps)

    return factor


def _rows_beside(config: SimulationConfig, rule: Rule) -> int:
    """Return how many vectors each worker keeps besides its own."""
    requirements = requirements_of(rule)
    more = requirements.share_registers - 1
    # Registers on demand are one per neighbor: on a tree, less than two on average.
    on_demand = sum(map(is_pattern, rule.registers))
    beside = len(rule.registers) + on_demand + requirements.notes_sent(config.wire)
    return beside + _SHARES_PER_WORKER * more
