"""Dataclasses as tables of a file, JSON or TOML: one reader, driven by fields and their types.

A field's metadata may give its ``key`` in the file, and what ``null`` stands for.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, get_args, get_origin

from ...gossip.errors import ConfigError, did_you_mean

__all__ = ["as_table", "check_keys", "fields_given", "from_table"]

_T = TypeVar("_T")

_WORDS: Final[Mapping[Any, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple[str, ...]: "an id, an index, a list of them, or '*'",
}


def from_table(kind: type[_T], table: object, where: str = "") -> _T:
    """Make a dataclass from a table.

    Args:
        kind: Its fields are of bool, int, float, str, ``tuple[str, ...]`` (names of workers), a
            dataclass, or tuples of one.
        where: Name of the table in its file; empty for the file itself.
    """
    given = fields_given(kind, table, where)
    try:
        return kind(**given)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}" if where else str(error)) from None


def fields_given(
    kind: type[Any], table: object, where: str = "", more: Sequence[str] = ()
) -> dict[str, Any]:
    """Read the fields of a dataclass that a table has; it may also have the keys *more*."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where or 'it'} is {_shown(table)}: it must be a table")
    by_key = {field.metadata.get("key", field.name): field for field in fields(kind)}
    check_keys(table, (*more, *by_key), where)
    found = {}
    for key, field in by_key.items():
        if key in table:
            is_null = table[key] is None and "null" in field.metadata
            value = field.metadata["null"] if is_null else _read(field.type, table[key], key, where)
            found[field.name] = value
        elif field.default is MISSING:
            raise ConfigError(f"{where or 'it'} needs {key}, {_WORDS.get(field.type, 'a table')}")
    return found


def check_keys(content: Iterable[str], allowed: Sequence[str], where: str) -> None:
    """Refuse unknown keys of a table in a file.

    Args:
        where: Name of the table in its file; empty for the file itself.
    """
    for key in content:
        if key not in allowed:
            hint = did_you_mean(key, allowed)
            inside = f"{where} has an" if where else "it has an"
            raise ConfigError(f"{inside} unknown key {key!r}{hint} Keys are {', '.join(allowed)}")


def as_table(settings: Any) -> dict[str, Any]:
    """Convert a dataclass to a table for ``json.dumps``, without fields that have their default."""
    return {
        field.metadata.get("key", field.name): _written(value)
        for field in fields(settings)
        if (value := getattr(settings, field.name)) != field.default
    }


def _read(form: Any, value: object, key: str, where: str) -> Any:
    options = get_args(form) if isinstance(form, UnionType) else (form,)
    if value is None and NoneType in options:
        return None
    (form,) = [option for option in options if option is not NoneType]
    prefix = f"{where}: " if where else ""
    if isinstance(form, type) and is_dataclass(form):
        return from_table(form, value, f"{prefix}{key}")
    each = get_args(form)[0] if get_origin(form) is tuple else None
    if isinstance(each, type) and is_dataclass(each):
        if not isinstance(value, list):
            raise ConfigError(f"{prefix}{key} is {_shown(value)}: it must be a list of tables")
        return tuple(
            from_table(each, entry, f"{prefix}{key}[{at}]") for at, entry in enumerate(value)
        )
    found = _plain(form, value)
    if found is None:
        raise ConfigError(f"{prefix}{key} is {_shown(value)}: it must be {_WORDS[form]}")
    return found


def _plain(form: Any, value: object) -> Any:
    """Return a value of a type in `_WORDS`; None if *value* is of another type."""
    if form == tuple[str, ...]:
        names = value if isinstance(value, list) else [value]
        fits = all(isinstance(name, str | int) and not isinstance(name, bool) for name in names)
        return tuple(map(str, names)) if fits else None
    # In Python, True is a number.
    if form is bool or isinstance(value, bool):
        return value if form is type(value) else None
    if form is not float:
        return value if isinstance(value, form) else None
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None


def _written(value: Any) -> Any:
    if value == ("*",):
        return "*"
    if isinstance(value, tuple):
        return [as_table(each) if is_dataclass(each) else each for each in value]
    # JSON has no infinity; null stands for it in a time or a rate without a bound.
    return None if value == math.inf else value


def _shown(value: object) -> str:
    return json.dumps(value, default=str)
