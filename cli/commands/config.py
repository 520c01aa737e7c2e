"""``rumor config``: all settings, with their defaults and what they do."""

from collections.abc import Mapping
from textwrap import wrap
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from ...gossip.errors import ConfigError, did_you_mean
from ...gossip.specs.parameter import Parameter, typed
from ..app import load
from ..reports.console import plain_table
from ..settings.options import options_of, settings_of_command

__all__ = ["COMMANDS", "config", "declared_settings"]

COMMANDS: Final = (
    *("peer", "launch", "run", "simulate"),
    *("demo", "top", "pull", "stop", "doctor", "study", "calibrate", "advise", "topology"),
)
"""Commands that have settings."""

_WIDTH: Final = 80
_EXPLAINED_MAX: Final = 3


@options_of()
def config(
    word: Annotated[
        str,
        typer.Argument(
            metavar="WORD",
            help="A setting, or a word in its name or help; default: all.",
            show_default=False,
        ),
    ] = "",
) -> None:
    """List and explain the settings of commands.

    Settings of `rumor peer`, `launch`, `run` and `simulate` without an option of their own are
    given as `--set NAME=VALUE`, or in a TOML file: `--config FILE.toml`. Launched processes read
    the settings of a peer from their environment, as `RUMOR_NAME`.

    `rumor config wire`

    Exit status: 0 if there is such a setting; 2 if not.
    """
    found, part = declared_settings(), word.replace("-", "_")
    if part in found:
        found = {part: found[part]}
    chosen = {n: each for n, each in found.items() if part in n or word in _first(each).help}
    if not chosen:
        near = did_you_mean(word, found, ": `rumor config` lists all")
        raise ConfigError(f"there is no setting {word!r}{near}")
    if len(chosen) <= _EXPLAINED_MAX:
        print("\n\n".join(map(_explained, chosen.values())))
        return
    table = plain_table("setting", "default", "what it does")
    for name, by_command in chosen.items():
        setting = _first(by_command)
        brief = setting.brief or setting.help.replace("``", "").split(". ")[0].rstrip(".")
        table.add_row(name, Text(_default(setting)), Text(brief))
    Console().print(table, "`rumor config NAME` explains one.", sep="\n")


def declared_settings() -> dict[str, dict[str, Parameter]]:
    """Return all settings by name, in each command that has them: defaults may differ."""
    found: dict[str, dict[str, Parameter]] = {}
    for command in COMMANDS:
        for name, setting in settings_of_command(load(command))[0].items():
            found.setdefault(name, {})[command] = setting
    return found


def _first(by_command: Mapping[str, Parameter]) -> Parameter:
    return next(iter(by_command.values()))


def _default(setting: Parameter) -> str:
    """Return the default of a setting, as it is typed; or what applies without it."""
    default: Any = setting.default
    if setting.otherwise or default in (None, ()):
        return setting.otherwise or "none"
    return typed(default)


def _explained(by_command: Mapping[str, Parameter]) -> str:
    setting = _first(by_command)
    text = " ".join(setting.help.replace("``", "").split())
    values = f"Values: {setting.allowed}. " if setting.allowed != "a string" else ""
    defaults: dict[str, list[str]] = {}
    for command, each in by_command.items():
        defaults.setdefault(_default(each), []).append(command)
    first, *others = defaults
    further = "".join(f" ({', '.join(defaults[other])}: {other})" for other in others)
    lines = [f"{setting.name} (rumor {', '.join(by_command)})"]
    for paragraph in (text, f"{values}Default: {first}{further}."):
        lines += wrap(paragraph, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines)
