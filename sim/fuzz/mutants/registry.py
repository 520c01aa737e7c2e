"""All mutants by name."""

from collections.abc import Mapping
from types import MappingProxyType

from ..trial import Mutant
from .exchange import EXCHANGE
from .membership import MEMBERSHIP

__all__ = ["MUTANTS"]

MUTANTS: Mapping[str, Mutant] = MappingProxyType({**EXCHANGE, **MEMBERSHIP})
"""By the name that people type."""
