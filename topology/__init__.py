"""Graphs that say whom a peer may push to: pure functions of a spec, a seed, a view and a round.

A topology only proposes neighbors. Who weighs what, and when to push, is for a rule to decide.
"""

from .advise import Advice, advise
from .catalog import FAMILIES
from .errors import TopologyError
from .facts import Facts, facts
from .mixing import MIXINGS
from .topology import Topology, parse
from .view import View, neighbors, over

__all__ = [
    "FAMILIES",
    "MIXINGS",
    "Advice",
    "Facts",
    "Topology",
    "TopologyError",
    "View",
    "advise",
    "facts",
    "neighbors",
    "over",
    "parse",
]
