"""Graphs of push targets: pure functions of a spec, a seed, a view and a round."""

import typing

from ..gossip.specs.lazy import be_lazy as _be_lazy

if typing.TYPE_CHECKING:
    from .analysis.facts import Facts, facts
    from .errors import TopologyError
    from .families.registry import FAMILIES
    from .live import over
    from .topology import Topology, parse

__all__ = [
    "FAMILIES",
    "Facts",
    "Topology",
    "TopologyError",
    "facts",
    "over",
    "parse",
]

_HOMES = {
    "analysis.facts": ("Facts", "facts"),
    "errors": ("TopologyError",),
    "families.registry": ("FAMILIES",),
    "live": ("over",),
    "topology": ("Topology", "parse"),
}


# A peer needs no facts.
_be_lazy(__name__, _HOMES)
