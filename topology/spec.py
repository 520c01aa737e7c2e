"""Specs: what users type for a topology, ``name`` or ``name:key=value,key=value``."""

from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from ..gossip.errors import ConfigError
from ..gossip.specs.spec import find, read_values, spec_of_values
from .errors import TopologyError
from .families.family import Family, Values
from .families.registry import FAMILIES

__all__ = ["Spec", "read"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Spec:
    """A well-formed spec; the family decides whether a number of nodes fits it."""

    name: str
    text: str
    """The spec in canonical form."""
    family: Family
    values: Values
    """Given values, and the defaults of the others."""

    @property
    def size(self) -> int | None:
        """Number of nodes that it or a spec inside it fixes; None if open."""
        inner = (_spec(str(self.values[key])).size for key in self.family.joins)
        return next(inner, self.family.size(self.values))

    def __str__(self) -> str:
        return self.text


def read(text: str) -> Spec:
    """Parse a spec, ``name`` or ``name:key=value,key=value``.

    Raises:
        TopologyError: The family is unknown, or it does not take that parameter or value.

    >>> str(read("torus:cols=08,rows=4"))
    'torus:rows=4,cols=8'
    """
    family = _family(text)  # its error names the topology already
    try:
        return _parsed(text, family)
    except ConfigError as error:
        raise TopologyError(f"topology {text!r}: {error}") from None


def _spec(text: str) -> Spec:
    return _parsed(text, _family(text))


# Cached, as long as a name means the same family.
@lru_cache(maxsize=256)
def _parsed(text: str, family: Family) -> Spec:
    name, colon, given = text.partition(":")
    values = read_values(name, family.parameters, given if colon else None)
    for key in family.joins:
        # Parsed now, it becomes canonical, and errors show before anything is built.
        inner = str(values[key])
        try:
            values[key] = str(_spec(inner))
        except ConfigError as error:
            raise TopologyError(f"{key}={inner}: {error}") from None
    family.check(values)
    defaults = {each.name: each.default for each in family.parameters if each.default is not None}
    return Spec(
        name=name,
        text=spec_of_values(name, values),
        family=family,
        values=MappingProxyType(defaults | values),
    )


def _family(text: str) -> Family:
    return find("topology", text.partition(":")[0], FAMILIES, error=TopologyError)
