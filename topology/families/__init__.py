"""Families of graphs, each module with a few related ones; `register` adds one from outside."""

from .family import Built, Family, Site
from .registry import FAMILIES, register

__all__ = ["FAMILIES", "Built", "Family", "Site", "register"]
