"""The push-sum weight, counted in integers so that "nothing is lost" is an exact equality.

Weights are shown in *units*: a founder brings 2^40 of them. Internally, each unit is 2^960
*quanta*, and every integer weight counts quanta. Only this module knows both sizes.
"""

import re
import reprlib
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

__all__ = [
    "FOUNDERS_MAX",
    "HARMLESS",
    "ONE",
    "TIMES_OWN",
    "UNIT",
    "UNITS_PER_FOUNDER",
    "WEIGHT_MAX",
    "WEIGHT_MIN",
    "WHOLE_MIN",
    "Units",
    "acceptable",
    "coarse",
    "decode_weight",
    "encode_weight",
    "founders",
    "from_units",
    "half",
    "in_floats",
    "in_units",
    "mixing_fraction",
    "shown",
    "token",
]

_UNIT_BITS: Final = 960

UNIT: Final = 1 << _UNIT_BITS
"""One unit, in quanta."""

UNITS_PER_FOUNDER: Final = 2**40

ONE: Final = UNITS_PER_FOUNDER * UNIT
"""Weight of one founder, in quanta: 2^1000, so that millions of founders still fit a float64."""

# So small because each crash destroys its peer's weight for good: a swarm under constant crashes
# survives as many halvings of the total as lie between this and `ONE`.
WEIGHT_MIN: Final = 2**12
"""Below this, in quanta, a peer skips its pushes, so that halves are exact to a few thousandths."""

WEIGHT_MAX: Final = 2**61 * UNIT
"""Weight of more than two million founders: a larger one is forged, and fits no message."""

Units = int | str
"""A weight as it is shown: whole units as a number, others as text, see `in_units`."""

WHOLE_MIN: Final = 2**11 * UNIT
"""From this on, in quanta, weights are rounded to whole units; below it, to float64 precision."""

_BITS: Final = 53

TIMES_OWN: Final = 9
"""A share heavier than `HARMLESS` makes up at most nine tenths of the mixture."""

# One share must not decide the models of all peers.
FOUNDERS_MAX: Final = 8
"""Most founders' weight accepted from one share, unless its sender leaves."""

# Peers that have pushed several times in a row hold next to nothing: a light share may be nearly
# all of the mixture.
HARMLESS: Final = 4 * ONE
"""Weight that is always accepted from one share, in quanta: that of four founders."""

_FRACTION: Final = UNIT - 1
_TEXT: Final = re.compile(r"(0|[1-9][0-9]{0,399})(?:/2\^([1-9][0-9]{0,2}))?")


def coarse(weight: int) -> int:
    """Round down to a weight with a short encoding; the giver keeps the remainder."""
    if weight >= WHOLE_MIN:
        return weight >> _UNIT_BITS << _UNIT_BITS
    excess = weight.bit_length() - _BITS
    return weight >> excess << excess if excess > 0 else weight


def half(weight: int) -> int:
    """Return the weight that a GoSGD push gives away, in quanta."""
    return coarse(weight >> 1)


def token(weight: int) -> int:
    """Return the weight of a share under a rule that does not use weights, in quanta."""
    return UNIT if weight >= WHOLE_MIN else coarse(weight >> 11) or 1


def founders(weight: int) -> float:
    """Convert *weight*, in quanta, to founders, the scale for people."""
    return weight / ONE


def in_units(weight: int) -> Units:
    """Convert *weight*, in quanta, to units, exactly: an integer, or text "odd number/2^k"."""
    if not weight & _FRACTION:
        return weight >> _UNIT_BITS
    twos = (weight & -weight).bit_length() - 1
    return f"{weight >> twos}/2^{_UNIT_BITS - twos}"


def from_units(told: object) -> int:
    """Convert units to quanta: an output of `in_units`, or its text; others raise ValueError."""
    if type(told) is int and told >= 0:
        return told << _UNIT_BITS
    match = _TEXT.fullmatch(told) if type(told) is str else None
    if match is not None:
        number, twos = int(match[1]), int(match[2] or 0)
        if twos <= _UNIT_BITS and (number & 1 or not twos):
            return number << _UNIT_BITS - twos
    raise ValueError(f"{reprlib.repr(told)} is not a weight in units")


def encode_weight(weight: int, *, units_max: int | None = None) -> int | bytes:
    """Encode *weight* in units if these are whole and fit, else in quanta as big-endian bytes."""
    units = weight >> _UNIT_BITS
    if units << _UNIT_BITS == weight and (units_max is None or units <= units_max):
        return units
    return weight.to_bytes((weight.bit_length() + 7) // 8)


def decode_weight(encoded: int | bytes) -> int:
    """Decode an output of `encode_weight`, in quanta, even if it is not the shortest form."""
    return encoded << _UNIT_BITS if isinstance(encoded, int) else int.from_bytes(encoded)


def shown(value: Any, /, **weights: str) -> str:
    """Return the ``repr`` of a dataclass, with fields in units: those in *weights*, by new name."""
    words = []
    for field in fields(value):
        name, content = field.name, getattr(value, field.name)
        told = in_units(content) if name in weights else content
        words.append(f"{weights.get(name, name)}={told!r}")
    return f"{type(value).__qualname__}({', '.join(words)})"


def in_floats(weights: Sequence[int]) -> tuple[list[float], float]:
    """Return weights and their sum as floats of a common scale, which depends on the largest."""
    scale = min(UNIT, 1 << max(weights).bit_length())
    return [weight / scale for weight in weights], sum(weights) / scale


def acceptable(
    own: int, offered: int, founders_max: int = FOUNDERS_MAX, *, outweighs: bool = False
) -> int:
    """Return how much of an *offered* weight may be accepted by a receiver that holds *own* > 0.

    From honest peers, it is nearly always all of it.

    Args:
        outweighs: True if it may be more than nine tenths of the mixture.
    """
    most = founders_max * ONE
    if not outweighs:
        most = min(most, max(TIMES_OWN * own, HARMLESS))
    return offered if offered <= most else coarse(most)


def mixing_fraction(own: int, accepted: int) -> float:
    """Return the part of the mixture that a share makes up: ``w_s / (w_s + w_r)``.

    The quotient is correctly rounded, and 1 for a newcomer, which holds nothing.

    Source: Blot et al. 2016, algorithm 1, ProcessMessages.
    """
    return accepted / (own + accepted)
