"""Parts of a test suite that is too long for one run."""

import re
from collections.abc import Iterable
from zlib import crc32

__all__ = ["part_of"]


def part_of(names: Iterable[str], share: str) -> set[str]:
    """Return the names of one part; the part of a name depends only on the name.

    Args:
        names: Names of all tests.
        share: ``K/N``, the K-th of N parts.

    Raises:
        ValueError: *share* does not name a part.
    """
    found = re.fullmatch(r"(\d+)/(\d+)", share)
    part, parts = map(int, found.groups()) if found else (0, 0)
    if not 1 <= part <= parts:
        raise ValueError(f"share is {share!r}: it must be K/N, with K from 1 to N")
    return {name for name in names if crc32(name.encode()) % parts == part - 1}
