"""What to call a point of an axis, in the middle of a sentence."""

import math
import re
from collections.abc import Mapping
from typing import Final

__all__ = ["instead", "named", "place", "plain", "values_on"]

# What people write: float() takes 1_0, and digits of other scripts, too.
_NUMBER: Final = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[-+]?[0-9]+)?", re.IGNORECASE)


def plain(label: str) -> str:
    """A label on one line: a line break must not break the sentence that it stands in.

    >>> plain("half\\n slow")
    'half slow'
    """
    return " ".join(label.split())


def named(axis: str, label: str) -> str:
    """A point where it is plain what it is a point of.

    >>> named("topology", "ring"), named("p", "0.1"), named("exact", "true")
    ('ring', 'p = 0.1', 'exact = true')
    >>> named("run", "-1"), named("run", "1_0")
    ('run = -1', '1_0')
    >>> named("speeds", "1x:50%,4x:50%")
    '"1x:50%,4x:50%"'
    """
    label = plain(label)
    if _number(label) is not None or label in ("true", "false"):
        return f"{axis} = {label}"
    # In a list of names its commas would look like the list's.
    return f'"{label}"' if "," in label else label


def place(at: Mapping[str, str]) -> str:
    """Where on the axes that a comparison is made under.

    >>> place({"partition": "dirichlet:0.1", "loss": "0.2"}), place({"data": "all data everywhere"})
    ('partition dirichlet:0.1 and loss = 0.2', 'all data everywhere')
    """
    parts = []
    for axis, label in at.items():
        name = named(axis, label)
        is_plain = name.startswith(f"{axis} = ") or axis in label.split()
        parts.append(name if is_plain else f"{axis} {name}")
    return " and ".join(parts)


def instead(axis: str, label: str, other: str) -> str:
    """One point of an axis in the place of another.

    >>> instead("partition", "dirichlet:0.1", "shared"), instead("loss", "0.2", "0")
    ('partition dirichlet:0.1 instead of shared', 'loss = 0.2 instead of 0')
    """
    return f"{place({axis: label})} instead of {named(axis, other).removeprefix(f'{axis} = ')}"


def values_on(labels: tuple[str, ...]) -> tuple[float, ...] | None:
    """The numbers that an axis' labels are; None where some label is none."""
    found = [_number(label) for label in labels]
    known = [value for value in found if value is not None]
    return tuple(known) if len(known) == len(found) else None


def _number(label: str) -> float | None:
    """An ASCII decimal, with or without sign and exponent; else None."""
    if _NUMBER.fullmatch(label.strip()) is None:
        return None
    value = float(label)
    return value if math.isfinite(value) else None
