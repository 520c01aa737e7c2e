"""Registers by name, of which some exist on demand."""

from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["OnDemand", "is_pattern"]

_T = TypeVar("_T")


def is_pattern(name: str) -> bool:
    """Whether a rule means all registers whose names begin so, which exist on demand.

    >>> is_pattern("from/*"), is_pattern("correction")
    (True, False)
    """
    return name.endswith("*")


class OnDemand(dict[str, _T]):
    """What there is of each register; of one that exists on demand it is made when it is asked for.

    What is always there is put in, and found at the price of a plain dict.

    Args:
        names: All registers of a rule; of them, patterns say what is made.

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
        """Whether a register is one of those that are made when they are asked for."""
        return name.startswith(self._prefixes)

    def __missing__(self, name: str) -> _T:
        if not self.is_on_demand(name):
            raise KeyError(name)
        made = self[name] = self._make()
        return made
