"""What the models of an in-process swarm come to: merged by weight, and how far apart."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..gossip.weight import UNIT, in_floats
from ..train.vector import Vector
from .shares import spans_of

__all__ = ["Weighed", "consensus_distance", "load", "merge"]


class Weighed(NamedTuple):
    """One peer's model, its vector, and how much each shard of it counts."""

    model: nn.Module
    vector: Vector
    weights: tuple[int, ...]


def merge(models: Sequence[Weighed]) -> dict[str, Tensor]:
    """Average models by weight, shard by shard: in float64, rounded to their dtypes once.

    Args:
        models: At least one, in the order in which they are summed. Where none has any weight of
            a shard, all count alike.

    Returns:
        A state_dict that shares no memory with any of them. Tensors that are not shared, such as
        integer ones, of which a mean means nothing, are the heaviest model's (of two, the first).
    """
    heaviest = max(models, key=lambda weighed: sum(weighed.weights))
    merged = deepcopy(heaviest.model)
    vector = Vector(merged)
    for shard in range(len(heaviest.weights)):
        for index, start, stop in spans_of(heaviest.vector.schema, shard, vector.flats):
            part = slice(start, stop)
            values = [(each.vector.flats[index][part], each.weights[shard]) for each in models]
            vector.flats[index][part] = _mean(values)
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
    values = [each for each in values if each[1]] or [(value, UNIT) for value, _ in values]
    first = values[0][0]
    # What all have alike must come out as it went in.
    if all(torch.equal(value, first) for value, _ in values):
        return first
    mean = torch.zeros_like(first, dtype=torch.float64)
    weights, weight = in_floats([held for _, held in values])
    for (value, _), part in zip(values, weights, strict=True):
        mean += value.double() * part
    return (mean / weight).to(first.dtype)
