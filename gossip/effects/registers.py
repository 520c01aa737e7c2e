"""Named registers, some of which are created on demand."""

from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["OnDemand", "is_pattern"]

_T = TypeVar("_T")


def is_pattern(name: str) -> bool:
    """Return True if *name* is a pattern for registers with that prefix, created on demand.

    >>> is_pattern("from/*"), is_pattern("correction")
    (True, False)
    """
    return name.endswith("*")


class OnDemand(dict[str, _T]):
    """Values by register; those of on-demand registers are created at their first lookup.

    Values of permanent registers are inserted by the caller, and cost a plain dict lookup.

    Args:
        names: All registers of a rule; patterns stand for on-demand registers.

    Raises:
        KeyError: On a lookup: the rule has no such register.

    >>> held = OnDemand(["from/*"], list)
    >>> held["from/ada"].append(1)
    >>> held, held.is_on_demand("from/bob"), held.is_on_demand("x")
    ({'from/ada': [1]}, True, False)
    """

    def __init__(self, names: Iterable[str], make: Callable[[], _T]) -> None:
        super().__init__()
        self._prefixes = tuple(name[:-1] for name in names if is_pattern(name))
        self._make = make

    def is_on_demand(self, name: str) -> bool:
        """Return True if a register is created on demand."""
        return name.startswith(self._prefixes)

    def __missing__(self, name: str) -> _T:
        if not self.is_on_demand(name):
            raise KeyError(name)
        made = self[name] = self._make()
        return made
