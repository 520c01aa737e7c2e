"""``rumor config``: all settings, with their defaults and what they do."""

from dataclasses import dataclass
from textwrap import shorten, wrap
from typing import Annotated, Any, Final

import typer

from ...gossip.errors import ConfigError, did_you_mean
from ...gossip.specs.parameter import Parameter, typed
from ..app import load
from ..reports.console import print_json
from ..settings.options import Json, options_of, settings_of_command

__all__ = ["COMMANDS", "Declared", "config", "declared_settings", "shown_default"]

COMMANDS: Final = (
    *("peer", "launch", "run", "simulate"),
    *("demo", "top", "pull", "stop", "doctor", "study", "calibrate", "advise", "topology"),
)
"""Commands that have settings."""

_WIDTH: Final = 80
_COLUMN: Final = 30
_DEFAULT_MAX: Final = 24
_EXPLAINED_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Declared:
    """A setting, and the commands that have it."""

    subject: str
    """First sentence of the class that declares it."""
    by_command: dict[str, Parameter]
    """The setting in each command: defaults may differ."""

    @property
    def setting(self) -> Parameter:
        """The setting in the first command."""
        return next(iter(self.by_command.values()))


@options_of()
def config(
    word: Annotated[
        str | None,
        typer.Argument(
            metavar="WORD",
            help="A setting, or a word in its name or help; default: all.",
            show_default=False,
        ),
    ] = None,
    *,
    as_json: Json = False,
) -> None:
    """List and explain the settings of commands.

    Settings of `rumor peer`, `launch`, `run` and `simulate` without an option of their own are
    given as `--set NAME=VALUE`, or in a TOML file: `--config FILE.toml`. Launched processes read
    the settings of a peer from their environment, as `RUMOR_NAME`.

    `rumor config wire`

    Exit status: 0 if there is such a setting; 2 if not.
    """
    found = declared_settings()
    part, name = word or "", (word or "").replace("-", "_")
    matching = [n for n, each in found.items() if name in n or part in each.setting.help]
    chosen = {name: found[name] for name in ([word] if word in found else matching)}
    if not chosen:
        near = did_you_mean(word or "", found, ": `rumor config` lists all")
        raise ConfigError(f"there is no setting {word!r}{near}")
    if as_json:
        print_json(
            {
                name: {
                    "default": shown_default(each.setting),
                    "values": each.setting.allowed,
                    "help": each.setting.help,
                    "commands": list(each.by_command),
                }
                for name, each in chosen.items()
            }
        )
        return
    explained = len(chosen) <= _EXPLAINED_MAX
    print("\n\n".join(map(_explained, chosen.values())) if explained else _listed(chosen))


def declared_settings() -> dict[str, Declared]:
    """Return all settings by name."""
    found: dict[str, Declared] = {}
    for command in COMMANDS:
        settings, sources = settings_of_command(load(command))
        for name, setting in settings.items():
            known = found.setdefault(name, Declared(_subject(name, sources), {}))
            known.by_command[command] = setting
    return found


def shown_default(setting: Parameter) -> str:
    """Return the default of a setting, as it is typed; or what applies without it."""
    default: Any = setting.default
    if setting.otherwise or default in (None, ()):
        return setting.otherwise or "none"
    return typed(default)


def _subject(name: str, sources: Any) -> str:
    """Return the first sentence of the class that declares a setting."""
    classes = (each for source in sources for each in source.owner.__mro__)
    owner = next(each for each in classes if name in vars(each).get("__annotations__", ()))
    return str(owner.__doc__).split(".")[0].split("\n\n")[0].replace("\n   ", "").rstrip(".")


def _explained(declared: Declared) -> str:
    setting = declared.setting
    text = " ".join(setting.help.replace("``", "").split())
    values = f"Values: {setting.allowed}. " if setting.allowed != "a string" else ""
    defaults: dict[str, list[str]] = {}
    for command, each in declared.by_command.items():
        defaults.setdefault(shown_default(each), []).append(command)
    first, *others = defaults
    further = "".join(f" ({', '.join(defaults[other])}: {other})" for other in others)
    lines = [f"{setting.name} (rumor {', '.join(declared.by_command)})"]
    for paragraph in (text, f"{values}Default: {first}{further}."):
        lines += wrap(paragraph, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines)


def _listed(chosen: dict[str, Declared]) -> str:
    lines: list[str] = []
    for subject in dict.fromkeys(each.subject for each in chosen.values()):
        lines += ["", f"{subject}:"]
        for name, each in chosen.items():
            if each.subject == subject:
                setting = each.setting
                text = setting.brief or setting.help.replace("``", "").split(". ")[0].rstrip(".")
                line = (
                    f"  {name}={shorten(shown_default(setting), _DEFAULT_MAX, placeholder=' ...')}"
                )
                room = _WIDTH - 1 - max(len(line), _COLUMN)
                lines.append(f"{line:<{_COLUMN}} {shorten(text, room, placeholder=' ...')}")
    return "\n".join([*lines, "", "`rumor config NAME` explains one."]).strip("\n")
