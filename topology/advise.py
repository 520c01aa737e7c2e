"""The advisor: all families within a budget of pushes, the fastest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from .analysis.facts import Facts, facts
from .errors import TopologyError
from .families.family import Family
from .families.registry import FAMILIES
from .topology import Topology, parse

__all__ = ["Advice", "advise"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """A family with its best parameters, or the reason why it does not fit."""

    family: str
    spec: str
    """Spec with parameters; the plainest parameters of a family that does not fit."""
    facts: Facts | None
    """None if it does not fit."""
    why: str
    """One sentence, without a full stop."""

    @property
    def fits(self) -> bool:
        """True if it can have n nodes within the budget."""
        return self.facts is not None


def advise(n: int, degree: int, *, seed: int = 0) -> tuple[Advice, ...]:
    """Rank families for a budget of pushes: by rounds to a thousandth, then by messages.

    Args:
        n: Number of nodes, 2 to 2,048.
        degree: Maximum pushes of any node in any round, at least 1.

    Returns:
        One entry for each family, with its best parameters, except for families that describe one
        particular network. Families that do not fit come last.

    Raises:
        TopologyError: *n* or *degree* is invalid.

    >>> [advice.spec for advice in advise(16, 1)][:2]
    ['moshpit:d=4', 'one-peer-exponential']
    """
    from .analysis.spectral import NODES_MAX

    if not 2 <= n <= NODES_MAX:
        raise TopologyError(f"advice for n={n:,}: it must be from 2 to {NODES_MAX:,}")
    if degree < 1:
        raise TopologyError(f"advice for degree={degree}: it must be at least 1")
    found = []
    for name, family in FAMILIES.items():
        if family.candidates is not None:
            given = dict.fromkeys(family.candidates(n, degree))
            specs = [f"{name}:{values}" if values else name for values in given]
            found.append(_best(name, specs, n, degree, seed))
    return tuple(sorted(found, key=_rank))


def _rank(advice: Advice) -> tuple[float, ...]:
    if advice.facts is None:
        return inf, inf, inf
    rounds = advice.facts.rounds_to_1e_3 or inf
    messages = advice.facts.messages_per_round
    return float(rounds), rounds * messages, messages


def _best(name: str, specs: Sequence[str], n: int, degree: int, seed: int) -> Advice:
    fitting: list[Advice] = []
    misses: list[Advice] = []
    for spec in specs:
        try:
            known = _known(parse(spec, n, seed=seed), degree)
        except TopologyError as error:
            why = str(error).removeprefix(f"topology {spec!r} with n={n}: ")
            misses.append(Advice(family=name, spec=spec, facts=None, why=why))
        else:
            why = _why(FAMILIES[name], known)
            fitting.append(Advice(family=name, spec=spec, facts=known, why=why))
    return min(fitting, key=_rank) if fitting else misses[0]


def _known(topology: Topology, degree: int) -> Facts:
    """Return the facts about a topology; raise TopologyError if it exceeds the budget."""
    # Checking one node often saves computing all facts.
    pushes = len(topology.neighbors(0))
    if pushes <= degree:
        known = facts(topology)
        pushes = known.degree_max
    if pushes > degree:
        raise TopologyError(f"a node pushes to {pushes} others in a round, more than {degree}")
    return known


def _why(family: Family, known: Facts) -> str:
    parts = [_speed(known), family.needs or "works for any n"]
    if points := known.articulation_points:
        one = f"node {points[0]}" if len(points) == 1 else f"any of {len(points)} nodes"
        parts.append(f"losing {one} splits it")
    if known.directed:
        parts.append("directed: not for rules that average in pairs")
    if not known.doubly_stochastic:
        parts.append("the mean drifts" if known.stochastic == "row" else "needs push-sum")
    return "; ".join(parts)


def _speed(known: Facts) -> str:
    each = known.messages_per_round / known.n
    messages = f"{each:.3g} {'message' if each == 1 else 'messages'} per node and round"
    if known.rounds_to_exact is not None:
        rounds = "round" if known.rounds_to_exact == 1 else "rounds"
        return f"exact after {known.rounds_to_exact} {rounds} with {messages}"
    if known.period != 1:
        left = f"{known.contraction:.2g} of the squared disagreement"
        return f"a round leaves {left}, with {messages}"
    return f"gap {known.spectral_gap:.2g} with {messages}"
