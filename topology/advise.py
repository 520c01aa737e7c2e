"""Which topology to take: all families within a budget of pushes, the fastest one first."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType

import numpy as np
from scipy.sparse import csr_array

from .bottleneck import bottleneck, seconds_per_round
from .candidates import candidates
from .catalog import CATALOG
from .errors import TopologyError
from .facts import Facts, facts
from .topology import Topology, parse

__all__ = ["Advice", "advise", "check_asked"]

N_MAX, N_MAX_BANDWIDTH = 100_000, 5_000
"""Nodes beyond which advice takes hours; over bandwidths, all pairs of nodes count."""

LEFT_OUT = ("hosts", "file")
"""Families that stand for one network and no other."""

EXPANDERS = ("random-regular", "erdos-renyi", "equi-static", "d-equi-static")
"""Families whose gap does not shrink as n grows, if their degree suffices for one at all."""

# A connected graph of degree 2 is a cycle or a path, whatever its gap is for a small n.
DEGREE_OF_EXPANDERS, GAP_OF_EXPANDERS = 3, 0.1

NEEDS: Mapping[str, str] = MappingProxyType(
    {
        "grid": "needs n = rows x cols",
        "torus": "needs n = rows x cols",
        "hypercube": "needs a power of 2",
        "hypercube-matching": "needs a power of 2",
        "random-regular": "needs n x d to be even",
    }
)

EXACT_FOR: Mapping[str, str] = MappingProxyType(
    {
        "one-peer-exponential": "exact only where n is a power of 2",
        "p-peer-exponential": "exact only for some n",
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """A family with the parameters that suit it best, or why it does not fit."""

    family: str
    spec: str
    """With parameters; of a family that does not fit, the plainest ones."""

    facts: Facts | None
    """None where it does not fit."""

    seconds: float | None
    """Until any disagreement is down to a thousandth; None where bandwidths are not known, or
    that never happens."""

    why: str
    """One sentence, without a full stop."""

    @property
    def fits(self) -> bool:
        """Whether it can have n nodes within the budget."""
        return self.facts is not None


def check_asked(n: int, degree: int, bandwidth: csr_array | None = None) -> None:
    """Refuse what `advise` cannot answer, before it takes its time.

    Args:
        n: Number of nodes.
        degree: Pushes that no node exceeds in any round.
        bandwidth: Mbit/s between nodes.

    Raises:
        TopologyError: One of them is not valid.
    """
    if n < 2:
        raise TopologyError(f"advice for n={n}: it must be at least 2")
    most = N_MAX if bandwidth is None else N_MAX_BANDWIDTH
    if n > most:
        over = "" if bandwidth is None else " over bandwidths"
        raise TopologyError(f"advice{over} for n={n:,}: it must be at most {most:,}")
    if degree < 1:
        raise TopologyError(f"advice for degree={degree}: it must be at least 1")
    if bandwidth is not None and bandwidth.shape != (n, n):
        raise TopologyError(f"bandwidths are given for {bandwidth.shape[0]} nodes, not for n={n}")


def advise(
    n: int,
    degree: int,
    *,
    seed: int = 0,
    bandwidth: csr_array | None = None,
    share_bytes: int = 4_000_000,
) -> tuple[Advice, ...]:
    """Rank families for a budget of pushes.

    Args:
        n: Number of nodes, 2 to 100,000; with *bandwidth*, to 5,000.
        degree: Pushes that no node exceeds in any round, at least 1.
        seed: Of random graphs and rounds.
        bandwidth: Mbit/s between nodes where they are linked, row j: of j's pushes, float64
            ``(n, n)``; between others the narrowest link on the widest way counts. A round then
            takes as long as its slowest push.
        share_bytes: Size of one push.

    Returns:
        One entry for each family but ``hosts`` and ``file``, with its best parameters: by seconds
        to a thousandth where bandwidths are given, else by rounds; then by messages. Those that do
        not fit come last.

    Raises:
        TopologyError: *n*, *degree* or *bandwidth* is not valid.

    >>> [advice.spec for advice in advise(16, 1)][:2]
    ['one-peer-exponential', 'p-peer-exponential:p=1']
    """
    check_asked(n, degree, bandwidth)
    between = None if bandwidth is None else bottleneck(bandwidth)
    found = [
        _best(name, n, degree, seed, between, share_bytes)
        for name in CATALOG
        if name not in LEFT_OUT
    ]
    return tuple(sorted(found, key=_rank))


def _rank(advice: Advice) -> tuple[float, ...]:
    if advice.facts is None:
        return inf, inf, inf
    rounds = advice.facts.rounds_to_1e_3 or inf
    messages = advice.facts.messages_per_round
    time = rounds if advice.seconds is None else advice.seconds
    return float(time), rounds * messages, messages


def _best(
    name: str,
    n: int,
    degree: int,
    seed: int,
    between: np.ndarray | None,
    share_bytes: int,
) -> Advice:
    """The best parameters of one family."""
    fitting: list[Advice] = []
    misses: list[Advice] = []
    for spec in candidates(name, n, degree):
        try:
            topology, known = _looked_up(spec, n, degree, seed, share_bytes)
        except TopologyError as error:
            why = str(error).removeprefix(f"topology {spec!r} with n={n}: ")
            misses.append(Advice(family=name, spec=spec, facts=None, seconds=None, why=why))
            continue
        seconds = None
        if between is not None and known.rounds_to_1e_3 is not None:
            seconds = known.rounds_to_1e_3 * seconds_per_round(topology, between, share_bytes)
        why = _why(name, known)
        fitting.append(Advice(family=name, spec=spec, facts=known, seconds=seconds, why=why))
    return min(fitting, key=_rank) if fitting else misses[0]


def _looked_up(
    spec: str, n: int, degree: int, seed: int, share_bytes: int
) -> tuple[Topology, Facts]:
    """A topology that keeps the budget, and its facts.

    Raises:
        TopologyError: It cannot have n nodes, or a node pushes to too many.
    """
    topology = parse(spec, n, seed=seed)
    # Of many, one look at one node spares all that facts would count.
    pushes = len(topology.neighbors(0))
    if pushes <= degree:
        known = facts(topology, share_bytes=share_bytes)
        pushes = known.degree_max
    if pushes > degree:
        raise TopologyError(f"a node pushes to {pushes} others in a round, more than {degree}")
    return topology, known


def _why(name: str, known: Facts) -> str:
    """What speaks for a topology, and what against."""
    parts = [_speed(name, known)]
    if name in NEEDS:
        parts.append(NEEDS[name])
    elif known.rounds_to_exact is not None and name in EXACT_FOR:
        parts.append(EXACT_FOR[name])
    else:
        parts.append("works for any n")
    if points := known.articulation_points:
        one = f"node {points[0]}" if len(points) == 1 else f"any of {len(points)} nodes"
        parts.append(f"losing {one} splits it")
    if known.directed:
        parts.append("directed: not for rules that average in pairs")
    if not known.doubly_stochastic:
        parts.append("the mean drifts" if known.stochastic == "row" else "needs push-sum")
    return "; ".join(parts)


def _speed(name: str, known: Facts) -> str:
    each = known.messages_per_round / known.n
    messages = f"{each:.3g} {'message' if each == 1 else 'messages'} per node and round"
    if known.rounds_to_exact is not None:
        rounds = "round" if known.rounds_to_exact == 1 else "rounds"
        return f"exact after {known.rounds_to_exact} {rounds} with {messages}"
    if known.period != 1:
        left = f"{known.contraction:.2g} of the squared disagreement"
        return f"a round leaves {left}, with {messages}"
    expands = known.degree_max >= DEGREE_OF_EXPANDERS and known.spectral_gap >= GAP_OF_EXPANDERS
    kind = "an expander: " if name in EXPANDERS and expands else ""
    return f"{kind}gap {known.spectral_gap:.2g} with {messages}"
