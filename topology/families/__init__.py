"""Families of graphs: each module holds all that is known about a few related ones.

That is a name to type, parameters, a strict builder for `parse`, a live one for changing sets of
peers, what the advisor tries, and the paper. `register` adds a family from outside.
"""

from .family import Built, Family, Site
from .registry import FAMILIES, register

__all__ = ["FAMILIES", "Built", "Family", "Site", "register"]
