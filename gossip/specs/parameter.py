"""Parameters, declared once: in the signature of the class or function that takes them.

The signature says a parameter's name, type, default and choices; an `Annotated` type adds its range
and a help text. Checks, specs, the command line's help and the tables of the reference pages
follow.

>>> class Mine:
...     @checked
...     def __init__(self, k: Annotated[int, Parameter("how many.", low=1)] = 3) -> None:
...         self.k = k
>>> [(each.name, each.about) for each in parameters_of(Mine)]
[('k', 'an integer of at least 1; default: 3')]
"""

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from numbers import Integral, Real
from typing import Annotated, Any, Literal, ParamSpec, get_args, get_origin

from ..errors import ConfigError

__all__ = ["Parameter", "Value", "checked", "listed", "parameters_of", "typed"]

Value = int | float | bool | str

_P = ParamSpec("_P")

# Of what a type admits, what a spec can say, and what numbers of numpy are, too.
_KINDS: dict[type, tuple[type, str]] = {
    bool: (bool, "true or false"),
    int: (Integral, "an integer"),
    float: (Real, "a number"),
    str: (str, "a string"),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """What stands behind the name in a spec: one ``key=value``.

    Where a signature declares it, that says name, type, choices and default.
    """

    help: str = ""
    """One sentence or two: what it does, and what raising it costs."""
    low: float | None = None
    """The least value, itself allowed."""
    high: float | None = None
    """The largest value, itself allowed."""
    above: float | None = None
    """A bound below all values."""
    below: float | None = None
    """A bound above all values."""
    form: str = ""
    """Valid values in words, where neither type, range nor choices tell them."""
    convert: Callable[[str], Value] | None = None
    """Reads what was typed, where the type does not; raises ValueError where it is no value."""
    is_bare: bool = False
    """Whether it is typed without its name, as in ``topk:0.01``; no other may stand beside it."""
    takes_rest: bool = False
    """Whether it takes the rest of a spec, commas included."""
    name: str = ""
    kind: type = float
    choices: tuple[str, ...] = ()
    """All values of a string that are allowed; empty where any is."""
    default: Value | None = None
    """None where it must be given, or where `otherwise` says what holds."""
    otherwise: str = ""
    """What holds where it is not given, in words, where that is not the same for all."""

    @property
    def is_required(self) -> bool:
        """Whether a spec must give it."""
        return self.default is None and not self.otherwise

    @property
    def allowed(self) -> str:
        """Valid values, in words."""
        if self.form:
            return self.form
        if self.choices:
            return listed(self.choices)
        low, high = _either(self.low, self.above), _either(self.high, self.below)
        noun, is_whole = _KINDS[self.kind][1], self.kind is int
        if low is not None and high is not None:
            left, right = "[" if self.above is None else "(", "]" if self.below is None else ")"
            return f"{f'{noun} ' if is_whole else ''}in {left}{low:g}, {high:g}{right}"
        if low is not None:
            bound = f"{'at least' if self.above is None else 'above'} {low:g}"
        elif high is not None:
            bound = f"{'at most' if self.below is None else 'below'} {high:g}"
        else:
            return noun
        return f"{noun} of {bound}" if is_whole else bound

    @property
    def told_default(self) -> str:
        """The default, in words; empty where it must be given."""
        return self.otherwise if self.default is None else typed(self.default) or "empty"

    @property
    def about(self) -> str:
        """Valid values and the default, in words."""
        default = "must be given" if self.is_required else f"default: {self.told_default}"
        return f"{self.allowed}; {default}"

    def as_json(self) -> dict[str, Any]:
        """What it takes, as ``--json`` of commands tells it."""
        return {
            "name": self.name,
            "allowed": self.allowed,
            "default": self.default,
            "default_in_words": self.otherwise or None,
            "required": self.is_required,
            "help": self.help,
        }

    def read(self, text: str) -> Value:
        """Make a value of what was typed.

        Raises:
            ConfigError: It is no such value.
        """
        try:
            value = self.convert(text) if self.convert else _read(self.kind, text)
            fits = self._fits(value) and text != ""
        except ValueError:
            fits = False
        if not fits:
            raise ConfigError(f"{self.name}={text}: it must be {self.allowed}")
        return value

    def check(self, value: object) -> None:
        """See whether a value is allowed.

        Raises:
            ConfigError: It is not.
        """
        if not self._fits(value):
            raise ConfigError(f"{self.name} is {value!r}: it must be {self.allowed}")

    def _fits(self, value: object) -> bool:
        # To Python, true is a number.
        if not isinstance(value, _KINDS[self.kind][0]) or isinstance(value, bool) != (
            self.kind is bool
        ):
            return False
        if self.choices:
            return value in self.choices
        if not isinstance(value, Real):
            return True
        number: Any = value
        return (
            # Not math.isfinite, which cannot take a very large integer.
            abs(number) < math.inf
            and (self.low is None or self.low <= number)
            and (self.high is None or number <= self.high)
            and (self.above is None or self.above < number)
            and (self.below is None or number < self.below)
        )


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


def listed(names: Iterable[str]) -> str:
    """Alternatives in words.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b or c')
    """
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def typed(value: Value) -> str:
    """A value as a spec gives it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    # repr, the shortest text that reads back as the same number.
    return value if isinstance(value, str) else repr(value)


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


def _either(one: float | None, other: float | None) -> float | None:
    return other if one is None else one
