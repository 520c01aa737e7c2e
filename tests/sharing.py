"""Parts of a test suite that is too long to be run whole."""

import re
from collections.abc import Iterable
from zlib import crc32

__all__ = ["part_of"]


def part_of(names: Iterable[str], share: str) -> set[str]:
    """Names of one part; which part a name is in depends on nothing but the name.

    Args:
        names: Of all tests.
        share: ``K/N``, the K-th of N parts.

    Raises:
        ValueError: There is no such part.
    """
    found = re.fullmatch(r"(\d+)/(\d+)", share)
    part, parts = map(int, found.groups()) if found else (0, 0)
    if not 1 <= part <= parts:
        raise ValueError(f"share is {share!r}: it must be K/N, with K from 1 to N")
    return {name for name in names if crc32(name.encode()) % parts == part - 1}
