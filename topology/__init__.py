"""Graphs of push targets: pure functions of a spec, a seed, a view and a round."""

from .advise import Advice, advise
from .analysis.facts import Facts, facts
from .errors import TopologyError
from .families.registry import FAMILIES
from .live import over
from .topology import Topology, parse

__all__ = [
    "FAMILIES",
    "Advice",
    "Facts",
    "Topology",
    "TopologyError",
    "advise",
    "facts",
    "over",
    "parse",
]
