"""What a family of graphs is: a name in a spec, its parameters, and how to build it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from scipy.sparse import csr_array

from .errors import TopologyError
from .schedule import Schedule

__all__ = ["Built", "Family", "Layout", "Parameter", "Site", "Value", "Values"]

Value = int | float | str
Values = Mapping[str, Value]

Layout = Literal["circle", "star", "grid", "tree", "hypercube", "hosts", "line", "spring"]
"""How a picture places the nodes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """A schedule, with what only a file knows."""

    schedule: Schedule
    names: tuple[str, ...] = ()
    """Of the nodes, where they have any."""

    bandwidth: csr_array | None = None
    """Mbit/s of each push, row j: of j's, float64 ``(n, n)``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """Where a graph is built: how many nodes, and which draw."""

    n: int
    """Number of nodes, at least 1."""

    seed: int
    """Of what is drawn at random."""

    inside: Callable[[str], Built]
    """Builds a spec that stands inside this one, at the same site."""

    names: Sequence[str] = ()
    """Ids of live peers, ascending, one for each node; empty where nodes are only numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """One ``key=value`` that a family takes."""

    name: str
    kind: Callable[[str], Value]
    """Makes a value of what was typed; a ValueError where it cannot."""

    allowed: str
    """What may stand there, in words."""

    fits: Callable[[Value], bool] = lambda _: True
    default: Value | None = None
    """What holds when it is not given; None where `default_text` says how it is found."""

    default_text: str = ""
    """In words, where the default depends on n; empty with no default: it must be given."""

    @property
    def is_required(self) -> bool:
        """Whether a spec must give it."""
        return self.default is None and not self.default_text

    def read(self, text: str) -> Value:
        """Make a value from what was typed.

        Raises:
            TopologyError: It is no such value.
        """
        try:
            value = self.kind(text)
        except ValueError:
            raise TopologyError(f"{self.name}={text}: it must be {self.allowed}") from None
        if not text or not self.fits(value):
            raise TopologyError(f"{self.name}={text}: it must be {self.allowed}")
        return value


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """One row of the catalog: what a name in a spec stands for."""

    summary: str
    """One line for a list of topologies."""

    source: str
    """The paper."""

    build: Callable[[Site, Values], Built]
    """Strict: raises TopologyError where n and parameters do not fit."""

    layout: Layout
    parameters: tuple[Parameter, ...] = ()
    size: Callable[[Values], int | None] = lambda _: None
    """The number of nodes that the parameters fix, None where they leave it open."""

    live: Callable[[Site, Values], Built] | None = None
    """For any n of at least 1; `build` where that takes any n."""

    fallback: str = "any number of peers will do"
    """In words: what a live view does where `build` would refuse, or move too many edges."""

    joins: tuple[str, ...] = field(default=())
    """Parameters that swallow the rest of a spec, commas included: each is a spec itself."""

    check: Callable[[Values], None] = lambda _: None
    """Raises TopologyError where parameters do not go together, whatever n is."""
