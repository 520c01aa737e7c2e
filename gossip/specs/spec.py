"""Specs: ``name``, ``name:key=value,key=value``, or ``name:value`` with a single parameter.

Rules, topologies and formats are mappings from names to classes or functions, which are called with
the values of a spec.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from ..errors import ConfigError, did_you_mean
from .parameter import Parameter, Value, parameters_of, typed

__all__ = ["described", "find", "make", "read_values", "spec_of_values"]

_T = TypeVar("_T")


def find(
    what: str,
    name: str,
    known: Mapping[str, _T],
    also: str = "",
    error: type[ConfigError] = ConfigError,
    shown: Iterable[str] = (),
) -> _T:
    """Look a name up among all *known* ones.

    Args:
        what: Kind of the name, such as ``rule``, for the error.
        also: Other valid input, for the error.
        error: Class of the error for an unknown name.
        shown: Full forms of all names, if the names alone are not enough, for the error.
    """
    if name not in known:
        hint = did_you_mean(name, known)
        raise error(f"unknown {what} {name!r}{hint} Valid names: {', '.join(shown or known)}{also}")
    return known[name]


def make(what: str, spec: str, known: Mapping[str, Callable[..., _T]], also: str = "") -> _T:
    """Call the class or function that a spec names, from *known*, with the values it gives.

    >>> make("shape", "cosine", {"cosine": lambda: "falls slowly, then fast"})
    'falls slowly, then fast'
    """
    name, colon, given = spec.partition(":")
    shown = [_form(*item) for item in known.items()]
    called = find(what, name, known, also, shown=shown)
    try:
        values = read_values(name, parameters_of(called), given if colon else None)
        return called(**values)
    except ConfigError as error:
        raise ConfigError(f"{what} {spec!r}: {error}") from None


def read_values(name: str, parameters: Sequence[Parameter], given: str | None) -> dict[str, Value]:
    """Parse the part after a spec's colon (None without one), in the order of *parameters*."""
    declared = {parameter.name: parameter for parameter in parameters}
    if given is not None and not declared:
        raise ConfigError(f"it takes no parameters: write {name!r}")
    found: dict[str, Value] = {}
    for key, text in [] if given is None else _pairs(declared, given):
        if key not in declared:
            raise ConfigError(f"{_takes(parameters)}, not {key!r}")
        if key in found:
            raise ConfigError(f"{key} is given twice")
        found[key] = declared[key].read(text)
    for parameter in parameters:
        if parameter.is_required and parameter.name not in found:
            raise ConfigError(f"it needs {_shown(parameter)}, {parameter.allowed}")
    return {key: found[key] for key in declared if key in found}


def spec_of_values(name: str, values: Mapping[str, Value], *, is_bare: bool = False) -> str:
    """Return the spec that gives these values.

    >>> spec_of_values("gosgd", {"p": 0.5}), spec_of_values("topk", {"fraction": 0.1}, is_bare=True)
    ('gosgd:p=0.5', 'topk:0.1')
    """
    texts = (typed(v) if is_bare else f"{key}={typed(v)}" for key, v in values.items())
    given = ",".join(texts)
    return f"{name}:{given}" if given else name


def described(known: Mapping[str, Callable[..., object]]) -> str:
    """Return all valid forms with their descriptions, in one line for help."""
    return ", ".join(_described(name, made) for name, made in known.items())


def _described(name: str, made: Callable[..., object]) -> str:
    line = (made.__doc__ or name).partition("\n")[0].rstrip(".")
    may = [_shown(each) for each in parameters_of(made) if not each.is_required]
    told = [f"{line[0].lower()}{line[1:]}", *([", ".join(may)] if may else [])]
    return f"{_form(name, made)} ({'; '.join(told)})"


def _form(name: str, made: Callable[..., object]) -> str:
    needed = [p for p in parameters_of(made) if p.is_required]
    given = {each.name: each.name.upper() for each in needed}
    return spec_of_values(name, given, is_bare=any(each.is_bare for each in needed))


def _pairs(declared: Mapping[str, Parameter], given: str) -> list[tuple[str, str]]:
    first = next(iter(declared.values()))
    if first.is_bare:
        return [(first.name, given)]
    pairs: list[tuple[str, str]] = []
    rest, comma = given, ","
    while comma:
        key, equals, rest = rest.partition("=")
        if not equals:
            raise ConfigError(f"{key!r} is not key=value; {_takes(declared.values())}")
        if key in declared and declared[key].takes_rest:
            return [*pairs, (key, rest)]
        text, comma, rest = rest.partition(",")
        pairs.append((key, text))
    return pairs


def _takes(parameters: Iterable[Parameter]) -> str:
    return f"it takes {' and '.join(f'{_shown(each)} ({each.about})' for each in parameters)}"


def _shown(parameter: Parameter) -> str:
    return parameter.name.upper() if parameter.is_bare else f"{parameter.name}="
