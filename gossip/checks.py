"""Checks of what came from elsewhere: each turns one plain value into what it must be.

Nothing is converted: an integer that came as a float, or a text that came as bytes, is refused.
"""

from collections.abc import Callable
from typing import Any

from .weight import decode_weight, encode_weight

__all__ = ["Bad", "Check", "each", "fields", "flag", "integer", "octets", "text", "weight"]

Check = Callable[[Any], Any]
"""Takes one value and hands it on as what it must be, or raises `Bad`."""


class Bad(Exception):
    """A field is not what it must be."""


def integer(low: int, high: int) -> Check:
    """A whole number in [low, high]; a truth value is none."""

    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise Bad(f"an integer in [{low}, {high}]")
        return value

    return check


def weight(units_max: int) -> Check:
    """A weight of at most so many units: their number, or bytes where that is not whole.

    One weight has one form (`encode_weight`): whole units that came as bytes are refused, and so
    are leading zeros.
    """
    weight_max = decode_weight(units_max)

    def check(value: Any) -> int:
        if type(value) is int and 0 <= value <= units_max:
            return decode_weight(value)
        if type(value) is not bytes:
            raise Bad(f"an integer in [0, {units_max}], or bytes")
        decoded = decode_weight(value)
        if not 0 < decoded <= weight_max or not value[0]:
            raise Bad(f"a weight of at most {units_max} units, without leading zeros")
        if encode_weight(decoded) != value:
            raise Bad("a number where its units are whole")
        return decoded

    return check


def text(length_min: int, length_max: int) -> Check:
    """Printable text of so many characters."""

    def check(value: Any) -> str:
        if type(value) is not str or not length_min <= len(value) <= length_max:
            raise Bad(f"text of {length_min} to {length_max} characters")
        if not value.isprintable():
            raise Bad("printable text")
        return value

    return check


def octets(*lengths: int) -> Check:
    """Bytes of one of these lengths."""

    def check(value: Any) -> bytes:
        if type(value) is not bytes or len(value) not in lengths:
            raise Bad(f"bytes of length {lengths}")
        return value

    return check


def flag(value: Any) -> bool:
    """True or false.

    Raises:
        Bad: It is neither.
    """
    if type(value) is not bool:
        raise Bad("true or false")
    return value


def each(check: Check, count_max: int) -> Check:
    """An array of at most so many, each of which passes *check*."""

    def check_all(value: Any) -> tuple[Any, ...]:
        if type(value) is not tuple or len(value) > count_max:
            raise Bad(f"an array of at most {count_max}")
        return tuple(check(item) for item in value)

    return check_all


def fields(value: Any, table: dict[str, Check]) -> dict[str, Any]:
    """Name the items of an array by the names of a table, whose checks they pass, in its order.

    Raises:
        Bad: There are more or fewer, or one does not pass; the message names it.
    """
    if type(value) is not tuple or len(value) != len(table):
        raise Bad(f"an array of {len(table)}")
    found = {}
    for (name, check), item in zip(table.items(), value, strict=True):
        try:
            found[name] = check(item)
        except Bad as bad:
            raise Bad(f"{name} must be {bad}") from None
    return found
