"""The values of a run: made once to see whether they fit, and anew for every start."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from ..gossip import PeerId, Rule, Schema
from ..gossip.rule import demands_of, require_fit
from ..gossip.wire import parse_wire
from ..train.task import Task
from .batches import Batches
from .config import SimulationConfig
from .engines import Workshop, choose
from .memory import check_memory
from .models import Models
from .plan import FaultPlan
from .rows import Rows
from .stepper import Failures
from .vectors import Moment, VectorRows, VectorTask

__all__ = ["Checked", "Values", "check_values", "prepare"]

# One thread is enough for what is only looked at.
_FOR_A_LOOK = 1


@dataclass(frozen=True, slots=True)
class Values:
    """Makes the values of a run, anew for every start."""

    make: Callable[[], Models | VectorRows]
    engine: str
    """How steps are computed."""
    why: str
    """Why in that way."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What is known of values that can be made, before they are."""

    schema: Schema
    anchor: bytes
    """What deltas refer to."""
    memory_gib: float
    """What they will take, an estimate."""


def check_values(
    config: SimulationConfig, task: Task | VectorTask, ids: Sequence[PeerId]
) -> Checked:
    """See whether values can be made, without looking for the fastest way to compute them.

    Args:
        config: What is asked for.
        task: What is trained.
        ids: Names of the workers, in order.

    Raises:
        ConfigError: As `prepare` does, but for an engine that the task cannot take.
    """
    rule = config.rule_spec.make()
    require_fit(rule, config.wire, config.shards, exact=config.exact)
    if not isinstance(task, VectorTask):
        return _workshop(config, task, tuple(ids), rule, _FOR_A_LOOK)[-1]
    memory_gib = _memory_of_vectors(config, task, ids, rule)
    rows = VectorRows(task, tuple(ids), config.seed, rule.registers, shards=config.shards)
    return Checked(rows.schema, rows.anchor, memory_gib)


def prepare(
    config: SimulationConfig,
    task: Task | VectorTask,
    ids: Sequence[PeerId],
    cores: int,
    trouble: FaultPlan | None = None,
) -> Values:
    """Make ready what is the same for every start.

    Args:
        config: What is asked for.
        task: What is trained.
        ids: Names of the workers, in order.
        cores: How many to use.
        trouble: What goes wrong, if anything does.

    Raises:
        ConfigError: It does not fit into memory, or cannot be computed in the way asked for.
    """
    rule = config.rule_spec.make()
    require_fit(rule, config.wire, config.shards, exact=config.exact)
    made = (
        _of_vectors(config, task, tuple(ids), rule)
        if isinstance(task, VectorTask)
        else _of_models(config, task, tuple(ids), rule, cores)
    )
    return made if trouble is None else replace(made, make=partial(_make_to_last, made.make))


def _make_to_last(make: Callable[[], Models | VectorRows]) -> Models | VectorRows:
    """Make values of workers that crash and come back."""
    made = make()
    made.live_again()
    return made


def _of_vectors(
    config: SimulationConfig, task: VectorTask, ids: tuple[PeerId, ...], rule: Rule
) -> Values:
    _memory_of_vectors(config, task, ids, rule)
    # Who never waits has no moment at which all have mixed: there, the vectors count as they
    # were handed over. A round ends with mixing.
    counts: Moment = "after the round" if demands_of(rule).fixed_members else "after the step"
    make = partial(
        VectorRows,
        task,
        ids,
        config.seed,
        rule.registers,
        counts=counts,
        shards=config.shards,
        wire=config.wire,
    )
    return Values(make, VectorRows.name, "the task has no model")


def _memory_of_vectors(
    config: SimulationConfig, task: VectorTask, ids: Sequence[PeerId], rule: Rule
) -> float:
    config_of_all = replace(config, workers=len(ids))
    return check_memory(config_of_all, row_bytes=8 * task.dim, registers=_rows_beside(config, rule))


def _workshop(
    config: SimulationConfig, task: Task, ids: tuple[PeerId, ...], rule: Rule, cores: int
) -> tuple[nn.Module, Workshop, Checked]:
    torch.manual_seed(config.seed)
    module = task.model()
    alone = Rows(deepcopy(module), 1)
    row_bytes = sum(part.nbytes for part in (*alone.x, *alone.locals))
    config_of_all = replace(config, workers=len(ids))
    registers = _rows_beside(config, rule)
    memory_gib = check_memory(config_of_all, row_bytes=row_bytes, registers=registers)
    # Too many shards for this model are refused before anything is tried with it.
    schema = Schema(alone.schema.tensors, config.shards)
    batch_size = config.batch_size or task.batch_size
    workshop = Workshop(
        make_rows=lambda n: Rows(deepcopy(module), n),
        task=task,
        batches=Batches(task, ids, config.partition, batch_size, config.seed, config.workers),
        lr=config.lr or task.lr,
        ids=ids,
        seed=config.seed,
        threads=cores,
    )
    return module, workshop, Checked(schema, alone.anchor, memory_gib)


def _of_models(
    config: SimulationConfig, task: Task, ids: tuple[PeerId, ...], rule: Rule, cores: int
) -> Values:
    module, workshop, _ = _workshop(config, task, ids, rule, cores)
    choice = choose(config.engine, workshop)

    def make() -> Models:
        rows = Rows(
            deepcopy(module),
            len(ids),
            rule.registers,
            shards=config.shards,
            ids=ids,
            seed=config.seed,
        )
        failures = Failures()
        stepper = choice.make(rows, failures)
        may_overflow = not parse_wire(config.wire).is_native
        return Models(rows, stepper, failures, task, may_overflow=may_overflow)

    return Values(make, choice.name, choice.why)


def _rows_beside(config: SimulationConfig, rule: Rule) -> int:
    """How many vectors each worker keeps beside its own."""
    keeps_sent = not parse_wire(config.wire).is_dense
    return len(rule.registers) + keeps_sent
