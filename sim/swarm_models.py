"""What the models of an in-process swarm come to: merged by weight, and how far apart."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..train.vector import Vector
from .shares import spans_of

__all__ = ["Weighed", "consensus_distance", "load", "merge"]


class Weighed(NamedTuple):
    """One peer's model, its vector, and how much each shard of it counts."""

    model: nn.Module
    vector: Vector
    units: tuple[int, ...]


def merge(models: Sequence[Weighed]) -> dict[str, Tensor]:
    """Average models by weight, shard by shard: in float64, rounded to their dtypes once.

    Args:
        models: At least one, in the order in which they are summed. Where none has units of a
            shard, all count alike.

    Returns:
        A state_dict that shares no memory with any of them. Tensors that are not shared, such as
        integer ones, of which a mean means nothing, are the heaviest model's (of two, the first).
    """
    heaviest = max(models, key=lambda weighed: sum(weighed.units))
    merged = deepcopy(heaviest.model)
    vector = Vector(merged)
    for shard in range(len(heaviest.units)):
        for index, start, stop in spans_of(heaviest.vector.schema, shard, vector.flats):
            values = [(each.vector.flats[index][start:stop], each.units[shard]) for each in models]
            vector.flats[index][start:stop] = _mean(values)
    return {name: v.detach() for name, v in merged.state_dict().items() if isinstance(v, Tensor)}


def consensus_distance(vectors: Sequence[Vector]) -> float:
    """``sqrt(mean_i |x_i - mean|^2) / |mean|`` with the plain mean; 0 where all are equal.

    Without the divisor where the mean is 0.
    """
    rows = torch.stack(
        [torch.cat([flat.detach().cpu().double() for flat in v.flats]) for v in vectors]
    )
    mean = rows.mean(dim=0)
    spread = sqrt(float((rows - mean).square().sum()) / len(rows))
    size = sqrt(float(mean.square().sum()))
    return spread / size if size else spread


def load(model: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """Give a model these values, and give it back."""
    model.load_state_dict(dict(state), strict=False)
    return model


def _mean(values: Sequence[tuple[Tensor, int]]) -> Tensor:
    values = [each for each in values if each[1]] or [(value, 1) for value, _ in values]
    first = values[0][0]
    # What all have alike must come out as it went in.
    if all(torch.equal(value, first) for value, _ in values):
        return first
    mean = torch.zeros_like(first, dtype=torch.float64)
    for value, units in values:
        mean += value.double() * units
    return (mean / sum(units for _, units in values)).to(first.dtype)
