"""The command line as a whole: its commands, and the answer to a wrong one.

A command's module is imported when the command runs: ``rumor --help`` answers within a few tenths
of a second, without torch, scipy or networkx.
"""

import re
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

__all__ = ["COMMANDS", "app", "load", "run"]

_WRONG_ARGUMENTS = 2
"""Exit status, as in `errors`."""

_SETTINGS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    # Joins the lines of a docstring into paragraphs.
    "rich_markup_mode": "markdown",
    "add_completion": False,
}


# These fork peers: shared modules are imported while options are parsed.
_FORKS: Final = {"launch", "demo"}

_PANELS: Final = {
    "Train": {
        "launch": ("commands", "Train one model with several processes of this machine."),
        "run": ("commands", "Start your own training script as the peers of one swarm."),
        "peer": ("commands", "Be one peer: found a swarm, or join one by any member's address."),
        "pull": ("live", "Read the average model of a running swarm, without joining it."),
        "merge": ("commands", "Average the models of several peers, by their weights."),
        "demo": ("demo", "Compare gossip and all-reduce under the same faults, in a minute."),
    },
    "Watch and administer": {
        "top": ("live", "Show the members of a swarm, and how each is doing."),
        "stop": ("live", "End a whole swarm in good order, by any member's address."),
        "doctor": ("live", "Find out why a peer on this machine cannot join, and what to do."),
        "keys": ("commands", "Create keys of machines, and rosters of known machines."),
    },
    "Simulate and measure": {
        "simulate": ("commands", "Train one model with many simulated workers."),
        "study": ("commands", "Compare topologies, rules, sizes or networks on one page."),
        "calibrate": ("live", "Measure real peers, for `rumor simulate --from FILE`."),
        "advise": ("commands", "Find the rule, topology and wire that suit your machines."),
    },
    "Look up": {
        "rules": ("commands", "List the rules by which peers exchange, or explain one."),
        "topology": ("commands", "Show who pushes to whom in a topology, and how fast it mixes."),
        "config": ("commands", "List and explain the settings of commands."),
    },
}
"""Panels of ``rumor --help``."""

COMMANDS: Final = {name: each for panel in _PANELS.values() for name, each in panel.items()}
"""Folder of each command's module, and its line in ``rumor --help``, in the order of the help.

The line is the first sentence of the command's docstring, repeated to avoid importing its module.
"""

app = typer.Typer(
    name="rumor",
    help="Train one model on many machines, with no coordinator.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    **_SETTINGS,
)


class _LazyCommand(TyperCommand):
    """Stands for a command whose module is imported once it is called."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        return load(str(self.name)).make_context(*args, **kwargs)


def load(name: str) -> Any:
    """Import a command, and return the typer object."""
    found = getattr(import_module(f".{COMMANDS[name][0]}.{name}", __package__), name)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(**_SETTINGS)
        alone.command(name)(found)
        found = alone
    return typer.main.get_command(found)


for _panel, _commands in _PANELS.items():
    for _name, (_, _summary) in _commands.items():
        app.command(_name, help=_summary, rich_help_panel=_panel, cls=_LazyCommand)(lambda: None)


def _say_version(wanted: bool) -> None:
    if wanted:
        # Here, because it reads the files of installed packages.
        from importlib.metadata import version

        print(f"rumor {version('rumor')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar="",
            callback=_say_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None: ...


def run() -> None:
    """Run the command that ``sys.argv`` names, and exit with its status."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal or pipe may lack a letter of some name in its encoding, and must not fail.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        if _FORKS.intersection(sys.argv[1:2]) and not {"-h", "--help"} & {*sys.argv}:
            import_module(".launch.forking", __package__).begin_forking()
        status = app(prog_name="rumor", standalone_mode=False)
    except Exception as error:
        # The class of typer's error for arguments that it cannot parse is not public.
        usage: Any = error
        if not hasattr(usage, "format_message"):
            raise
        # typer would print a box of seven lines.
        if message := usage.format_message():
            # The error of an option without its value has no context.
            called = usage.ctx.command_path if usage.ctx else f"rumor {sys.argv[1]}"
            hint = f"Try '{called} --help'."
            if setting := _setting_of(message, called):
                hint = f"Write --set {setting}=VALUE; `rumor config {setting}` explains it."
            elif called == "rumor run" and "--" not in sys.argv:
                # Options of the script were parsed as options of the command.
                hint = "Write -- in front of your command: rumor run -n 4 -- python train.py --lr 1"
            print(f"error: {message}\n{hint}", file=sys.stderr)
        sys.exit(_WRONG_ARGUMENTS)
    sys.exit(status)


def _setting_of(message: str, called: str) -> str:
    """Return the name of the setting that an unknown option means; empty if it means none."""
    found, command = re.match(r"No such option: --([\w-]+)", message), called[6:]
    if found is None or command not in COMMANDS:
        return ""
    # Here, since it imports more than `rumor --help` needs.
    from .settings.options import settings_of_command

    name = found[1].replace("-", "_")
    return name if name in settings_of_command(load(command))[0] else ""
