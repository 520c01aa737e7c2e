"""What tests of every rule have to know of each."""

from typing import Any

from rumor.gossip.protocol.rule import requirements_of
from rumor.gossip.rules.registry import RULES, make_rule

__all__ = [
    *("ANY_OPTIMIZER", "BOTH_WAYS", "NOT_PLAIN_ALONE", "OUTER", "PLAIN_SGD"),
    *("fitting", "topology_of"),
]

_NEEDS = {name: requirements_of(make_rule(name)) for name in RULES}

PLAIN_SGD = tuple(name for name in RULES if _NEEDS[name].plain_sgd)
"""Rules behind an optimizer without momentum."""

ANY_OPTIMIZER = tuple(name for name in RULES if name not in PLAIN_SGD)

BOTH_WAYS = tuple(name for name in RULES if getattr(make_rule(name), "both_ways", False))
"""Rules that need edges that go both ways."""

OUTER = tuple(n for n in RULES if _NEEDS[n].waits and not _NEEDS[n].fixed_members)
"""Rules with outer rounds."""

NOT_PLAIN_ALONE = (
    *("momentum-tracking", "qg-dsgdm", "decentlam", "easgd", "seasgd"),
    "gradient-tracking",  # rounding leaves something of a correction
)
"""Rules under which even a peer that is alone goes elsewhere than its optimizer."""


def topology_of(rule: str, otherwise: str = "exponential") -> str:
    """A topology on which a rule can do its work: *otherwise* where any will do."""
    if rule == "swap":
        return "random-matching"
    return "ring" if rule in BOTH_WAYS else otherwise


def fitting(rule: str) -> dict[str, Any]:
    """Settings of a simulation in which a rule can do its work."""
    return {
        # With the default, the runs of most tests are over before the first round.
        "rule": f"{rule}:h=5" if rule in OUTER else rule,
        **({"momentum": 0.0} if rule in PLAIN_SGD else {}),
        **({"topology": topology_of(rule)} if rule in BOTH_WAYS else {}),
    }
