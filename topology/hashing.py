"""Random draws as pure functions of labels: the same labels give the same draw on every machine,
whatever the versions of Python and numpy."""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

__all__ = ["blend", "distinct", "generator", "key", "shuffled", "uniform"]

Words = NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


def key(seed: int, *labels: str | int) -> int:
    """Hash a seed and some labels to a number in [0, 2**64)."""
    text = "\0".join(map(str, (seed, *labels)))
    # Peer ids may be any bytes that a file system or a user allows.
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


def shuffled(word: int, n: int) -> NDArray[np.int64]:
    """Return 0 to n-1 in a random order, by a word in [0, 2**64) from `key`."""
    # Not a generator's permutation: numpy does not promise stable streams.
    order: NDArray[np.int64] = np.argsort(blend(word, np.arange(n, dtype=np.uint64)), kind="stable")
    return order


def uniform(word: int, number: int) -> float:
    """Draw a number as a pure function of two: one of 2**53 in [0, 1), equally likely.

    Args:
        word: In [0, 2**64): selects the sequence.
        number: Place in it, from 0.

    Source: Steele, Lea and Flood, OOPSLA 2014, SplitMix64.
    """
    mixed = (word + (number + 1) * _GOLDEN) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((mixed ^ (mixed >> 31)) >> 11) * 2.0**-53


def generator(seed: int, *labels: str | int) -> np.random.Generator:
    """Make a random stream for a seed and some labels, where peers need not agree on it."""
    return np.random.Generator(np.random.Philox(key=key(seed, *labels)))


def blend(*words: Words | int) -> Words:
    """Hash numbers elementwise: each bit of the result depends on each bit of each word.

    Args:
        words: uint64 arrays that can be broadcast together, or numbers in [0, 2**64).

    Source: Steele, Lea and Flood, OOPSLA 2014, SplitMix64's finalizer.
    """
    mixed = np.zeros(1, np.uint64)
    for word in words:
        mixed = mixed ^ np.atleast_1d(np.asarray(word, np.uint64))
        mixed = mixed + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    return mixed


def distinct(words: Iterable[Words], population: int) -> NDArray[np.int64]:
    """Draw distinct numbers in [0, population) from random words; every set is equally likely.

    Args:
        words: One array of shape ``(n,)`` per number wanted, at most *population* of them.

    Returns:
        int64 with axes ``(draw, which number)``.

    Source: Bentley and Floyd, CACM 1987, algorithm F2.
    """
    columns = list(words)
    chosen: list[NDArray[np.int64]] = []
    for word, last in zip(columns, range(population - len(columns), population), strict=True):
        number = (word % np.uint64(last + 1)).astype(np.int64)
        taken = np.zeros(len(number), bool)
        for earlier in chosen:
            taken |= earlier == number
        chosen.append(np.where(taken, last, number))
    return np.stack(chosen, axis=1)
