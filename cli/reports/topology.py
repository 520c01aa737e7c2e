"""Facts about a topology in the terminal: figures, and their meaning."""

from collections.abc import Sequence

from rich.console import Console

from ...sim.results.figures import Row, named
from ...topology import Facts, Topology
from .console import counted, print_rows

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
    title = f"{facts.spec}, n = {facts.n}, seed {facts.seed}"
    print_rows(title, describe(facts, topology.names), console)


def describe(facts: Facts, names: Sequence[str] = ()) -> list[Row]:
    """Return facts in the order in which they are easiest to understand."""
    names = names or [*map(str, range(facts.n))]
    low, high = facts.degree_min, facts.degree_max
    links = ("both ways", "who pushes to another hears from it in the same round")
    if facts.directed:
        links = "directed", "a push need not be answered: not for rules that average in pairs"
    rounds = {
        None: ("random", "each one is drawn anew; the same seed draws the same"),
        1: ("all alike", "the graph does not change"),
    }.get(facts.period, (f"{facts.period} in turn", "then they begin again"))
    exact = facts.rounds_to_exact
    error = f" ± {facts.contraction_error:.1g}" if facts.contraction_error else ""
    return [
        Row(
            "pushes",
            str(high) if low == high else f"{low} to {high}",
            f"of a node in a round; {facts.messages_per_round:.6g} of all nodes",
        ),
        Row("links", *links),
        Row("rounds", *rounds),
        Row(
            "diameter",
            "infinite" if facts.diameter is None else str(facts.diameter),
            "links between the two nodes farthest apart",
        ),
        _cut("node", [names[node] for node in facts.articulation_points]),
        _cut("link", [f"{names[a]}/{names[b]}" for a, b in facts.bridges]),
        Row("mixing matrix W", *STOCHASTIC[facts.stochastic]),
        Row(
            "spectral gap",
            f"{facts.spectral_gap:.4g}",
            "what the second eigenvalue of W, or of its mean, lacks to 1",
        ),
        Row(
            "contraction",
            _factor(facts.contraction) + error,
            "the part of the squared disagreement that a round leaves, in the mean",
        ),
        Row(
            "exact",
            "never" if exact is None else counted(exact, "round"),
            "some disagreement stays" if exact is None else "all nodes hold the exact mean",
        ),
        Row(
            "effective neighbors",
            _factor(facts.effective_neighbors),
            f"between 1, alone, and {facts.n}, all of them; gamma {facts.gamma:g}",
        ),
    ]


def _cut(kind: str, found: Sequence[str]) -> Row:
    splits = f"losing any of these splits the graph: {named(found, LISTED_MAX)}"
    none = f"losing any one {kind} leaves the others connected"
    return Row(f"cut {kind}s", str(len(found)), splits if found else none)


def _factor(value: float) -> str:
    return f"1 - {1 - value:.2g}" if 0 < 1 - value < NEAR_ONE else f"{value:.4g}"
