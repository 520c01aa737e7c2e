"""Options of the command line, made from the settings that dataclasses declare.

A command with many settings shows the everyday ones; all others are given with ``--set NAME=VALUE``
or in a file.
"""

import inspect
import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, cast

import typer

from ...gossip.errors import ConfigError, did_you_mean
from ...gossip.specs.parameter import Parameter, check_settings, settings_of, typed
from ..errors import reporting_errors

__all__ = [
    *("Force", "Json", "Members", "Panel", "Source", "config_of", "given", "option", "options_of"),
    *("read_file", "settings_of_command"),
]


class Panel(StrEnum):
    """Panels of ``--help``."""

    TRAINING = "Training"
    SWARM = "Swarm"
    MACHINES = "Machines"
    GOSSIP = "Exchange between peers"
    FAULTS = "Slowness and faults"
    OPTIONS = "Options"
    OUTPUT = "Output"


Members = Annotated[
    list[str],
    typer.Argument(
        metavar="HOST:PORT",
        help="Any member of the swarm; several, in case the first does not answer.",
        show_default=False,
    ),
]
Force = Annotated[bool, typer.Option("--force", metavar="", help="Overwrite FILE.")]

Json = Annotated[
    bool,
    typer.Option(
        "--json",
        metavar="",
        help="Print one JSON object as the last line.",
        rich_help_panel=Panel.OUTPUT,
    ),
]

_METAVARS: Final[Mapping[Any, str]] = {int: "N", str: "NAME", Path: "FILE"}
_UNITS: Final = {"_s": "S", "_s_min": "S", "_ms": "MS", "_mbit": "MBIT", "_mb": "MB", "_gib": "GIB"}
"""Placeholders in help for values whose setting has none."""

_LINE: Final = 44
"""Columns that names leave on a line of 80."""

_GIVEN: Final = "rumor.given"
_SETTINGS: Final = "rumor_settings"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Source:
    """A dataclass whose settings a command has."""

    owner: type[Any]
    only: Collection[str] = ()
    """Names of the settings to take; default: all."""
    without: Collection[str] = ()
    """Names of settings to leave out."""
    unset: Mapping[str, str] = field(default_factory=dict)
    """Settings that are None by default in this command, with words for what then applies."""

    def settings(self) -> dict[str, Parameter]:
        """Return the settings by name."""
        found = settings_of(self.owner)
        names = [name for name in self.only or found if name not in self.without]
        unset = {n: replace(found[n], default=None, otherwise=w) for n, w in self.unset.items()}
        return {name: unset.get(name) or found[name] for name in names}


def options_of(
    *sources: Source,
    everyday: Mapping[str, tuple[str, ...]] | None = None,
    file: bool = True,
    environment: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the settings of dataclasses, as ``**settings``, and ``--debug``.

    If two sources have a setting of the same name, the first one counts; a parameter of the
    function itself stays as it is. Errors become a message and an exit status.

    Args:
        sources: Dataclasses with the settings.
        everyday: Names of settings that are options, by panel of the help; default: all.
        file: Accept the others in a file, as ``--config`` names it.
        environment: Accept them in the environment, too, as ``RUMOR_NAME``.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        taken = {parameter.name for parameter in own}
        settings: dict[str, Parameter] = {}
        for source in sources:
            known = taken | settings.keys()
            settings |= {n: each for n, each in source.settings().items() if n not in known}
        panels: Mapping[str, Iterable[str]] = everyday or {Panel.OPTIONS: settings}
        shown = {name: panel for panel, names in panels.items() for name in names}
        made = [_option(settings[name], panel, settings) for name, panel in shown.items()]
        further = [] if everyday is None else [_SET, _FILE] if file else [_SET]
        first = [p for p in own if p.kind is not p.KEYWORD_ONLY]
        last = [p for p in own if p.kind is p.KEYWORD_ONLY]
        parameters = [*first, *made, *last, *further, _DEBUG]

        @wraps(function)
        def command(
            *,
            debug: bool = False,
            set_: list[str] | None = None,
            config_: Path | None = None,
            **arguments: Any,
        ) -> None:
            with reporting_errors(debug=debug):
                for name in shown:
                    # typer has no default of several values, and makes a list of them.
                    if arguments[name] is None or arguments[name] == []:
                        arguments[name] = settings[name].default
                    elif settings[name].is_several:
                        arguments[name] = tuple(arguments[name])
                hidden = {n: each.default for n, each in settings.items() if n not in arguments}
                told = _read_environment(settings) if environment else {}
                told |= {} if config_ is None else read_file(config_, settings)
                told |= _read_set(set_ or (), settings)
                typed = _typed(arguments["ctx"]) if "ctx" in arguments else set()
                if "ctx" in arguments:
                    arguments["ctx"].meta[_GIVEN] = {*told}
                arguments |= {n: v for n, v in told.items() if n in hidden or n not in typed}
                function(**(hidden | arguments))

        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
        setattr(command, _SETTINGS, (settings, sources))
        return command

    return decorate


def settings_of_command(command: Any) -> tuple[dict[str, Parameter], tuple[Source, ...]]:
    """Return all settings of a command by name, and their sources."""
    found: tuple[dict[str, Parameter], tuple[Source, ...]]
    found = getattr(command.callback, _SETTINGS, ({}, ()))
    return found


def config_of(owner: type[_T], settings: Mapping[str, Any]) -> _T:
    """Make a config from the *settings* that are its fields, and check their ranges."""
    names = {entry.name for entry in fields(cast(Any, owner))}
    config = owner(**{name: value for name, value in settings.items() if name in names})
    check_settings(config)
    return config


def given(context: typer.Context) -> set[str]:
    """Return names of the parameters that were typed, set or read from a file, with any value."""
    told: set[str] = context.meta.get(_GIVEN, set())
    return _typed(context) | told


def _typed(context: typer.Context) -> set[str]:
    return {
        name
        for name in context.params
        if (source := context.get_parameter_source(name)) is not None and source.name != "DEFAULT"
    }


def option(name: str) -> str:
    """Return the option that sets a setting."""
    return "--" + name.replace("_", "-")


def read_file(path: Path, settings: Mapping[str, Parameter]) -> dict[str, Any]:
    """Read settings from a TOML file: names, with ``_`` or ``-``, and their values."""
    from ...train.storage.files import read_bytes

    try:
        content = tomllib.loads(read_bytes(path).decode())
    except RecursionError:
        raise ConfigError(f"{path}: it is nested too deeply") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    found: dict[str, Any] = {}
    for key, value in content.items():
        name = key.replace("-", "_")
        if name not in settings:
            raise ConfigError(f"{path}: unknown key {key!r}{_near(name, settings)}")
        setting = settings[name]
        several = value if setting.is_several and isinstance(value, list) else [value]
        if not all(isinstance(each, str | int | float) for each in several):
            raise ConfigError(f"{path}: {key} is {value!r}: it must be {setting.allowed}")
        try:
            read = [setting.read(typed(each)) for each in several]
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
        found[name] = tuple(read) if setting.is_several else read[0]
    return found


def _read_set(words: Iterable[str], settings: Mapping[str, Parameter]) -> dict[str, Any]:
    """Parse ``NAME=VALUE``; a name alone switches on."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip().replace("-", "_")
        if name not in settings:
            raise ConfigError(f"--set {word}: there is no setting {name!r}{_near(name, settings)}")
        setting = settings[name]
        if not equals and setting.kind is not bool:
            raise ConfigError(f"--set {word}: write {name}={setting.metavar or 'VALUE'}")
        value = setting.read(text if equals else "true")
        found[name] = (*found.get(name, ()), value) if setting.is_several else value
    return found


def _read_environment(settings: Mapping[str, Parameter]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, setting in settings.items():
        text = os.environ.get(key := f"RUMOR_{name.upper()}")
        if text is None or name == "resume":
            continue
        try:
            value = setting.read_all(text)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from None
        found[name] = (value,) if setting.is_several and not isinstance(value, tuple) else value
        # A script would look for it there, too.
        del os.environ[key]
    return found


def _near(name: str, settings: Mapping[str, Parameter]) -> str:
    return did_you_mean(name, settings, ": `rumor config` lists all")


def _typed_alone(name: str, kind: Any, default: Any, *flags: str, **told: Any) -> inspect.Parameter:
    """Make the parameter of an option that is not a setting."""
    declared = Annotated[kind, typer.Option(*flags, rich_help_panel=Panel.OUTPUT, **told)]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=declared
    )


_SET: Final = _typed_alone(
    *("set_", list[str] | None, None, "--set"),
    metavar="NAME=VALUE",
    help="Any other setting: see `rumor config`.",
)
_FILE: Final = _typed_alone(
    *("config_", Path | None, None, "--config"),
    metavar="FILE.toml",
    help="A file of settings; options override it.",
)
_DEBUG: Final = _typed_alone(
    *("debug", bool, False, "--debug"), metavar="", help="Show tracebacks."
)


def _option(setting: Parameter, panel: str, settings: Collection[str]) -> inspect.Parameter:
    """Make the parameter from which typer makes an option."""
    name, kind, shown = setting.name, setting.kind, setting.otherwise
    default: Any = setting.default
    text = setting.brief or setting.help
    text = re.sub(r"``(\w+)``", lambda m: option(m[1]) if m[1] in settings else m[0], text)
    if setting.is_several:
        kind, default, shown = cast(Any, list)[kind], None, shown or str(default or "")
    elif default == ():
        # For instance, a file in place of an object that only Python can pass.
        default = None
    # Without it, an option that is on by default could not be switched off.
    usual = f"{option(name)}/--no-{option(name)[2:]}" if default is True else option(name)
    # typer would print the default on a line of its own.
    told = shown or ("" if default in (None, False, True) else str(default))
    with_default = f"{text.rstrip('.')} ({told})."
    text = with_default if told and len(with_default) <= _LINE else text
    declared = typer.Option(
        *(setting.flags or (usual,)),
        metavar="" if kind is bool else _metavar(setting),
        help=text,
        show_default=False,
        rich_help_panel=panel,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        # The type is a value here, which type checkers consider an error.
        annotation=cast(Any, Annotated)[kind | None if default is None else kind, declared],
    )


def _metavar(setting: Parameter) -> str | None:
    unit = next((unit for end, unit in _UNITS.items() if setting.name.endswith(end)), None)
    return setting.metavar or "|".join(setting.choices) or unit or _METAVARS.get(setting.kind)
