"""Key files and rosters as text: canonical JSON, strictly read; secrets only their owner can read.

What is signed is a JSON object in its one canonical form (keys sorted, no white space, ASCII)
behind the name of its format, so that a signature for one kind of document never fits another.
"""

import base64
import binascii
import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ...errors import ConfigError

__all__ = [
    "TEXT_BYTES_MAX",
    "canonical",
    "field_of",
    "is_pattern",
    "key_bytes",
    "key_text",
    "read_json",
    "read_secret",
    "replace_file",
    "require_fields",
    "write_secret",
]

TEXT_BYTES_MAX: Final = 1 << 20
"""Longest text that is read, bytes: what fits into one message."""

_DEPTH_MAX: Final = 8
_KEY_BYTES: Final = 32
_PATTERN: Final = re.compile(r"\*|[A-Za-z0-9._-]{1,40}\*?", re.ASCII)


def canonical(kind: str, content: Mapping[str, Any]) -> bytes:
    """The bytes that are signed.

    >>> canonical("rumor roster 1", {"b": 1, "a": "x"})
    b'rumor roster 1\\n{"a":"x","b":1}'
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"{kind}\n{text}".encode("ascii")


def key_text(key: bytes) -> str:
    """Bytes as people see them, and as they stand in addresses: URL-safe base64 without padding.

    >>> len(key_text(bytes(32)))
    43
    """
    return base64.urlsafe_b64encode(key).rstrip(b"=").decode("ascii")


def key_bytes(text: object, size: int = _KEY_BYTES) -> bytes:
    """Read what `key_text` wrote.

    Raises:
        ValueError: This is no such text, of another length, or not the one form of these bytes.
    """
    if not isinstance(text, str) or len(text) != -(-size * 4 // 3):
        raise ValueError("not a key")
    try:
        found = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not a key") from None
    if len(found) != size or key_text(found) != text:
        raise ValueError("not a key")
    return found


def is_pattern(text: object) -> bool:
    """Whether a text says which peers may be called so: a name, the beginning of some (``gpu-*``),
    or ``*`` for all."""
    return isinstance(text, str) and _PATTERN.fullmatch(text) is not None


def read_json(text: bytes) -> dict[str, Any]:
    """Read an object, strictly.

    Raises:
        ValueError: It is too long, nested too deep, no JSON, no object, says a thing twice, or has
            numbers that are no integers of 64 bits.
    """
    if len(text) > TEXT_BYTES_MAX:
        raise ValueError(f"it is longer than {TEXT_BYTES_MAX} bytes")
    # Python's reader recurses: depth is bounded before it sees any.
    depth = 0
    for mark in re.findall(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', text):
        depth += (mark in (b"[", b"{")) - (mark in (b"]", b"}"))
        if depth > _DEPTH_MAX:
            raise ValueError("it is nested too deep")
    content = json.loads(
        text.decode("utf-8"),
        object_pairs_hook=_once,
        parse_int=_integer,
        parse_float=_no_number,
        parse_constant=_no_number,
    )
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")
    return content


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("it says a thing twice")
    return found


def _integer(text: str) -> int:
    if len(text) > 19:
        raise ValueError("it has a number that is too large")
    return int(text)


def _no_number(text: str) -> Any:
    raise ValueError(f"it has {text[:20]}, which is no integer")


def require_fields(content: object, names: frozenset[str]) -> dict[str, Any]:
    """See that something is an object with exactly these fields.

    Raises:
        ValueError: It is not.
    """
    if not isinstance(content, dict) or content.keys() != names:
        raise ValueError(f"it is no object of {', '.join(sorted(names))}")
    return content


def field_of(content: Mapping[str, Any], name: str, kind: type) -> Any:
    """A field of an object.

    Raises:
        ValueError: It is of another type.
    """
    value = content[name]
    if type(value) is not kind:
        raise ValueError(f"its {name} is of another type")
    return value


def replace_file(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a file so that others see all of it or what was there before.

    Raises:
        OSError: It cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_secret(path: Path, content: Mapping[str, Any], *, replaces: bool = False) -> None:
    """Write a new file that nobody but its owner can read.

    Raises:
        ConfigError: There is one of that name and it is not to be replaced, or it cannot be
            written.
    """
    if path.exists() and not replaces:
        raise ConfigError(f"{path} is there already: a key is never overwritten, name another file")
    try:
        replace_file(path, json.dumps(content, indent=1) + "\n", mode=0o600)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from None


def read_secret(path: Path) -> dict[str, Any]:
    """Read a file that `write_secret` wrote.

    Raises:
        ConfigError: It cannot be read, others could read it, or it holds something else.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(TEXT_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"key {path} cannot be read: {error.strerror or error}") from None
    if not stat.S_ISREG(mode) or mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"key {path} can be read by others: run chmod 600 {path}")
    try:
        return read_json(text)
    except ValueError as error:
        raise ConfigError(f"{path} is no key of `rumor keygen`: {error}") from None
