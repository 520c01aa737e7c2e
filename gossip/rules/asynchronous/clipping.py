"""Clipping: no share moves a model further than one at a given distance would."""

import math
from typing import Annotated

from ...protocol.context import RuleContext
from ...weight import coarse
from ..parameter import Parameter

__all__ = ["Clip", "mix_clipped"]

Clip = Annotated[
    float,
    Parameter(
        "largest distance (Euclidean norm) that a share may be from the model and still count in "
        "full: it moves the model no further than one at that distance would, and the weight for "
        "the rest goes back; 0 for any distance.",
        low=0,
    ),
]
"""A rule's parameter."""


def mix_clipped(context: RuleContext, clip: float) -> None:
    """Mix what was measured, and have measured what has come.

    ``x += w_s / (w_s + w) min(1, clip / |x_s - x|) (x_s - x)``, where the norm is that of the
    share's shard. So much of its weight is accepted as goes with such a move.

    Args:
        context: Of a rule whose `Requirements.measures` is set; called at each of its turns.
        clip: Largest distance that counts in full, more than 0.

    Source: He, Karimireddy and Jaggi 2022 (ClippedGossip), there of all neighbors at once and
    without weights.
    """
    measuring = set()
    for share in context.shares():
        shard, distance = share.id.shard, context.distance(share)
        if shard in measuring:
            continue  # what is measured now will have moved the model before this one's turn
        if distance is None:
            context.measure(share)
            measuring.add(shard)
        elif not math.isfinite(distance):
            context.refuse(share, "too far from the model to be measured")
        else:
            own = context.weight_of(shard)
            context.mix(share, _clipped(share.weight, own, distance, clip))


def _clipped(weight: int, own: int, distance: float, clip: float) -> int:
    """How much of a share to accept, so that it moves the model ``clip / distance`` as far.

    Args:
        weight: Of the share, in grains.
        own: What its receiver holds, likewise.
        distance: Of the share from the model.
        clip: Largest one that counts in full.
    """
    if distance <= clip or not own:
        return weight
    # With c = clip / distance, a / (a + own) = c weight / (weight + own), in integers.
    part, whole = (clip / distance).as_integer_ratio()
    return coarse(part * weight * own // (whole * own + (whole - part) * weight))
