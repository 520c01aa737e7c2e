"""What a link carries in a second, as people type it."""

import re
from math import isfinite
from typing import Final

from ..gossip.errors import ConfigError

__all__ = ["parse_rate"]

_SCALES: Final = {
    "": 1.0,
    "k": 1e3,
    "m": 1e6,
    "g": 1e9,
    "ki": 2.0**10,
    "mi": 2.0**20,
    "gi": 2.0**30,
}

# A small b says neither bits nor bytes for certain, so it is not taken.
_RATE: Final = re.compile(
    r"(?P<number>\d+(?:\.\d+)?|\.\d+) ?(?P<scale>[kKmMgG]i?|)(?P<unit>[bB][iI][tT]|B)(?:/s|ps)?",
    re.ASCII,
)


def parse_rate(text: str) -> float:
    """Read a rate.

    Args:
        text: A number and a unit: ``bit`` or ``B``, for bytes, after ``k``, ``M``, ``G`` or
            ``Ki``, ``Mi``, ``Gi``; ``/s`` may follow.

    Returns:
        Bytes per second, above 0.

    Raises:
        ConfigError: It has another form, or is 0.

    >>> parse_rate("200mbit")
    25000000.0
    >>> parse_rate("25 MB/s")
    25000000.0
    """
    match = _RATE.fullmatch(text.strip())
    rate = 0.0
    if match is not None:
        bits = 1 if match["unit"] == "B" else 8
        rate = float(match["number"]) * _SCALES[match["scale"].lower()] / bits
    if not 0 < rate or not isfinite(rate):
        raise ConfigError(
            f"bandwidth is {text!r}: it must be a number above 0 and a unit, as in 200mbit, "
            "1gbit or 25MB/s (1 byte, B, is 8 bit)"
        )
    return rate
