"""Named registers, some of which are created on demand."""

from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["OnDemand", "is_pattern"]

_T = TypeVar("_T")


def is_pattern(name: str) -> bool:
    """Return True if *name* is a pattern for registers with that prefix, such as ``from/*``."""
    return name.endswith("*")


class OnDemand(dict[str, _T]):
    """Values by register; those that a pattern among *names* matches are created when looked up.

    Values of the other registers are inserted by the caller, and cost a plain dict lookup.
    """

    def __init__(self, names: Iterable[str], make: Callable[[], _T]) -> None:
        super().__init__()
        self._prefixes = tuple(name[:-1] for name in names if is_pattern(name))
        self._make = make

    def is_on_demand(self, name: str) -> bool:
        return name.startswith(self._prefixes)

    def __missing__(self, name: str) -> _T:
        if not self.is_on_demand(name):
            raise KeyError(name)
        made = self[name] = self._make()
        return made
