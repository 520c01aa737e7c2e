"""The command line as a whole: its commands, and the answer to a wrong one.

A command's module is imported when the command runs: ``rumor --help`` answers within a few tenths
of a second, without torch, scipy or networkx.
"""

import re
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any, Final, NamedTuple, Protocol, runtime_checkable

import typer
from typer.core import TyperCommand

__all__ = ["COMMANDS", "Command", "app", "load", "run"]

_WRONG_ARGUMENTS = 2
"""Exit status, as in `errors`."""

_SETTINGS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    # Joins the lines of a docstring into paragraphs.
    "rich_markup_mode": "markdown",
    "add_completion": False,
}


class Command(NamedTuple):
    """One command of ``rumor``: where it is, and its line in ``rumor --help``."""

    module: str
    """Module inside this package whose function, or group of commands, has the command's name."""
    summary: str
    """First sentence of the function's docstring, copied here to avoid importing its module."""


_FORKS: Final = ("launch", "demo")
"""Commands that fork peers: shared modules are imported while options are parsed."""

_PANELS: Final = {
    "Train": {
        "launch": Command(
            "commands.launch", "Train one model with several processes of this machine."
        ),
        "run": Command("commands.run", "Start your own training script as the peers of one swarm."),
        "peer": Command(
            "commands.peer", "Be one peer: found a swarm, or join one by any member's address."
        ),
        "pull": Command(
            "live.pull", "Read the average model of a running swarm, without joining it."
        ),
        "merge": Command(
            "commands.merge", "Average the models of several peers, by their weights."
        ),
        "demo": Command(
            "demo.race", "Compare gossip and all-reduce under the same faults, in a minute."
        ),
    },
    "Watch and administer": {
        "top": Command("live.top", "Show the members of a swarm, and how each is doing."),
        "stop": Command("live.stop", "End a whole swarm in good order, by any member's address."),
        "doctor": Command(
            "live.doctor", "Find out why a peer on this machine cannot join, and what to do."
        ),
        "keys": Command("commands.keys", "Create keys of machines, and rosters of known machines."),
    },
    "Simulate and measure": {
        "simulate": Command("commands.simulate", "Train one model with many simulated workers."),
        "study": Command(
            "commands.study", "Compare topologies, rules, sizes or networks on one page."
        ),
        "calibrate": Command(
            "live.calibrate", "Measure real peers, for `rumor simulate --from FILE`."
        ),
        "advise": Command(
            "commands.advise", "Find the rule, topology and wire that suit your machines."
        ),
    },
    "Look up": {
        "rules": Command(
            "commands.rules", "List the rules by which peers exchange, or explain one."
        ),
        "topology": Command(
            "commands.topology", "Show who pushes to whom in a topology, and how fast it mixes."
        ),
        "config": Command("commands.config", "List and explain the settings of commands."),
    },
}
"""Panels of ``rumor --help``."""

COMMANDS: Final = {name: each for panel in _PANELS.values() for name, each in panel.items()}
"""Commands by name, in the order in which ``rumor --help`` lists them."""

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
        """Parse its arguments, by the options of the command itself."""
        name = str(self.name)
        return load(name).make_context(*args, **kwargs)


def load(name: str) -> Any:
    """Import a command, and return the typer object: its options are ``params``; a group has its
    commands in ``commands``, by name."""
    found = getattr(import_module(f".{COMMANDS[name].module}", __package__), name)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(**_SETTINGS)
        alone.command(name)(found)
        found = alone
    return typer.main.get_command(found)


for _panel, _commands in _PANELS.items():
    for _name, _command in _commands.items():
        app.command(_name, help=_command.summary, rich_help_panel=_panel, cls=_LazyCommand)(
            lambda: None
        )


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


@runtime_checkable
class _UsageError(Protocol):
    """The error of typer for arguments that it cannot parse; the class itself is not public."""

    exit_code: int
    ctx: Any

    def format_message(self) -> str: ...


def run() -> None:
    """Run the command that ``sys.argv`` names.

    Raises:
        SystemExit: Always, with the command's exit status.
    """
    for stream in (sys.stdout, sys.stderr):
        # A terminal or pipe may lack a letter of some name in its encoding, and must not fail.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        if {*sys.argv[1:2]} & {*_FORKS} and not {"-h", "--help"} & {*sys.argv}:
            import_module(".launch.forking", __package__).begin_forking()
        status = app(prog_name="rumor", standalone_mode=False)
    except Exception as error:
        if not isinstance(error, _UsageError):
            raise
        # typer would print a box of seven lines.
        if message := error.format_message():
            # The error of an option without its value has no context.
            called = error.ctx.command_path if error.ctx else f"rumor {sys.argv[1]}"
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
    """Return the name of the setting that an unknown option means; empty if there is none."""
    found, command = re.match(r"No such option: --([\w-]+)", message), called[6:]
    if found is None or command not in COMMANDS:
        return ""
    # Here, since it imports more than `rumor --help` needs.
    from .settings.options import settings_of_command

    name = found[1].replace("-", "_")
    return name if name in settings_of_command(load(command))[0] else ""
