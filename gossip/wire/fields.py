"""The encoding of message fields: flat arrays, each field checked for type and range.

A class declares its fields once: ``seq: Annotated[int, integer(1, 9)]`` gives the Python type, and
the numbers allowed on the wire.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from inspect import signature
from operator import attrgetter
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin, get_type_hints

from ..errors import ConfigError
from ..weight import decode_weight, encode_weight

__all__ = [
    "FLAG",
    "NUMBER",
    "OPTIONAL",
    "SECONDS",
    "U32",
    "U63",
    "U64",
    "WEIGHT_BYTES_MAX",
    "Check",
    "FieldError",
    "Fields",
    "checks_of",
    "each",
    "integer",
    "named",
    "octets",
    "record",
    "row",
    "text",
    "weight",
]

WEIGHT_BYTES_MAX: Final = 128
"""Longest weight that is not a whole number of units, in bytes on the wire."""

U32: Final = 2**32 - 1
U63: Final = 2**63 - 1
U64: Final = 2**64 - 1

_SECONDS_MAX: Final = 1e11


class FieldError(Exception):
    """A field is invalid; the message says what it must be."""


class Check(NamedTuple):
    """The encoding of one field."""

    read: Callable[[Any], Any]
    """Converts a value from msgpack to the field's value, or raises `FieldError`."""
    write: Callable[[Any], Any] | None = None
    """Converts the field's value to one for msgpack; None if they are the same."""


class _Optional:
    """Marks a field that is omitted while it has its default; required fields come first."""


OPTIONAL: Final = _Optional()


def integer(low: int, high: int) -> Check:
    """A whole number in [low, high], not a bool."""

    def read(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise FieldError(f"an integer in [{low}, {high}]")
        return value

    return Check(read)


def _seconds(value: Any) -> float:
    if type(value) is not float or not 0 <= value <= _SECONDS_MAX:
        raise FieldError(f"a float in [0, {_SECONDS_MAX:g}]")
    return value


def _number(value: Any) -> float:
    if type(value) is not float or value != value:
        raise FieldError("a float that is a number")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise FieldError("true or false")
    return value


SECONDS: Final = Check(_seconds)
"""A time in [0, 1e11] s, about 3,000 years."""

NUMBER: Final = Check(_number)
"""Any float but nan; infinity is allowed."""

FLAG: Final = Check(_flag)


def weight(units_max: int) -> Check:
    """A weight of at most *units_max* units: an integer if whole, otherwise bytes."""
    weight_max = decode_weight(units_max)

    def read(value: Any) -> int:
        if type(value) is int and 0 <= value <= units_max:
            return decode_weight(value)
        if type(value) is not bytes:
            raise FieldError(f"an integer in [0, {units_max}], or bytes")
        decoded = decode_weight(value)
        # Each weight has one encoding.
        if not 0 < decoded <= weight_max or not value[0]:
            raise FieldError(f"a weight of at most {units_max} units, without leading zeros")
        if encode_weight(decoded) != value:
            raise FieldError("a number where its units are whole")
        return decoded

    return Check(read, encode_weight)


def text(length_min: int, length_max: int) -> Check:
    """Printable text of *length_min* to *length_max* characters."""

    def read(value: Any) -> str:
        if type(value) is not str or not length_min <= len(value) <= length_max:
            raise FieldError(f"text of {length_min} to {length_max} characters")
        if not value.isprintable():
            raise FieldError("printable text")
        return value

    return Check(read)


def octets(*lengths: int) -> Check:
    """Bytes of one of these lengths."""

    def read(value: Any) -> bytes:
        if type(value) is not bytes or len(value) not in lengths:
            raise FieldError(f"bytes of length {lengths}")
        return value

    return Check(read)


def each(check: Check, count_max: int) -> Check:
    """An array of at most *count_max* items, each of which passes *check*."""

    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not tuple or len(value) > count_max:
            raise FieldError(f"an array of at most {count_max}")
        return tuple(map(check.read, value))

    write = check.write
    return Check(read, None if write is None else lambda items: [write(item) for item in items])


def row(**checks: Check) -> Check:
    """An array of these items."""
    return Check(lambda value: tuple(named(value, checks).values()))


def record(cls: type[Any]) -> Check:
    """An array of the fields of a class."""
    fields = Fields(cls)
    return Check(fields.read, fields.write)


def named(value: Any, checks: dict[str, Check]) -> dict[str, Any]:
    """Check the items of an array, in the order of *checks*, and return them by name."""
    if type(value) is not tuple or len(value) != len(checks):
        raise FieldError(f"an array of {len(checks)}")
    found = {}
    for (name, check), item in zip(checks.items(), value, strict=True):
        try:
            found[name] = check.read(item)
        except FieldError as bad:
            raise FieldError(f"{name} must be {bad}") from None
    return found


class Fields:
    """Encodes the fields of a class as an array, in the order of their declaration.

    Args:
        cls: A dataclass or NamedTuple. Types are Annotated with a `Check`, and with `OPTIONAL` if a
            field may be left out; bool, IntEnum and classes of such fields need no annotation.
    """

    def __init__(self, cls: type[Any]) -> None:
        self._cls = cls
        hints = get_type_hints(cls, include_extras=True)
        names, checks = list(hints), checks_of(cls)
        optional = [name for name, hint in hints.items() if OPTIONAL in get_args(hint)[1:]]
        self._required = len(names) - len(optional)
        # Indexed by the number of optional fields that are present.
        self._checks = [
            {name: checks[name] for name in names[:count]}
            for count in range(self._required, len(names) + 1)
        ]
        parameters = signature(cls).parameters
        self._defaults = [parameters[name].default for name in optional]
        self._writers = [(i, w) for i, name in enumerate(names) if (w := checks[name].write)]
        self._values: Callable[[Any], Sequence[Any]]
        if len(names) > 1:
            self._values = attrgetter(*names)
        else:
            self._values = lambda value: [getattr(value, name) for name in names]

    def read(self, value: Any) -> Any:
        """Create an instance from an array; raise FieldError unless `write` could have made it."""
        more = len(value) - self._required if type(value) is tuple else 0
        checks = self._checks[more if 0 < more < len(self._checks) else 0]
        found = named(value, checks)
        if more > 0 and found[name := next(reversed(found))] == self._defaults[more - 1]:
            raise FieldError(f"{name} must be left out where it is {found[name]!r}")
        try:
            return self._cls(**found)
        except ConfigError as error:
            raise FieldError(f"valid: {error}") from None

    def write(self, value: Any) -> list[Any]:
        values = list(self._values(value))
        while len(values) > self._required:
            if values[-1] != self._defaults[len(values) - self._required - 1]:
                break
            values.pop()
        for index, write in self._writers:
            if index < len(values):
                values[index] = write(values[index])
        return values


def checks_of(cls: type[Any], *without: str) -> dict[str, Check]:
    """Return the checks of a class's fields, by name, in the order of their declaration."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: _check_of(hint) for name, hint in hints.items() if name not in without}


def _check_of(hint: Any) -> Check:
    if get_origin(hint) is Annotated:
        check = get_args(hint)[1]
        return check if isinstance(check, Check) else _check_of(get_args(hint)[0])
    if hint is bool:
        return FLAG
    if issubclass(hint, IntEnum):
        number = integer(0, max(hint))
        return Check(lambda value: hint(number.read(value)))
    return record(hint)
