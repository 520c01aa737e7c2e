"""Facts about a topology in the terminal: figures, and their meaning."""

from collections.abc import Sequence

from rich.console import Console

from ...sim.results.figures import Row, named
from ...topology import Facts, Topology
from .console import print_rows

__all__ = ["describe", "print_facts"]

LISTED_MAX = 6
"""Number of nodes that a sentence names before it counts the rest."""

NEAR_ONE = 1e-3
"""A factor nearer to 1 is described by its difference from 1."""

STOCHASTIC = {
    "doubly": ("doubly stochastic", "the mean is kept: it is what all agree on"),
    "column": ("column-stochastic", "totals are kept: push-sum divides by the weights that come"),
    "row": ("row-stochastic", "averages of what came: the mean drifts"),
}


def print_facts(topology: Topology, facts: Facts, console: Console) -> None:
    """Print a table of facts."""
    mixing = "" if facts.mixing is None else f", {facts.mixing} weights"
    title = f"{facts.spec}, n = {facts.n}{mixing}, seed {facts.seed}"
    print_rows(title, describe(facts, topology.names), console, ("fact", "figure", "in words"))


def describe(facts: Facts, names: Sequence[str] = ()) -> list[Row]:
    """Return facts in the order in which they are easiest to understand."""
    return [
        Row("pushes", _degrees(facts), _messages(facts)),
        Row("links", "directed" if facts.directed else "both ways", _direction(facts)),
        Row("rounds", *_period(facts)),
        Row("diameter", _diameter(facts), "links between the two nodes farthest apart"),
        Row("cut nodes", str(len(facts.articulation_points)), _cut_nodes(facts, names)),
        Row("cut links", str(len(facts.bridges)), _cut_links(facts, names)),
        Row("mixing matrix W", *STOCHASTIC[facts.stochastic]),
        Row("spectral gap", f"{facts.spectral_gap:.4g}", _eigenvalue(facts)),
        Row("contraction", _with_error(facts.contraction, facts.contraction_error), _kept(facts)),
        Row("exact", *_exact(facts)),
        Row("to a thousandth", *_thousandth(facts)),
        Row(
            "effective neighbors",
            _factor(facts.effective_neighbors),
            f"between 1, alone, and {facts.n}, all of them; gamma {facts.gamma:g}",
        ),
    ]


def _degrees(facts: Facts) -> str:
    if facts.degree_min == facts.degree_max:
        return f"{facts.degree_max}"
    return f"{facts.degree_min} to {facts.degree_max}"


def _messages(facts: Facts) -> str:
    return f"of a node in a round; {facts.messages_per_round:.6g} of all nodes"


def _direction(facts: Facts) -> str:
    if facts.directed:
        return "a push need not be answered: not for rules that average in pairs"
    return "who pushes to another hears from it in the same round"


def _period(facts: Facts) -> tuple[str, str]:
    match facts.period:
        case None:
            return "random", "each one is drawn anew; the same seed draws the same"
        case 1:
            return "all alike", "the graph does not change"
        case period:
            return f"{period} in turn", f"round {period} is round 0 again"


def _diameter(facts: Facts) -> str:
    return "infinite" if facts.diameter is None else f"{facts.diameter}"


def _cut_nodes(facts: Facts, names: Sequence[str]) -> str:
    nodes = [_name(node, names) for node in facts.articulation_points]
    one = "".join(nodes[:1]) if names else f"node {' '.join(nodes[:1])}"
    return _cut(nodes, one, "losing any one node leaves the others connected")


def _cut_links(facts: Facts, names: Sequence[str]) -> str:
    links = [f"{_name(a, names)}/{_name(b, names)}" for a, b in facts.bridges]
    return _cut(links, "".join(links[:1]), "losing any one link leaves all connected")


def _cut(found: Sequence[str], one: str, none: str) -> str:
    if len(found) > 1:
        return f"losing any of these splits the graph: {named(found, LISTED_MAX)}"
    return f"losing {one} splits the graph" if found else none


def _name(node: int, names: Sequence[str]) -> str:
    return names[node] if names else str(node)


def _eigenvalue(facts: Facts) -> str:
    of = {None: "of the expected W", 1: "of W"}.get(facts.period, "of a period, for one round")
    if _is_near_one(facts.second_eigenvalue):
        return f"what the second eigenvalue {of} lacks to 1"
    return f"1 minus {facts.second_eigenvalue:.4g}, the second eigenvalue {of}"


def _kept(facts: Facts) -> str:
    if facts.contraction == 0:
        stretch = "a round" if facts.period in (None, 1) else "a period"
        return f"{stretch} leaves no disagreement at all"
    how = "in expectation, " if facts.period is None else ""
    how = "in the mean of a period, " if facts.period not in (None, 1) else how
    left = _factor(facts.contraction, ".3g")
    return f"{how}a round leaves {left} of the squared disagreement"


def _exact(facts: Facts) -> tuple[str, str]:
    if facts.rounds_to_exact is None:
        closer = "nodes come ever closer, but never quite agree"
        stays = "some disagreement stays for ever"
        return "never", stays if facts.rounds_to_1e_3 is None else closer
    return _rounds(facts.rounds_to_exact), "all nodes hold the exact mean"


def _thousandth(facts: Facts) -> tuple[str, str]:
    rounds = facts.rounds_to_1e_3
    if rounds is None:
        return "never", "some disagreement stays"
    return _rounds(rounds), f"a disagreement shrinks to a thousandth within {_rounds(rounds)}"


def _rounds(count: int) -> str:
    return f"{count:,} {'round' if count == 1 else 'rounds'}"


def _with_error(value: float, error: float) -> str:
    return f"{_factor(value)} ± {error:.1g}" if error else _factor(value)


def _factor(value: float, digits: str = ".4g") -> str:
    return f"1 - {1 - value:.2g}" if _is_near_one(value) else f"{value:{digits}}"


def _is_near_one(value: float) -> bool:
    return 0 < 1 - value < NEAR_ONE
