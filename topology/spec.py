"""Specs: what people type for a topology, ``name`` or ``name:key=value,key=value``."""

from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType

from .catalog import CATALOG
from .errors import TopologyError
from .family import Family, Parameter, Values

__all__ = ["Spec", "read"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Spec:
    """A spec that is well formed; whether a number of nodes fits it is for the family to say."""

    name: str
    family: Family
    values: Values
    """What was given, in the family's order."""

    @property
    def filled(self) -> Values:
        """What was given, and the defaults of what was not."""
        defaults = {p.name: p.default for p in self.family.parameters if p.default is not None}
        return defaults | dict(self.values)

    @property
    def size(self) -> int | None:
        """The number of nodes that it fixes, itself or by a spec inside it; None where open.

        Raises:
            TopologyError: A file that tells it cannot be read.
        """
        inner = (_spec(str(self.values[key])).size for key in self.family.joins)
        return next(inner, self.family.size(self.filled))

    def __str__(self) -> str:
        given = ",".join(f"{key}={_print(value)}" for key, value in self.values.items())
        return f"{self.name}:{given}" if given else self.name


@lru_cache(maxsize=256)
def read(text: str) -> Spec:
    """Read a spec.

    Args:
        text: ``name`` or ``name:key=value,key=value``.

    Raises:
        TopologyError: There is no such family, or it does not take that parameter or value.

    >>> str(read("torus:cols=08,rows=4"))
    'torus:rows=4,cols=8'
    """
    # What is no topology at all needs no further words on where that was said.
    _family(text)
    try:
        return _spec(text)
    except TopologyError as error:
        raise TopologyError(f"topology {text!r}: {error}") from None


def _spec(text: str) -> Spec:
    family = _family(text)
    name, colon, given = text.partition(":")
    if colon and not family.parameters:
        raise TopologyError(f"it takes no parameters: write {name!r}")
    values = _values(family, given, colon)
    for key in family.joins:
        # Read now, it is canonical as well, and wrong at once instead of when it is built.
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
