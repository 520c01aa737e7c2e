"""Graphs of push targets: pure functions of a spec, a seed, a view and a round."""

import typing

from ..gossip.specs.lazy import be_lazy as _be_lazy

if typing.TYPE_CHECKING:
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

_HOMES = {
    "advise": ("Advice", "advise"),
    "analysis.facts": ("Facts", "facts"),
    "errors": ("TopologyError",),
    "families.registry": ("FAMILIES",),
    "live": ("over",),
    "topology": ("Topology", "parse"),
}


# A peer needs neither advice nor facts.
_be_lazy(__name__, _HOMES)
