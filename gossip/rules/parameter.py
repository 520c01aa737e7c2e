"""Parameters of a rule, declared once: in the signature of its class.

The signature says a parameter's name, type, default and choices; an `Annotated` type adds its range
and a help text. Checks, specs, the command line's help and the table in
docs/reference/rules.md follow.

>>> class Mine:
...     @checked
...     def __init__(self, k: Annotated[int, Parameter("how many.", low=1)] = 3) -> None:
...         self.k = k
>>> [(each.name, each.default, each.allowed) for each in parameters_of(Mine)]
[('k', 3, 'at least 1')]
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from numbers import Integral, Real
from typing import Annotated, Any, Literal, ParamSpec, get_args, get_origin

from ..errors import ConfigError

__all__ = ["Parameter", "Value", "checked", "parameters_of"]

Value = int | float | bool | str

_P = ParamSpec("_P")

# Of what a type admits, what a spec can say, and what numbers of numpy are, too.
_KINDS: dict[type, tuple[type, str]] = {
    bool: (bool, "true or false"),
    int: (Integral, "an integer"),
    float: (Real, "a number"),
    str: (str, "a text"),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a rule.

    A class gives help and range; the other fields are filled in from its signature.
    """

    help: str = ""
    """One sentence or two: what it does, and what raising it costs."""
    low: float | None = None
    """The least value, itself allowed."""
    high: float | None = None
    """The largest value, itself allowed."""
    name: str = ""
    kind: type = float
    choices: tuple[str, ...] = ()
    """All values of a text that are allowed; empty where any is."""
    default: Value | None = None
    """None where it must be given."""

    @property
    def allowed(self) -> str:
        """What may stand there, in words."""
        if self.choices:
            *others, last = self.choices
            return f"{', '.join(others)} or {last}" if others else last
        if self.low is not None and self.high is not None:
            return f"in [{self.low:g}, {self.high:g}]"
        if self.low is not None:
            return f"at least {self.low:g}"
        if self.high is not None:
            return f"at most {self.high:g}"
        return _KINDS[self.kind][1]

    def read(self, text: str) -> Value:
        """Make a value of what was typed.

        Raises:
            ConfigError: It is no such value.
        """
        try:
            value = _read(self.kind, text)
        except ValueError:
            raise ConfigError(f"{self.name}={text}: it must be {_KINDS[self.kind][1]}") from None
        self.check(value)
        return value

    def check(self, value: object) -> None:
        """See whether a value is allowed.

        Raises:
            ConfigError: It is not.
        """
        wanted, words = _KINDS[self.kind]
        # To Python, true is a number.
        if not isinstance(value, wanted) or isinstance(value, bool) != (self.kind is bool):
            raise ConfigError(f"{self.name} is {value!r}: it must be {words}")
        if self.choices:
            fits = value in self.choices
        elif isinstance(value, Real):
            number: Any = value
            low = -math.inf if self.low is None else self.low
            high = math.inf if self.high is None else self.high
            # Not math.isfinite, which cannot take a very large integer.
            fits = low <= number <= high and abs(number) < math.inf
        else:
            fits = True
        if not fits:
            raise ConfigError(f"{self.name} is {value}: it must be {self.allowed}")


@lru_cache(maxsize=256)
def parameters_of(make: Callable[..., object]) -> tuple[Parameter, ...]:
    """All parameters of a class, or of a function, that a spec can give, in their order.

    Those of types that no text stands for are left out: they keep their defaults.

    Raises:
        ConfigError: Such a one has no default, or the signature cannot be read.
    """
    found = []
    for name, given in _signature(make).parameters.items():
        parameter = _declared(given.annotation)
        required = given.default is given.empty
        if parameter is not None and given.kind not in (given.VAR_POSITIONAL, given.VAR_KEYWORD):
            found.append(replace(parameter, name=name, default=None if required else given.default))
        elif required and given.kind not in (given.VAR_POSITIONAL, given.VAR_KEYWORD):
            raise ConfigError(
                f"{make.__qualname__} needs {name}, which is not an int, float, bool, str or "
                "Literal: give it a default, or such a type"
            )
    return tuple(found)


def checked(init: Callable[_P, None]) -> Callable[_P, None]:
    """Make a constructor check its arguments against what it declares, before it runs.

    The constructor raises ConfigError where one is out of range.
    """
    signature = inspect.signature(init, eval_str=True)
    declared = {name: _declared(given.annotation) for name, given in signature.parameters.items()}
    parameters = {name: replace(each, name=name) for name, each in declared.items() if each}

    @wraps(init)
    def check_and_init(*args: _P.args, **kwargs: _P.kwargs) -> None:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if name in parameters:
                parameters[name].check(value)
        init(*args, **kwargs)

    return check_and_init


def _signature(make: Callable[..., object]) -> inspect.Signature:
    try:
        return inspect.signature(make, eval_str=True)
    except (NameError, TypeError, ValueError) as error:
        raise ConfigError(f"the signature of {make!r} cannot be read: {error}") from error


def _declared(annotation: Any) -> Parameter | None:
    """What an annotation says of a parameter; None where no text stands for its type."""
    said: Parameter | None = None
    if get_origin(annotation) is Annotated:
        annotation, *extras = get_args(annotation)
        said = next((extra for extra in extras if isinstance(extra, Parameter)), None)
    if get_origin(annotation) is Literal:
        choices = tuple(map(str, get_args(annotation)))
        return replace(said or Parameter(), kind=str, choices=choices)
    return replace(said or Parameter(), kind=annotation) if annotation in _KINDS else None


def _read(kind: type, text: str) -> Value:
    if kind is bool:
        if text not in ("true", "false"):
            raise ValueError(text)
        return text == "true"
    value: Value = kind(text)
    return value
