"""Dataclasses as tables of a file, JSON or TOML: one reader, driven by fields and their types.

A field's metadata may give its ``key`` in the file. Numbers and strings are checked by the
dataclass. Null stands for infinity in a field without a bound.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin

from ...gossip.errors import ConfigError, did_you_mean

__all__ = ["as_table", "check_keys", "fields_given", "from_table"]

_T = TypeVar("_T")


def from_table(kind: type[_T], table: object, where: str = "") -> _T:
    """Make a dataclass from a table; *where* is its name in its file.

    Its fields are numbers, strings, ``tuple[str, ...]`` (names of workers), or tuples of a
    dataclass.
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
            found[field.name] = _read(field, table[key], f"{where}: {key}" if where else key)
        elif field.default is MISSING:
            raise ConfigError(f"{where or 'it'} needs {key}")
    return found


def check_keys(content: Iterable[str], allowed: Sequence[str], where: str) -> None:
    """Refuse unknown keys of a table in a file; *where* is its name there, "" for the file."""
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


def _read(field: "Field[Any]", value: Any, where: str) -> Any:
    each = get_args(field.type)[0] if get_origin(field.type) is tuple else None
    if each is str:
        names = value if isinstance(value, list) else [value]
        if not all(isinstance(name, str | int) and not isinstance(name, bool) for name in names):
            words = "an id, an index, a list of them, or '*'"
            raise ConfigError(f"{where} is {_shown(value)}: it must be {words}")
        return tuple(map(str, names))
    if each is not None:
        if not isinstance(value, list):
            raise ConfigError(f"{where} is {_shown(value)}: it must be a list of tables")
        return tuple(from_table(each, entry, f"{where}[{at}]") for at, entry in enumerate(value))
    said = field.metadata.get("parameter")
    return math.inf if value is None and said is not None and said.is_endless else value


def _written(value: Any) -> Any:
    if value == ("*",):
        return "*"
    if isinstance(value, tuple):
        return [as_table(each) if is_dataclass(each) else each for each in value]
    # JSON has no infinity; null stands for it in a time or a rate without a bound.
    return None if value == math.inf else value


def _shown(value: object) -> str:
    return json.dumps(value, default=str)
