"""Options that are set for single workers, such as ``3:10``."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ...gossip.errors import ConfigError

__all__ = ["batch_sizes", "by_worker"]

_T = TypeVar("_T")


def by_worker(
    option: str,
    texts: Sequence[str],
    ids: Sequence[str],
    read: Callable[[str], _T | None],
    form: str,
) -> dict[int, _T]:
    """Read ``WORKER:VALUE`` texts, where WORKER is an id, or an index from 0; return the values
    by index.

    *read* converts a value, or returns None. Messages name the *option* and its *form*.

    Raises:
        ConfigError: An entry has another form, or names an unknown worker or one twice.
    """
    found: dict[int, _T] = {}
    for text in texts:
        name, _, rest = text.strip().rpartition(":")
        value = read(rest) if name else None
        if value is None:
            raise ConfigError(f"{option} {text!r} is not {form}")
        # Ids take precedence: nodes of a file may have numbers as names, which need not start at 0.
        if name in ids:
            worker = ids.index(name)
        elif name.isascii() and name.isdigit() and int(name) < len(ids):
            worker = int(name)
        else:
            raise ConfigError(
                f"{option} {text!r}: there is no worker {name}, only 0 to {len(ids) - 1}, "
                f"called {ids[0]} to {ids[-1]}"
            )
        if worker in found:
            raise ConfigError(f"{option} names worker {worker} twice")
        found[worker] = value
    return found


def batch_sizes(
    texts: Sequence[str], ids: Sequence[str], otherwise: _T, option: str = "batch_sizes"
) -> list[int | _T]:
    """Read ``WORKER:N``: the samples per batch of each worker; see `by_worker`.

    >>> batch_sizes(["2:128", "peer-0:8"], ["peer-0", "peer-1", "peer-2"], 32)
    [8, 32, 128]
    """

    def read(text: str) -> int | None:
        return int(text) if text.isdecimal() and text.isascii() and 0 < int(text) < 2**32 else None

    form = "WORKER:N: write 3:128 for batches of 128 samples of worker 3 (N >= 1)"
    named = by_worker(option, texts, ids, read, form)
    return [named.get(index, otherwise) for index in range(len(ids))]
