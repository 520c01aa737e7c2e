"""Specs: what users type for a topology, ``name`` or ``name:key=value,key=value``."""

from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType

from .errors import TopologyError
from .families.family import Family, Parameter, Values
from .families.registry import CATALOG

__all__ = ["Spec", "read"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Spec:
    """A well-formed spec; whether a number of nodes fits it is for the family to say."""

    name: str
    family: Family
    values: Values
    """The values given, in the family's order."""

    @property
    def filled(self) -> Values:
        """The values given, and the defaults of the others."""
        defaults = {p.name: p.default for p in self.family.parameters if p.default is not None}
        return defaults | dict(self.values)

    @property
    def size(self) -> int | None:
        """The number of nodes that it or a spec inside it fixes; None where open.

        Raises:
            TopologyError: A file with the nodes cannot be read.
        """
        inner = (spec.size for spec in self._inside)
        return next(inner, self.family.size(self.filled))

    @property
    def pairs(self) -> int:
        """A lower bound on linked pairs of nodes, known before anything is built."""
        return self.family.pairs(self.values) + sum(spec.pairs for spec in self._inside)

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the files that its graph is read from."""
        inner = (path for spec in self._inside for path in spec.files)
        return (*self.family.files(self.values), *inner)

    @property
    def _inside(self) -> "tuple[Spec, ...]":
        return tuple(_spec(str(self.values[key])) for key in self.family.joins)

    def __str__(self) -> str:
        given = ",".join(f"{key}={_print(value)}" for key, value in self.values.items())
        return f"{self.name}:{given}" if given else self.name


def read(text: str) -> Spec:
    """Parse a spec.

    Args:
        text: ``name`` or ``name:key=value,key=value``.

    Raises:
        TopologyError: There is no such family, or it does not take that parameter or value.

    >>> str(read("torus:cols=08,rows=4"))
    'torus:rows=4,cols=8'
    """
    # The error for an unknown family names it already.
    family = _family(text)
    try:
        return _parsed(text, family)
    except TopologyError as error:
        raise TopologyError(f"topology {text!r}: {error}") from None


def _spec(text: str) -> Spec:
    return _parsed(text, _family(text))


# Once, as long as a name stands for the same family.
@lru_cache(maxsize=256)
def _parsed(text: str, family: Family) -> Spec:
    name, colon, given = text.partition(":")
    if colon and not family.parameters:
        raise TopologyError(f"it takes no parameters: write {name!r}")
    values = _values(family, given, colon)
    for key in family.joins:
        # Parsed now, it becomes canonical, and errors show before anything is built.
        inner = str(values[key])
        try:
            values[key] = str(_spec(inner))
        except TopologyError as error:
            raise TopologyError(f"{key}={inner}: {error}") from None
    family.check(values)
    return Spec(name=name, family=family, values=MappingProxyType(values))


def _family(text: str) -> Family:
    name = text.partition(":")[0]
    if name in CATALOG:
        return CATALOG[name]
    close = get_close_matches(name, CATALOG, n=1)
    hint = f", did you mean {close[0]!r}?" if close else "."
    raise TopologyError(f"unknown topology {name!r}{hint} Valid names: {', '.join(CATALOG)}")


def _values(family: Family, given: str, colon: str) -> dict[str, int | float | str]:
    allowed = {parameter.name: parameter for parameter in family.parameters}
    found = {}
    for key, text in _pairs(family, given) if colon else ():
        if key not in allowed:
            raise TopologyError(f"it takes {_listed(family)}, not {key!r}")
        if key in found:
            raise TopologyError(f"{key} is given twice")
        found[key] = allowed[key].read(text)
    for parameter in family.parameters:
        if parameter.is_required and parameter.name not in found:
            raise TopologyError(f"it needs {parameter.name}=, {parameter.allowed}")
    return {name: found[name] for name in allowed if name in found}


def _pairs(family: Family, given: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    rest = given
    while True:
        key, equals, after = rest.partition("=")
        if not equals:
            raise TopologyError(f"{rest!r} is not key=value; it takes {_listed(family)}")
        if key in family.joins:
            return [*pairs, (key, after)]
        text, comma, rest = after.partition(",")
        pairs.append((key, text))
        if not comma:
            return pairs


def _listed(family: Family) -> str:
    return " and ".join(f"{p.name}= ({_about(p)})" for p in family.parameters)


def _about(parameter: Parameter) -> str:
    if parameter.default_text:
        return f"{parameter.allowed}; {parameter.default_text} unless given"
    if parameter.default is not None:
        return f"{parameter.allowed}; {_print(parameter.default)} unless given"
    return parameter.allowed


def _print(value: int | float | str) -> str:
    # repr, the shortest text that reads back as the same number.
    return value if isinstance(value, str) else repr(value)
