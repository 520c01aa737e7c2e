"""Corrupted files as an attacker would write them, made from valid files with a seed."""

import json
import re
import struct
from collections.abc import Callable
from random import Random
from typing import Final

from safetensors.torch import load, save

from rumor.train.storage.checkpoint import _checksum

__all__ = ["ESCAPE", "mutate"]

ESCAPE: Final = "\x1b]0;owned\x07\x1b[2J"
"""Retitles and clears a terminal; no command may print it unescaped."""

# Values that a reader may not expect, as JSON text.
_VALUES: Final = (
    "null",
    "true",
    "0",
    "-1",
    "-0.0",
    "1e308",
    "1e999",
    "NaN",
    "-Infinity",
    '""',
    "[]",
    "{}",
    "9" * 25,
    "9" * 400,
    "9" * 5000,
    "4294967296",
    "9223372036854775808",
    "1e-320",
    "[" * 3000 + "]" * 3000,
    '{"a":' * 3000 + "1" + "}" * 3000,
    "[[1]]",
    '{"id": 1}',
    json.dumps(ESCAPE),
    '"\\ud800"',
    '"../../../etc/passwd"',
    '"/dev/zero"',
    '"os:system"',
    '"builtins:exec"',
    '"finished"',
    '"' + "x" * 5000 + '"',
    '"\\u0000"',
    '"[bold red]x[/nothing]"',
)

# A number, string or literal of JSON or TOML.
_SCALAR: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null')


def mutate(data: bytes, name: str, rng: Random) -> bytes:
    """Change a file in one to three places.

    Args:
        data: Content of the file.
        name: Name of the file, which determines its format.
        rng: Source of all choices.
    """
    for _ in range(rng.choice((1, 1, 2, 3))):
        data = rng.choice((*[_of_format(name)] * 4, _bytes))(data, rng)
    return data


def _of_format(name: str) -> Callable[[bytes, Random], bytes]:
    suffix = name.rpartition(".")[2]
    kinds = {"safetensors": _tensors} | dict.fromkeys(("json", "jsonl", "toml"), _text)
    return kinds.get(suffix, _bytes)


def _bytes(data: bytes, rng: Random) -> bytes:
    """Change any file: truncate, remove, repeat or insert bytes."""
    at = rng.randrange(len(data) + 1)
    match rng.randrange(6):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at + 1 :]
        case 2:
            return data[:at] + data[at + rng.randrange(1, 64) :]
        case 3:
            return data[:at] + data[max(0, at - 40) : at] * rng.randrange(2, 9) + data[at:]
        case 4:
            return data[:at] + rng.choice((b"\0" * 8, b"\xff" * 8, ESCAPE.encode())) + data[at:]
        case _:
            return data


def _text(data: bytes, rng: Random) -> bytes:
    """Change JSON or TOML: replace a value or key, or remove or repeat a line."""
    found = list(_SCALAR.finditer(data))
    if not found:
        return _bytes(data, rng)
    if rng.random() < 0.1:
        lines = data.splitlines(keepends=True)
        line = rng.randrange(len(lines))
        lines[line : line + 1] = [] if rng.random() < 0.5 else [lines[line]] * 3
        return b"".join(lines)
    # Mostly values: readers refuse a file with an invalid key early.
    values = [each for each in found if data[each.end() :][:1] != b":"]
    place, other = rng.choice(values if values and rng.random() < 0.9 else found), rng.choice(found)
    new = other[0] if rng.random() < 0.3 else rng.choice(_VALUES).encode()
    return data[: place.start()] + new + data[place.end() :]


def _tensors(data: bytes, rng: Random) -> bytes:
    """Change a safetensors file: its header and length, or its content with a valid checksum."""
    (size,) = struct.unpack_from("<Q", data) if len(data) > 8 else (0,)
    header, rest = data[8 : 8 + size], data[8 + size :]
    match rng.randrange(4):
        case 0:
            header = _text(header, rng)
        case 1:
            return struct.pack("<Q", rng.choice((0, 1, 2**31, 2**40, 2**63, 2**64 - 1))) + data[8:]
        case 2:
            return _rewritten(data, rng)
        case _:
            header = _declared(header, rng)
    return struct.pack("<Q", len(header)) + header + rest


def _declared(header: bytes, rng: Random) -> bytes:
    """Return a header with wrong tensor sizes."""
    huge = rng.choice((0, 2**20, 2**40, 2**62))
    return re.sub(rb'"shape":\[\d+', b'"shape":[%d' % huge, header, count=rng.randrange(1, 4))


def _rewritten(data: bytes, rng: Random) -> bytes:
    """Change metadata or set values to NaN, with a valid checksum."""
    try:
        tensors, size = load(data), struct.unpack_from("<Q", data)[0]
        metadata: dict[str, str] = json.loads(data[8 : 8 + size]).get("__metadata__", {})
    except Exception:  # an earlier change made it unreadable
        return _bytes(data, rng)
    if tensors and rng.random() < 0.3:
        tensor = tensors[rng.choice(sorted(tensors))]
        if tensor.is_floating_point():
            tensor.fill_(rng.choice((float("nan"), float("inf"), 1e38)))
    elif metadata:
        key = rng.choice(sorted(metadata))
        metadata[key] = _text(metadata[key].encode(), rng).decode(errors="replace")
    if "checksum" in metadata:
        metadata["checksum"] = _checksum(metadata.get("head", ""), tensors)
    changed: bytes = save(tensors, {key: str(value) for key, value in metadata.items()})
    return changed
