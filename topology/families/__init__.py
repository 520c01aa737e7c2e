"""Families of graphs: each module defines a few related ones.

A family has a name, parameters, a strict builder for `parse`, a live one for changing sets of
peers, candidates for the advisor, and a source. `register` adds a family from outside.
"""

from .family import Built, Family, Site
from .registry import FAMILIES, register

__all__ = ["FAMILIES", "Built", "Family", "Site", "register"]
