"""Which numbers of each tensor belong to which shard: what merging by weight needs to know."""

import json
from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from torch import nn

from ..gossip import Schema

__all__ = ["Run", "Runs", "as_text", "from_text", "runs_of", "with_aliases"]


class Run(NamedTuple):
    """Numbers of one tensor, flattened, that lie in one shard."""

    start: int
    stop: int
    shard: int


Runs = Mapping[str, tuple[Run, ...]]
"""By tensor; in order, and together all of it."""


def runs_of(schema: Schema) -> Runs:
    """Lay the shards of a vector over its tensors."""
    bounds = [schema.shard_bounds(shard) for shard in range(schema.shards)]
    found, offset = {}, 0
    for tensor in schema.tensors:
        if not tensor.shared:
            continue
        n_numbers = prod(tensor.shape)
        itemsize = tensor.size_bytes // n_numbers if n_numbers else 1
        runs = []
        for shard, (low, high) in enumerate(bounds):
            start = max(0, (low - offset) // itemsize)
            stop = min(n_numbers, (high - offset) // itemsize)
            if start < stop:
                runs.append(Run(start, stop, shard))
        found[tensor.name] = tuple(runs)
        offset += tensor.room_bytes
    return found


def with_aliases(runs: Runs, model: nn.Module) -> Runs:
    """Let every name of a tied parameter have the runs of the one that is shared."""
    state = model.state_dict()
    by_place = {state[name].data_ptr(): several for name, several in runs.items() if name in state}
    found = dict(runs)
    for name, tensor in state.items():
        if name not in found and tensor.data_ptr() in by_place:
            found[name] = by_place[tensor.data_ptr()]
    return found


def as_text(runs: Runs) -> str:
    """Runs as a word for the header of a file."""
    return json.dumps(runs, separators=(",", ":"))


def from_text(text: str) -> Runs:
    """Read what `as_text` wrote.

    Raises:
        ValueError: It is something else.
    """
    try:
        return {name: tuple(Run(*run) for run in runs) for name, runs in json.loads(text).items()}
    except (TypeError, AttributeError) as error:
        raise ValueError(f"no runs of shards: {error}") from None
