"""What a family of graphs is: parameters, builders, and what is known about it.

Everything about a family stands in one `Family`, in one module of this sub-package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...gossip.specs.parameter import Parameter, Value
from ..errors import TopologyError
from ..schedules.schedule import Schedule

__all__ = [
    "Build",
    "Built",
    "Candidates",
    "Family",
    "Layout",
    "Site",
    "Values",
    "count",
    "counts",
    "whole",
]

Values = Mapping[str, Value]

Layout = Literal["circle", "star", "grid", "hosts", "line", "spring"]
"""How a picture arranges the nodes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """A schedule, with what else its builder knows."""

    schedule: Schedule
    names: tuple[str, ...] = ()
    """Of the nodes, where they have any."""

    runs: tuple[int, ...] = ()
    """Lengths of the runs of consecutive nodes that belong together, for the layouts that need
    them: rows of a grid, hosts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """Where a graph is built: how many nodes, and which random draw."""

    n: int
    """Number of nodes, at least 1."""

    seed: int
    """Of everything random."""

    inside: Callable[[str], Built]
    """Builds a spec nested in this one, at the same site."""

    names: Sequence[str] = ()
    """Ids of live peers, ascending, one for each node; empty where nodes are just numbers."""


Build = Callable[[Site, Values], Built | Schedule]
"""Builds a graph from the values of all parameters."""

Candidates = Callable[[int, int], Iterable[str]]
"""Parameters worth trying for n nodes and a degree, as a spec has them; the plainest first."""


# Compared by identity: a family registered anew is another one.
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Family:
    """What a name in a spec stands for."""

    summary: str
    """One line for a list of topologies."""

    source: str
    """The paper."""

    build: Build
    """Strict: raises TopologyError where n and the parameters do not fit."""

    layout: Layout
    parameters: tuple[Parameter, ...] = ()
    size: Callable[[Values], int | None] = lambda _: None
    """Number of nodes that the parameters fix; None where they leave it open."""

    live: Build | None = None
    """For any n of at least 1; unless given, `build`, with parameters lowered to their limits."""

    fallback: str = "any number of peers will do"
    """In words: what a live view does where `build` would refuse, or move too many edges."""

    limits: Mapping[str, int] = field(default_factory=dict)
    """Parameters that are at most n plus this: beyond it, `parse` refuses and a live view takes
    less. A single node is fine with anything."""

    joins: tuple[str, ...] = ()
    """Parameters whose value is a spec of its own."""

    check: Callable[[Values], None] = lambda _: None
    """Raises TopologyError where parameters do not go together, whatever n is."""

    candidates: Candidates | None = lambda n, degree: ("",)
    """What the advisor tries; None for a family that describes one particular network."""

    needs: str = ""
    """What n must satisfy, in words for the advisor; empty where any n will do."""

    def strict(self, site: Site, values: Values) -> Built:
        """Build as specified.

        Raises:
            TopologyError: n and the parameters do not fit.
        """
        for name, most in self._limits(site.n):
            if whole(values, name) > most:
                bound = "below n" if most < site.n else "at most n"
                raise TopologyError(f"{name}={values[name]}: it must be {bound}")
        return _described(self.build(site, values))

    def over(self, site: Site, values: Values) -> Built:
        """Build for any number of peers."""
        if self.live is not None:
            return _described(self.live(site, values))
        clipped = {name: min(whole(values, name), most) for name, most in self._limits(site.n)}
        return _described(self.build(site, {**values, **clipped}))

    def _limits(self, n: int) -> list[tuple[str, int]]:
        return [(name, n + more) for name, more in self.limits.items()] if n > 1 else []


def _described(built: Built | Schedule) -> Built:
    return built if isinstance(built, Built) else Built(schedule=built)


def count(name: str, default: int, *, low: int = 1) -> Parameter:
    """A parameter that counts neighbors of a node, or how many meet."""
    return Parameter(name=name, kind=int, low=low, default=default)


def whole(values: Values, name: str) -> int:
    """The value of a parameter that is a whole number."""
    return int(values[name])


# Whole numbers up to this are all tried; beyond, each is a quarter larger than the one before.
_ALL_UP_TO = 12


def counts(name: str, least: int = 1, more: int = 0) -> Candidates:
    """Candidates for a parameter that counts neighbors, up to the degree and *more*."""

    def choose(n: int, degree: int) -> Iterable[str]:
        most = max(least, min(degree + more, n - 1 + more))
        values = list(range(least, min(most, _ALL_UP_TO) + 1)) or [least]
        while values[-1] < most:
            values.append(min(most, values[-1] * 5 // 4))
        return [f"{name}={value}" for value in values]

    return choose
