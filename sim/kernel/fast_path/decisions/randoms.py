"""The random numbers of a rule, as numpy draws them from a generator's words."""

from .tables import Tables

__all__ = ["below", "uniform"]


def uniform(t: Tables, worker: int) -> float:
    """A number in [0, 1), as numpy's ``Generator.random`` draws it."""
    at = t.halves + worker + t.ints[t.half + worker]
    t.ints[t.half + worker] += 2
    bits: int = (int(t.floats[at + 1]) << 21) | (int(t.floats[at]) >> 11)
    return bits * 2.0**-53


def below(t: Tables, worker: int, n: int) -> int:
    """A number in [0, n), as numpy's ``Generator.integers`` draws it.

    Source: Lemire, ACM Transactions on Modeling and Computer Simulation 29, 2019.
    """
    if n == 1:
        return 0
    product = _half_word(t, worker) * n
    if product & 0xFFFFFFFF < n:
        least = (0x100000000 - n) % n
        while product & 0xFFFFFFFF < least:
            product = _half_word(t, worker) * n
    return product >> 32


def _half_word(t: Tables, worker: int) -> int:
    """32 bits: the lower half of a word first, then the upper one."""
    if t.ints[t.spare + worker] >= 0:
        found = t.ints[t.spare + worker]
        t.ints[t.spare + worker] = -1
        return int(found)
    at = t.halves + worker + t.ints[t.half + worker]
    t.ints[t.half + worker] += 2
    t.ints[t.spare + worker] = int(t.floats[at + 1])
    return int(t.floats[at])
