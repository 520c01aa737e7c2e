"""All families by name, collected from the modules that define them."""

from collections.abc import Mapping
from types import MappingProxyType

from ..errors import TopologyError
from . import base_k, equitopo, exponential, files, hosts, lattices, random, random_rounds, trees
from .family import Family

__all__ = ["FAMILIES", "register"]

_families: dict[str, Family] = {}

FAMILIES: Mapping[str, Family] = MappingProxyType(_families)
"""Families by the name that users type."""


def register(name: str, family: Family) -> None:
    """Add a family, which specs can then name: by letters, digits and hyphens."""
    if name in _families:
        raise TopologyError(f"there is a topology {name!r} already")
    if not name.replace("-", "").isalnum():
        raise TopologyError(f"topology {name!r}: a name has letters, digits and hyphens only")
    _families[name] = family


# In the order in which help and pages list them.
for _module in (
    lattices,
    trees,
    exponential,
    base_k,
    random,
    random_rounds,
    equitopo,
    hosts,
    files,
):
    for _name, _family in _module.FAMILIES.items():
        register(_name, _family)
