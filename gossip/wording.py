"""Values with weights in them, in words for people and digests: the weights are told in units."""

from dataclasses import fields
from typing import Any

from .weight import in_units

__all__ = ["shown"]


def shown(value: Any, /, **weights: str) -> str:
    """The ``repr`` of a dataclass, in which some of its fields are told in units.

    Args:
        value: What to show.
        weights: Names of those fields, and what each is called once it is told so.

    >>> from rumor.gossip.ledger import Outstanding
    >>> from rumor.gossip.weight import UNIT
    >>> shown(Outstanding(7, 3 * UNIT // 2), escrow="units")
    "Outstanding(seq=7, units='3/2^1', stranded=False)"
    """
    words = []
    for field in fields(value):
        name, content = field.name, getattr(value, field.name)
        told = in_units(content) if name in weights else content
        words.append(f"{weights.get(name, name)}={told!r}")
    return f"{type(value).__qualname__}({', '.join(words)})"
