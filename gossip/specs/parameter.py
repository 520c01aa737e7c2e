"""Parameters, declared once: in the signature of the class or function that takes them.

The signature gives a parameter's name, type, default and choices; an `Annotated` type adds its
range and help text. The fields of a dataclass are also parameters: its settings.

>>> class Mine:
...     @checked
...     def __init__(self, k: Annotated[int, Parameter("how many.", low=1)] = 3) -> None:
...         self.k = k
>>> [(each.name, each.about) for each in parameters_of(Mine)]
[('k', 'an integer of at least 1; default: 3')]
"""

import inspect
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache, lru_cache, wraps
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ForwardRef, Literal, ParamSpec, Union, get_args, get_origin

import numpy as np

from ..errors import ConfigError

__all__ = [
    *("Parameter", "Value", "check_settings", "checked", "listed", "parameters_of"),
    *("plain_numbers", "setting", "settings_of", "typed"),
]

Value = int | float | bool | str

_P = ParamSpec("_P")

_METADATA = "parameter"
"""Key of a field's `Parameter` in the field's metadata."""

# The types accepted for each parameter type, numpy's numbers included, and its name in errors.
_KINDS: dict[type, tuple[Any, str]] = {
    bool: (bool, "true or false"),
    int: (Integral, "an integer"),
    float: (Real, "a number"),
    str: (str, "a string"),
    Path: (str | Path, "a path"),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter, ``key=value`` in a spec; its signature sets name, type, choices and default."""

    help: str = ""
    """One or two sentences: its effect, and the cost of raising it."""
    low: float | None = None
    """Least value, inclusive."""
    high: float | None = None
    """Largest value, inclusive."""
    above: float | None = None
    """Lower bound, exclusive."""
    is_endless: bool = False
    """True if a number may be infinite."""
    below: float | None = None
    """Upper bound, exclusive."""
    form: str = ""
    """Valid values in words, if type, range and choices do not give them."""
    convert: Callable[[str], Value] | None = None
    """Parses text, if the type does not; raises ValueError if the text is invalid."""
    is_bare: bool = False
    """True if it is typed without its name, as in ``topk:0.01``; it must be the only parameter."""
    takes_rest: bool = False
    """True if it takes the rest of a spec, commas included."""
    brief: str = ""
    """The help in a few words, for lists with one line each."""
    metavar: str = ""
    """Placeholder of the value in help, if name and type do not give one."""
    flags: tuple[str, ...] = ()
    """Flags of the option, if not ``--`` and its name."""
    name: str = ""
    kind: type = float
    choices: tuple[str, ...] = ()
    """All allowed strings; empty if any is allowed."""
    default: Value | None = None
    """None if a value must be given, or `otherwise` describes the default."""
    otherwise: str = ""
    """The default in words, if it depends on other things."""
    is_optional: bool = False
    """True if None is a valid value."""
    is_several: bool = False
    """True if a value is a tuple of items that match `kind` and range."""
    is_mixed: bool = False
    """True if values of types that cannot be written as text are also allowed."""

    @property
    def is_plain(self) -> bool:
        """True if each value is one number or one string, as in a spec."""
        return not (self.is_optional or self.is_several or self.is_mixed or self.kind is Path)

    @property
    def is_required(self) -> bool:
        """True if a spec must give it."""
        return self.default is None and not self.otherwise

    @property
    def allowed(self) -> str:
        if self.form:
            return self.form
        if self.choices:
            return listed(self.choices)
        low = self.above if self.low is None else self.low
        high = self.below if self.high is None else self.high
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
        """The default, in words; empty if a value must be given."""
        return self.otherwise if self.default is None else typed(self.default) or "empty"

    @property
    def about(self) -> str:
        """Valid values and the default, in words."""
        default = "must be given" if self.is_required else f"default: {self.told_default}"
        return f"{self.allowed}; {default}"

    def as_json(self) -> dict[str, Any]:
        """Return its description for the ``--json`` output of commands."""
        return {
            "name": self.name,
            "allowed": self.allowed,
            "default": self.default,
            "default_in_words": self.otherwise or None,
            "required": self.is_required,
            "help": self.help,
        }

    def read(self, text: str) -> Value:
        """Parse a value; raise ConfigError if the text is not valid."""
        try:
            value = self.convert(text) if self.convert else _read(self.kind, text)
            if text and self._is_in_range(value):
                return value
        except ValueError:
            pass
        raise ConfigError(f"{self.name}={text}: it must be {self.allowed}")

    def read_all(self, text: str) -> Any:
        """Parse an environment variable: items are separated by commas, a switch may be 0 or 1."""
        if self.is_several and "," in text:
            return tuple(self.read(each.strip()) for each in text.split(",") if each.strip())
        if self.kind is bool and text in ("0", "1"):
            return text == "1"
        value: Any = self.read(text)
        value = value.absolute() if isinstance(value, Path) else value
        return (value,) if self.is_several and not self.is_mixed else value

    def check(self, value: object) -> None:
        """Raise ConfigError if a value is not allowed."""
        if value is None and self.is_optional:
            return
        if self.is_several:
            self._check_several(value)
            return
        if isinstance(value, str | Path) and "\0" in str(value):
            # Some strings name files, and file names cannot contain it.
            raise ConfigError(f"{self.name} is {value!r}: it must have no NUL character")
        accepted, noun = _KINDS[self.kind]
        # In Python, bool is a subclass of int.
        is_other = not isinstance(value, accepted) or isinstance(value, bool) != (self.kind is bool)
        if is_other and self.is_mixed:
            return
        if is_other or not self._is_in_range(value):
            allowed = noun if is_other and not (self.form or self.choices) else self.allowed
            raise ConfigError(f"{self.name} is {value!r}: it must be {allowed}")

    def _check_several(self, values: object) -> None:
        one = replace(self, is_several=False)
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            if not self.is_mixed:
                raise ConfigError(f"{self.name} is {values!r}: it must be a tuple")
            values = () if values is None else (values,)
        for value in values:
            one.check(value)

    def _is_in_range(self, value: object) -> bool:
        if self.choices:
            return value in self.choices
        if not isinstance(value, Real) or isinstance(value, bool):
            return True
        number: Any = value
        return (
            # Not math.isfinite, which cannot take a very large integer.
            (abs(number) < math.inf or (self.is_endless and number == math.inf))
            and (self.kind is int or abs(number) <= sys.float_info.max or number == math.inf)
            and (self.low is None or self.low <= number)
            and (self.high is None or number <= self.high)
            and (self.above is None or self.above < number)
            and (self.below is None or number < self.below)
        )


@lru_cache(maxsize=256)
def parameters_of(make: Callable[..., object]) -> tuple[Parameter, ...]:
    """Return the parameters of a class or function that text can give; others have defaults."""
    found = []
    for name, given in _signature(make).parameters.items():
        if given.kind in (given.VAR_POSITIONAL, given.VAR_KEYWORD):
            continue
        parameter = _declared(given.annotation)
        required = given.default is given.empty
        if parameter is not None and parameter.is_plain:
            found.append(replace(parameter, name=name, default=None if required else given.default))
        elif required:
            raise ConfigError(
                f"{make.__qualname__} needs {name}, which is not an int, float, bool, str or "
                "Literal: give it a default, or such a type"
            )
    return tuple(found)


def setting(default: Any, help: str, **declared: Any) -> Any:
    """Declare a field of a dataclass as a parameter: a setting.

    Args:
        default: Its default; a function creates one for each config; MISSING without a default.
        help: Its effect; names of other settings are in ``double backquotes``.

    >>> @dataclass(frozen=True)
    ... class Kiln:
    ...     heat_s: float = setting(2.5, "How long it heats.", above=0)
    >>> settings_of(Kiln)["heat_s"].about
    'above 0; default: 2.5'
    """
    bounds = {"low", "above", "high", "below"}
    declared.setdefault("is_endless", bounds.isdisjoint(declared))
    made: Any = {"default_factory": default} if callable(default) else {"default": default}
    made = {} if default is MISSING else made
    return field(**made, metadata={_METADATA: Parameter(help, **declared)})


def settings_of(owner: type[Any]) -> dict[str, Parameter]:
    """Return the settings of a dataclass, by name, in order: fields that text can represent."""
    found: Any = _settings
    return {each.name: each for each in found(owner)}


@cache
def _settings(owner: Any) -> tuple[Parameter, ...]:
    found = []
    for each in fields(owner):
        said = each.metadata.get(_METADATA)
        parameter = said and _declared(Annotated[each.type, said])
        if parameter is not None:
            default = None if each.default is MISSING else each.default
            found.append(replace(parameter, name=each.name, default=default))
    return tuple(found)


def checked(init: Callable[_P, None]) -> Callable[_P, None]:
    """Make a constructor raise ConfigError if an argument does not fit its declaration."""
    signature = inspect.signature(init, eval_str=True)
    declared = {name: _declared(given.annotation) for name, given in signature.parameters.items()}
    parameters = {name: replace(e, name=name) for name, e in declared.items() if e and e.is_plain}

    @wraps(init)
    def check_and_init(*args: _P.args, **kwargs: _P.kwargs) -> None:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if name in parameters:
                parameters[name].check(value)
        init(*args, **kwargs)

    return check_and_init


def check_settings(config: Any) -> None:
    """Check the fields of a frozen dataclass, and replace numpy's numbers by Python's."""
    plain_numbers(config)
    for name, each in settings_of(type(config)).items():
        each.check(getattr(config, name))


def plain_numbers(config: Any) -> None:
    """Replace numpy's numbers by Python's in a frozen dataclass."""
    for each in fields(config):
        value = getattr(config, each.name)
        if isinstance(value, np.generic):
            object.__setattr__(config, each.name, value.item())


def listed(names: Iterable[str]) -> str:
    """Return alternatives in words.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b or c')
    """
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def typed(value: object) -> str:
    """Return a value as a spec writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    # repr is the shortest text that parses back to the same number.
    return repr(value) if isinstance(value, Real) else str(value)


def _signature(make: Callable[..., object]) -> inspect.Signature:
    try:
        return inspect.signature(make, eval_str=True)
    except (NameError, TypeError, ValueError) as error:
        raise ConfigError(f"the signature of {make!r} cannot be read: {error}") from error


def _declared(annotation: Any) -> Parameter | None:
    """Return the parameter that an annotation declares; None if text cannot represent its type."""
    said: Parameter | None = None
    if get_origin(annotation) is Annotated:
        annotation, *extras = get_args(annotation)
        said = next((extra for extra in extras if isinstance(extra, Parameter)), None)
    found: Parameter | None = None
    others = optional = False
    for each in _members(annotation):
        one = _of_type(each)
        optional |= each is NoneType
        others |= each is not NoneType and (one is None or found is not None)
        if one is not None and (found is None or one.is_several):
            found = one
    if found is None:
        return None
    return replace(
        said or Parameter(),
        kind=found.kind,
        choices=found.choices or (said.choices if said else ()),
        is_several=found.is_several,
        is_optional=optional,
        is_mixed=others or found.is_mixed,
    )


def _members(annotation: Any) -> tuple[Any, ...]:
    if isinstance(annotation, ForwardRef):
        # Some of them are not imported here; a type that text can represent comes first.
        first, *others = annotation.__forward_arg__.split(" | ")
        return {each.__name__: each for each in _KINDS}.get(first), *others
    if get_origin(annotation) in (Union, UnionType):
        return tuple(part for each in get_args(annotation) for part in _members(each))
    return (annotation,)


def _of_type(annotation: Any) -> Parameter | None:
    if get_origin(annotation) is Literal:
        return Parameter(kind=str, choices=tuple(map(str, get_args(annotation))))
    if get_origin(annotation) is tuple and get_args(annotation)[1:] == (...,):
        one = _of_type(get_args(annotation)[0])
        if one is None:
            # The items are of several types, such as names and objects.
            one = next(filter(None, map(_of_type, _members(get_args(annotation)[0]))), None)
            return one and replace(one, is_several=True, is_mixed=True)
        return replace(one, is_several=True)
    return Parameter(kind=annotation) if annotation in _KINDS else None


def _read(kind: type, text: str) -> Value:
    if kind is bool:
        if text not in ("true", "false"):
            raise ValueError(text)
        return text == "true"
    value: Value = kind(text)
    return value
