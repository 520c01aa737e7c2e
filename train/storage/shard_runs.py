"""Which numbers of a model's tensors belong to which shard, as the header of its file says it."""

import json
from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np
from torch import Tensor

from ...gossip.wire.schema import ALIGNMENT_BYTES, Schema
from .files import json_of

__all__ = [
    "Run",
    "Runs",
    "as_text",
    "from_text",
    "orders_from_text",
    "runs_of",
    "with_aliases",
]


class Run(NamedTuple):
    """Numbers of one tensor, flattened, that lie in one shard."""

    start: int
    stop: int
    shard: int


_T = TypeVar("_T")

Runs = Mapping[str, tuple[Run, ...]]
"""By tensor; in order, and together all of it."""


def runs_of(schema: Schema) -> Runs:
    """Lay the shards of a vector over its tensors."""
    owners = np.empty(schema.share_bytes // ALIGNMENT_BYTES, np.int32)
    for shard in range(schema.shards):
        owners[schema.lines(shard)] = shard
    found, line = {}, 0
    for tensor in schema.tensors:
        if not tensor.shared:
            continue
        n_numbers, n_lines = prod(tensor.shape), tensor.room_bytes // ALIGNMENT_BYTES
        per_line = ALIGNMENT_BYTES * n_numbers // tensor.size_bytes if n_numbers else 1
        here = owners[line : line + n_lines]
        starts = np.flatnonzero(np.diff(here, prepend=-1))
        stops = [*(starts[1:] * per_line).tolist(), n_numbers]
        each = zip((starts * per_line).tolist(), stops, here[starts].tolist(), strict=False)
        found[tensor.name] = tuple(Run(*run) for run in each)
        line += n_lines
    return found


def with_aliases(told: Mapping[str, _T], state: Mapping[str, Any]) -> dict[str, _T]:
    """Tell of every name of a tied tensor what is told of the one that is shared.

    Args:
        told: By name.
        state: The model's state dict, as `named_state` gives it.
    """
    by_place = {state[name].data_ptr(): each for name, each in told.items() if name in state}
    found = dict(told)
    for name, tensor in state.items():
        if isinstance(tensor, Tensor) and tensor.data_ptr() in by_place:
            found.setdefault(name, by_place[tensor.data_ptr()])
    return found


def as_text(told: Mapping[str, tuple[Run, ...] | tuple[int, ...]]) -> str:
    """Runs, or orders of axes, by tensor, as a word for the header of a file."""
    return json.dumps(told, separators=(",", ":"))


def orders_from_text(text: str) -> dict[str, tuple[int, ...]]:
    """Read orders of axes that `as_text` wrote.

    Raises:
        ValueError: It is something else.
    """
    try:
        found = {name: tuple(axes) for name, axes in json_of(text).items()}
        if all(sorted(axes) == list(range(len(axes))) for axes in found.values()):
            return found
    except (TypeError, AttributeError) as error:
        raise ValueError(f"no orders of axes: {error}") from None
    raise ValueError("no orders of axes: one does not have each axis once")


def from_text(text: str) -> Runs:
    """Read what `as_text` wrote.

    Raises:
        ValueError: It is something else.
    """
    try:
        found = {name: tuple(Run(*run) for run in runs) for name, runs in json_of(text).items()}
    except (TypeError, AttributeError) as error:
        raise ValueError(f"no runs of shards: {error}") from None
    for name, runs in found.items():
        place = 0
        for run in runs:
            whole = all(type(number) is int for number in run)
            if not (whole and run.start == place <= run.stop and run.shard >= 0):
                raise ValueError(f"no runs of shards: those of {name} are not in order")
            place = run.stop
    return found
