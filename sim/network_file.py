"""Files of networks: JSON, held against what there may be, key by key."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..gossip.errors import ConfigError
from .network_parts import ALL, Cut, Host, Link

__all__ = ["check_fields", "part_as_json", "read_fields"]

Part = Host | Link | Cut

_PARTS: Mapping[str, type[Part]] = MappingProxyType({"hosts": Host, "links": Link, "cuts": Cut})
_NUMBERS = ("latency_s", "jitter", "bandwidth_mbit", "loss", "duplicates", "reorder")
_WORKERS = ("workers", "source", "to")


def read_fields(path: Path) -> tuple[object, dict[str, Any]]:
    """Read a file, whose form `read_network` shows.

    Args:
        path: The file, in UTF-8.

    Returns:
        What it calls the preset it starts from, and the fields of ``NetworkConfig`` that it gives,
        both still to be checked.

    Raises:
        ConfigError: The file cannot be read, or has another form; the message names the key.
    """
    return check_fields(_read(path))


def check_fields(given: Mapping[str, Any]) -> tuple[object, dict[str, Any]]:
    """Check what a file says, or an object inside another file; as `read_fields`.

    Raises:
        ConfigError: It has another form; the message names the key.
    """
    content = dict(given)
    _check_keys(content, ("preset", *_NUMBERS, *_PARTS), "")
    preset = content.pop("preset", "ideal")
    found: dict[str, Any] = {}
    for key, value in content.items():
        if key in _PARTS:
            if not isinstance(value, list):
                raise ConfigError(f"{key} is {json.dumps(value)}: it must be a list of objects")
            found[key] = tuple(
                _part(_PARTS[key], entry, f"{key}[{index}]") for index, entry in enumerate(value)
            )
        else:
            # Only here null says something: that there is no limit, whatever the preset has.
            found[key] = None if key == "bandwidth_mbit" and value is None else _number(value, key)
    return preset, found


def part_as_json(part: Part) -> dict[str, object]:
    """Write a part as a file has it, without what is as it is unless given."""
    found: dict[str, object] = {}
    for field in fields(part):
        value = getattr(part, field.name)
        if field.name in _WORKERS:
            found[_key(field.name)] = "*" if value == ALL else list(value)
        elif value != field.default:
            found[field.name] = value
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        content = json.loads(text, object_pairs_hook=_object)
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise ConfigError(f"line {error.lineno} is not JSON: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise ConfigError("the file is not UTF-8") from error
    except RecursionError as error:
        raise ConfigError("it is nested too deeply for a network") from error
    if not isinstance(content, dict):
        raise ConfigError("it must be a JSON object, {...}")
    return content


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ConfigError(f"{next(key for key in keys if keys.count(key) > 1)} is given twice")
    return found


def _part(kind: type[Part], entry: object, where: str) -> Part:
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} is {json.dumps(entry)}: it must be an object")
    names = {_key(field.name): field.name for field in fields(kind)}
    _check_keys(entry, tuple(names), where)
    given: dict[str, Any] = {}
    for key, value in entry.items():
        if names[key] in _WORKERS:
            given[names[key]] = _workers(value, f"{where}.{key}")
        elif value is not None:
            given[key] = _number(value, f"{where}.{key}")
    if kind is Host and "workers" not in given:
        raise ConfigError(f"{where} needs workers, those which share its uplink")
    try:
        return kind(**given)
    except ConfigError as error:
        raise ConfigError(f"{where}.{error}") from None


def _check_keys(content: Mapping[str, Any], allowed: Sequence[str], where: str) -> None:
    for key in content:
        if key not in allowed:
            close = get_close_matches(key, allowed, n=1)
            hint = f", did you mean {close[0]!r}?" if close else "."
            inside = f"{where} has an" if where else "it has an"
            raise ConfigError(f"{inside} unknown key {key!r}{hint} Keys are {', '.join(allowed)}")


def _workers(value: object, where: str) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [value]
    if not all(isinstance(name, str | int) and not isinstance(name, bool) for name in names):
        raise ConfigError(
            f"{where} is {json.dumps(value)}: it must be an id, an index, a list of them, or '*'"
        )
    return tuple(str(name) for name in names)


def _number(value: object, where: str) -> float:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    except OverflowError:
        pass
    raise ConfigError(f"{where} is {json.dumps(value)}: it must be a number")


def _key(name: str) -> str:
    # "from" cannot be the name of a field.
    return "from" if name == "source" else name
