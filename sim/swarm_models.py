"""What the models of an in-process swarm come to: merged by weight, and how far apart."""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..train.vector import Vector

__all__ = ["Weighed", "consensus_distance", "load", "merge"]


class Weighed(NamedTuple):
    """One peer's model, and how much it counts."""

    model: nn.Module
    units: int


def merge(models: Sequence[Weighed]) -> dict[str, Tensor]:
    """Average models by weight: in float64, rounded to each tensor's own dtype once.

    Args:
        models: At least one, some with units, in the order in which they are summed.

    Returns:
        A state_dict that shares no memory with any of them. Integer tensors, of which a mean
        means nothing, are the heaviest model's (of two, the first).
    """
    states = [(_tensors(model), units) for model, units in models if units]
    heaviest = max(states, key=lambda state: state[1])[0]
    total = sum(units for _, units in states)
    return {
        name: _mean([(state[name], units) for state, units in states], total)
        if tensor.is_floating_point()
        else tensor.clone()
        for name, tensor in heaviest.items()
    }


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


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    # A module may save what is no tensor (get_extra_state): nothing to average.
    return {name: v.detach() for name, v in model.state_dict().items() if isinstance(v, Tensor)}


def _mean(values: Sequence[tuple[Tensor, int]], total: int) -> Tensor:
    first = values[0][0]
    # Frozen tensors, masks of -inf among them, must come out as they went in.
    if all(torch.equal(value, first) for value, _ in values):
        return first.clone()
    mean = torch.zeros_like(first, dtype=torch.float64)
    for value, units in values:
        mean += value.double() * units
    return (mean / total).to(first.dtype)
