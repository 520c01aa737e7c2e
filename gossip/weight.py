"""The push-sum weight, counted in integers so that "nothing is lost" is an equality.

Weights are told in *units*: a founder brings 2^40 of them. Inside, each unit is 2^960 *grains*, and
every integer that stands for a weight counts these. A crash takes its peer's weight along for good,
so where peers are killed all the time what is left must be halved again and again: grains allow for
a thousand halvings. Peers push whole units, as if there were no grains, until they hold so few that
it would matter.

No other module knows of the two sizes. Elsewhere a weight is an integer that is added, compared
and divided; it crosses the boundary here: `in_units` and `from_units` for text and JSON,
`encode_weight` and `decode_weight` for messages and journals, `in_unit_floats` for arrays, `shown`
for the ``repr`` of what holds weights.
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
    "in_unit_floats",
    "in_units",
    "mixing_fraction",
    "shown",
    "token",
]

_UNIT_BITS: Final = 960

UNIT: Final = 1 << _UNIT_BITS
"""The weight that is told as 1, in grains."""

UNITS_PER_FOUNDER: Final = 2**40

ONE: Final = UNITS_PER_FOUNDER * UNIT
"""What a founder brings, in grains: 2^1000, so that millions of founders still fit a float64."""

WEIGHT_MIN: Final = 2**12
"""Below this, in grains, a peer skips its pushes, so that halves stay halves to a few thousandths.

Not much more: each crash takes its peer's weight with it for good, and a swarm in which peers are
killed all the time goes on for as many halvings of the total as lie between this and `ONE`."""

WEIGHT_MAX: Final = 2**61 * UNIT
"""More than two million founders: whoever offers more lies, and as units it would not fit into a
message."""

Units = int | str
"""A weight as it is told: whole units as a number, others as text, see `in_units`."""

WHOLE_MIN: Final = 2**11 * UNIT
"""From here on whole units are fine enough, and below it as many bits as a float64 has."""

_BITS: Final = 53

TIMES_OWN: Final = 9
"""A share that weighs more than four founders makes up nine tenths of the mixture at most. Lighter
ones may be nearly all of it: peers that have pushed several times in a row hold next to nothing."""

FOUNDERS_MAX: Final = 8
"""So many founders' weight is taken from one share, or of a leaver as much as all founders brought
of whom a peer knows: one share must not decide what everybody's model is."""

HARMLESS: Final = 4 * ONE
"""So much of one share is always good, in grains: what four founders bring."""

_FRACTION: Final = UNIT - 1
_TEXT: Final = re.compile(r"(0|[1-9][0-9]{0,399})(?:/2\^([1-9][0-9]{0,2}))?")


def coarse(weight: int) -> int:
    """Round down to what can be told shortly; what is left over stays with whoever gives."""
    if weight >= WHOLE_MIN:
        return weight >> _UNIT_BITS << _UNIT_BITS
    excess = weight.bit_length() - _BITS
    return weight >> excess << excess if excess > 0 else weight


def half(weight: int) -> int:
    """What a GoSGD push gives away of *weight*, both in grains.

    >>> half(5)
    2
    """
    given = weight >> 1
    return given >> _UNIT_BITS << _UNIT_BITS if given >= WHOLE_MIN else coarse(given)


def token(weight: int) -> int:
    """What goes with a share of a peer that holds *weight*, under a rule that does not use weights.

    >>> token(ONE) == UNIT, token(UNIT) < UNIT, token(1)
    (True, True, 1)
    """
    return UNIT if weight >= WHOLE_MIN else coarse(weight >> 11) or 1


def founders(weight: int) -> float:
    """Express *weight*, in grains, in founders, the way people read weights.

    >>> founders(3 * ONE // 2)
    1.5
    """
    return weight / ONE


def in_units(weight: int) -> Units:
    """Tell *weight*, in grains, in units, exactly: a number, or an odd one over ``2^k`` as text."""
    if not weight & _FRACTION:
        return weight >> _UNIT_BITS
    twos = (weight & -weight).bit_length() - 1
    return f"{weight >> twos}/2^{_UNIT_BITS - twos}"


def from_units(told: object) -> int:
    """Read what `in_units` has told, or the text of it.

    Raises:
        ValueError: It is no weight, or a negative one, or otherwise written.

    >>> from_units("7/2^4") == 7 * UNIT >> 4, from_units("7") == from_units(7)
    (True, True)
    """
    if type(told) is int and told >= 0:
        return told << _UNIT_BITS
    match = _TEXT.fullmatch(told) if type(told) is str else None
    if match is not None:
        number, twos = int(match[1]), int(match[2] or 0)
        if twos <= _UNIT_BITS and (number & 1 or not twos):
            return number << _UNIT_BITS - twos
    raise ValueError(f"{reprlib.repr(told)} is no weight in units")


def in_unit_floats(weights: Sequence[Sequence[int]]) -> list[list[float]]:
    """Tell weights in units, each correctly rounded."""
    return [[weight / UNIT for weight in row] for row in weights]


def encode_weight(weight: int, *, units_max: int | None = None) -> int | bytes:
    """Make *weight* short: units where that is whole and fits, else grains as big-endian bytes."""
    units = weight >> _UNIT_BITS
    if units << _UNIT_BITS == weight and (units_max is None or units <= units_max):
        return units
    return weight.to_bytes((weight.bit_length() + 7) // 8)


def decode_weight(encoded: int | bytes) -> int:
    """Read what `encode_weight` made, in grains, whether or not it was the shortest form."""
    return encoded << _UNIT_BITS if isinstance(encoded, int) else int.from_bytes(encoded)


def shown(value: Any, /, **weights: str) -> str:
    """The ``repr`` of a dataclass, in which some of its fields are told in units.

    Args:
        weights: Names of those fields, and what each is called once it is told so.

    >>> from rumor.gossip.effects.ledger import Outstanding
    >>> shown(Outstanding(7, 3 * UNIT // 2), escrow="units")
    "Outstanding(seq=7, units='3/2^1', stranded=False)"
    """
    words = []
    for field in fields(value):
        name, content = field.name, getattr(value, field.name)
        told = in_units(content) if name in weights else content
        words.append(f"{weights.get(name, name)}={told!r}")
    return f"{type(value).__qualname__}({', '.join(words)})"


def in_floats(weights: Sequence[int]) -> tuple[list[float], float]:
    """Weights and their sum in float64: in units, or in a power of two of one, if all are small."""
    scale = min(UNIT, 1 << max(weights).bit_length())
    return [weight / scale for weight in weights], sum(weights) / scale


def acceptable(
    own: int, offered: int, founders_max: int = FOUNDERS_MAX, *, outweighs: bool = False
) -> int:
    """How much of a share may be accepted, so that nobody's word decides all.

    Args:
        own: What the receiver holds, in grains; above 0.
        offered: What comes with the share, likewise. Up to `HARMLESS` is always good.
        founders_max: As many founders' weight may come with one share.
        outweighs: Whether it may be more than nine tenths of the mixture.

    Returns:
        In grains; of honest peers, nearly always all.

    >>> acceptable(ONE, ONE) == ONE, acceptable(ONE, 99 * ONE) == 8 * ONE
    (True, True)
    >>> acceptable(3 * ONE // 4, 99 * ONE) == 27 * ONE // 4, acceptable(1, ONE) == ONE
    (True, True)
    """
    most = founders_max * ONE
    if not outweighs:
        most = min(most, max(TIMES_OWN * own, HARMLESS))
    return offered if offered <= most else coarse(most)


def mixing_fraction(own: int, accepted: int) -> float:
    """Part of the mixture that a share makes up: ``w_s / (w_s + w_r)``.

    Args:
        own: What the receiver held before, in grains.
        accepted: What it accepts of the share, in grains; not both may be 0.

    Returns:
        The correctly rounded quotient, in [0, 1]; 1 for a newcomer, who holds nothing.

    Source: Blot et al. 2016, algorithm 1, ProcessMessages.

    >>> mixing_fraction(0, ONE), mixing_fraction(ONE, ONE)
    (1.0, 0.5)
    """
    return accepted / (own + accepted)
