"""Graphs that say whom a peer may push to: pure functions of a spec, a seed, a view and a round.

A topology only proposes neighbors. Who weighs what, and when to push, is for a rule to decide.
"""

from .errors import TopologyError
from .families import FAMILIES
from .spec import Topology, parse
from .view import neighbors

__all__ = ["FAMILIES", "Topology", "TopologyError", "neighbors", "parse"]
