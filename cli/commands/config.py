"""``rumor config``: all settings, with their defaults and what they do."""

from textwrap import wrap
from typing import Annotated, Any, Final

import typer

from ...gossip.errors import ConfigError, did_you_mean
from ...gossip.specs.parameter import Parameter, typed
from ..app import load
from ..reports.console import print_json
from ..settings.options import Json, options_of, settings_of_command

__all__ = ["COMMANDS", "config", "declared_settings"]

COMMANDS: Final = ("peer", "launch", "run", "simulate")
"""Commands that have more settings than options."""

_WIDTH: Final = 80
_EXPLAINED_MAX: Final = 3


@options_of()
def config(
    word: Annotated[
        str | None,
        typer.Argument(
            metavar="WORD",
            help="A setting, or a word of its name or meaning; all unless given.",
            show_default=False,
        ),
    ] = None,
    *,
    as_json: Json = False,
) -> None:
    """List the settings of `rumor peer`, `launch`, `run` and `simulate`, and explain them.

    Each is given as `--set NAME=VALUE`, or stands in a TOML file: `--config FILE.toml`, or the file
    of `rumor run`. A script that `rumor run` starts finds those of a peer in its environment, as
    `RUMOR_NAME`.

    `rumor config wire`

    Exit status: 0 if there is such a setting; 2 if not.
    """
    found = declared_settings()
    chosen = {name: each for name, each in found.items() if _matches(each[0], word)}
    if word in found:
        chosen = {word: found[word]}
    if not chosen:
        near = did_you_mean(word or "", found, ": `rumor config` lists all")
        raise ConfigError(f"there is no setting {word!r}{near}")
    if as_json:
        print_json(
            {
                name: {
                    "default": shown_default(setting),
                    "values": setting.allowed,
                    "help": setting.help,
                    "commands": list(commands),
                }
                for name, (setting, _, commands) in chosen.items()
            }
        )
        return
    explained = len(chosen) <= _EXPLAINED_MAX
    print("\n\n".join(_explained(*chosen[n]) for n in chosen) if explained else _listed(chosen))


def declared_settings() -> dict[str, tuple[Parameter, str, tuple[str, ...]]]:
    """All settings by name: each with what its declaring class says of itself, and its commands."""
    found: dict[str, tuple[Parameter, str, tuple[str, ...]]] = {}
    for command in COMMANDS:
        settings, sources = settings_of_command(load(command))
        for name, setting in settings.items():
            first, subject, commands = found.get(name, (setting, _subject(name, sources), ()))
            found[name] = (first, subject, (*commands, command))
    return found


def shown_default(setting: Parameter) -> str:
    """The default of a setting, as it is typed; or what holds where it is not given."""
    default: Any = setting.default
    if setting.otherwise or default in (None, ()):
        return setting.otherwise or "none"
    return typed(default)


def _subject(name: str, sources: Any) -> str:
    """First sentence of the class that declares a setting."""
    classes = (each for source in sources for each in source.owner.__mro__)
    owner = next(each for each in classes if name in vars(each).get("__annotations__", ()))
    return str(owner.__doc__).split(".")[0].split("\n\n")[0].replace("\n   ", "").rstrip(".")


def _matches(setting: Parameter, word: str | None) -> bool:
    return word is None or word.replace("-", "_") in setting.name or word in setting.help


def _explained(setting: Parameter, subject: str, commands: tuple[str, ...]) -> str:
    text = " ".join(setting.help.replace("``", "").split())
    values = f"Values: {setting.allowed}. " if setting.allowed != "a string" else ""
    default = f"Default: {shown_default(setting)}."
    lines = [f"{setting.name} (rumor {', '.join(commands)})"]
    for paragraph in (text, f"{values}{default}"):
        lines += wrap(paragraph, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines)


def _listed(chosen: dict[str, tuple[Parameter, str, tuple[str, ...]]]) -> str:
    lines: list[str] = []
    subjects = dict.fromkeys(subject for _, subject, _ in chosen.values())
    for subject in subjects:
        lines += ["", f"{subject}:"]
        for name, (setting, of, _) in chosen.items():
            if of == subject:
                text = setting.brief or setting.help.replace("``", "").split(". ")[0].rstrip(".")
                line = f"  {name}={shown_default(setting)}"
                lines.append(f"{line:<34} {text}"[:_WIDTH].rstrip())
    return "\n".join([*lines, "", "`rumor config NAME` explains one."]).strip("\n")
