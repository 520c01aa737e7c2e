"""Properties and settings of each rule, for tests that cover every rule."""

from typing import Any

from rumor.gossip.protocol.rule import requirements_of
from rumor.gossip.rules.registry import RULES, make_rule
from rumor.gossip.specs.parameter import parameters_of
from rumor.sim.batched.vector_tasks import VectorTask, consensus, noise

__all__ = [
    "ANY_OPTIMIZER",
    "BOTH_WAYS",
    "CUTTING",
    "ELASTIC",
    "IN_MEMORY",
    "NOT_PLAIN_ALONE",
    "OUTER",
    "PLAIN_SGD",
    "TREES",
    "fitting",
    "spec_of",
    "topology_of",
    "vectors_of",
]

_NEEDS = {name: requirements_of(make_rule(name)) for name in RULES}

PLAIN_SGD = tuple(name for name in RULES if _NEEDS[name].plain_sgd)
"""Rules that need an optimizer without momentum."""

ANY_OPTIMIZER = tuple(name for name in RULES if name not in PLAIN_SGD)

BOTH_WAYS = tuple(name for name in RULES if getattr(make_rule(name), "both_ways", False))
"""Rules that need edges in both directions."""

TREES = tuple(name for name in RULES if _NEEDS[name].tree)
"""Rules that need a tree."""

CUTTING = tuple(name for name in RULES if _NEEDS[name].shards > 1)
"""Rules that cut the vector themselves."""

IN_MEMORY = tuple(name for name in RULES if _NEEDS[name].one_machine)
"""Rules that push nothing before all peers have finished, since peers share a segment."""

OUTER = tuple(n for n, rule in RULES.items() if "h" in [p.name for p in parameters_of(rule)])
"""Rules with outer rounds."""

ELASTIC = tuple(n for n in OUTER if not _NEEDS[n].fixed_members)
"""Rules with outer rounds whose members may change."""

NOT_PLAIN_ALONE = (
    "momentum-tracking",
    "qg-dsgdm",
    "decentlam",
    "easgd",
    "seasgd",
    "gradient-tracking",  # rounding leaves part of a correction
)
"""Rules under which even a lone peer takes other steps than its optimizer alone."""


def spec_of(rule: str) -> str:
    """Return the spec of a rule for the small models and short runs of most tests."""
    if rule in OUTER:
        # With the default, these runs would end before the first round.
        return f"{rule}:h=5"
    return f"{rule}:fraction=0.5" if rule in CUTTING else rule


def vectors_of(task: str, rule: str) -> VectorTask:
    """Return ``consensus`` or ``noise``, with vectors long enough for a rule that cuts them."""
    make = {"consensus": consensus, "noise": noise}[task]
    return make(dim=20) if rule in CUTTING else make()


def topology_of(rule: str, otherwise: str = "exponential") -> str:
    """Return a topology on which a rule works; *otherwise* if it works on any."""
    if rule == "swap":
        return "random-matching"
    if rule in TREES:
        return "tree"
    return "ring" if rule in BOTH_WAYS else otherwise


def fitting(rule: str) -> dict[str, Any]:
    """Return settings of a simulation in which a rule works."""
    settings: dict[str, Any] = {"rule": spec_of(rule)}
    if rule in PLAIN_SGD:
        settings["momentum"] = 0.0
    if rule in BOTH_WAYS or rule in TREES:
        settings["topology"] = topology_of(rule)
    return settings
