"""A family of graphs: its parameters, builders, and facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...gossip.specs.parameter import Parameter, Value
from ..errors import TopologyError
from ..schedules.schedule import Schedule

__all__ = [
    "Build",
    "Built",
    "Family",
    "Layout",
    "Site",
    "Values",
    "count",
    "whole",
]

Values = Mapping[str, Value]

Layout = Literal["circle", "spring", "hosts"]
"""How a picture arranges the nodes; hosts as springs do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """A schedule, with further results of its builder."""

    schedule: Schedule
    names: tuple[str, ...] = ()
    runs: tuple[int, ...] = ()
    """Numbers of nodes of each host, in their order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """Arguments of every builder: the number of nodes, and the random draw."""

    n: int
    seed: int
    inside: Callable[[str], Built]
    """Builds a spec nested in this one, at the same site."""
    names: Sequence[str] = ()
    """Ids of live peers, ascending, one for each node; empty if nodes are just numbers."""


Build = Callable[[Site, Values], Built | Schedule]
"""Builds a graph from the values of all parameters."""


# Compared by identity: registering a family again makes another one.
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Family:
    """The definition of a name in a spec."""

    summary: str
    source: str
    build: Build
    """Strict: raises TopologyError if n and the parameters do not fit."""
    layout: Layout
    parameters: tuple[Parameter, ...] = ()
    size: Callable[[Values], int | None] = lambda _: None
    """Number of nodes that the parameters fix; None if they leave it open."""
    live: Build | None = None
    """Builder for any n of at least 1; default: `build`, with parameters reduced to fit."""
    fallback: str = "any number of peers will do"
    """In words: what a live view does when `build` would refuse, or move too many edges."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Parameters that are at most n plus this: above it, `parse` refuses and a live view uses
    less. A single node accepts any value."""
    joins: tuple[str, ...] = ()
    """Parameters whose value is a spec of its own."""
    check: Callable[[Values], None] = lambda _: None
    """Raises TopologyError if parameters do not go together, whatever n is."""

    def strict(self, site: Site, values: Values) -> Built:
        """Build as specified; raise TopologyError if n and the parameters do not fit."""
        for name, most in self._limits(site.n):
            if whole(values, name) > most:
                bound = "below n" if most < site.n else "at most n"
                raise TopologyError(f"{name}={values[name]}: it must be {bound}")
        return _described(self.build(site, values))

    def over(self, site: Site, values: Values) -> Built:
        if self.live is not None:
            return _described(self.live(site, values))
        clipped = {name: min(whole(values, name), most) for name, most in self._limits(site.n)}
        return _described(self.build(site, {**values, **clipped}))

    def _limits(self, n: int) -> list[tuple[str, int]]:
        return [(name, n + more) for name, more in self.limits.items()] if n > 1 else []


def _described(built: Built | Schedule) -> Built:
    return built if isinstance(built, Built) else Built(schedule=built)


def count(name: str, default: int, *, low: int = 1) -> Parameter:
    """Make a parameter that counts neighbors of a node, or members of a group."""
    return Parameter(name=name, kind=int, low=low, default=default)


def whole(values: Values, name: str) -> int:
    """Return the value of a parameter that is a whole number."""
    return int(values[name])
