"""The values of a run: made once to see whether they fit, and anew for every start."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial

import torch

from ..gossip import PeerId, Rule, Schema
from ..gossip.rule import demands_of, require_fit
from ..gossip.rules import make_rule
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

__all__ = ["Values", "prepare"]


@dataclass(frozen=True, slots=True)
class Values:
    """Makes the values of a run, anew for every start."""

    make: Callable[[], Models | VectorRows]
    engine: str
    """How steps are computed."""
    why: str
    """Why in that way."""


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
    rule = make_rule(config.rule, config.p, config.emission)
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
    config_of_all = replace(config, workers=len(ids))
    check_memory(config_of_all, row_bytes=8 * task.dim, registers=_rows_beside(config, rule))
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


def _of_models(
    config: SimulationConfig, task: Task, ids: tuple[PeerId, ...], rule: Rule, cores: int
) -> Values:
    torch.manual_seed(config.seed)
    module = task.model()
    alone = Rows(deepcopy(module), 1)
    row_bytes = sum(part.nbytes for part in (*alone.x, *alone.locals))
    config_of_all = replace(config, workers=len(ids))
    check_memory(config_of_all, row_bytes=row_bytes, registers=_rows_beside(config, rule))
    # Too many shards for this model are refused before anything is tried with it.
    Schema(alone.schema.tensors, config.shards)
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
