"""The command line as a whole: its commands, and the answer to a wrong one.

A command's module is imported when the command is run: ``rumor --help`` answers within a few
tenths of a second, without torch, scipy or networkx.
"""

import re
import sys
from dataclasses import dataclass
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any, Protocol, runtime_checkable

import typer
from typer.core import TyperCommand

__all__ = ["COMMANDS", "Command", "app", "load", "run"]

_WRONG_ARGUMENTS = 2
"""As in `errors`."""

_SETTINGS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    # Joins the lines of a docstring to paragraphs.
    "rich_markup_mode": "markdown",
    "add_completion": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of ``rumor``: where its function is, and what ``rumor --help`` says of it."""

    home: str
    """``module:function`` inside this package; ``module:app`` where it has commands itself."""

    panel: str
    """Of ``rumor --help``."""

    summary: str
    """First sentence of the function's docstring, kept here so that nothing need be imported."""

    forks: bool = False
    """Whether it forks peers, so that what they share may be imported while options are read."""


_TRAIN = "Train"
_WATCH = "Watch and administer"
_SIMULATE = "Simulate and measure"
_LOOK_UP = "Look up"

COMMANDS = {
    "launch": Command(
        home="commands.launch:launch",
        forks=True,
        panel=_TRAIN,
        summary="Train one model with several processes of this machine.",
    ),
    "run": Command(
        home="commands.run:run",
        panel=_TRAIN,
        summary="Start your own training script as the peers of one swarm.",
    ),
    "peer": Command(
        home="commands.peer:peer",
        panel=_TRAIN,
        summary="Be one peer: found a swarm, or join one by any member's address.",
    ),
    "merge": Command(
        home="runs.merge:merge",
        panel=_TRAIN,
        summary="Average the models of several peers, by their weights.",
    ),
    "demo": Command(
        home="commands.demo:demo",
        forks=True,
        panel=_TRAIN,
        summary="Show in a minute how a swarm takes slow, dying and late machines.",
    ),
    "top": Command(
        home="live.top:top",
        panel=_WATCH,
        summary="Show who is in a swarm, and how each of them is doing.",
    ),
    "stop": Command(
        home="live.stop:stop",
        panel=_WATCH,
        summary="End a whole swarm in good order, by any member's address.",
    ),
    "doctor": Command(
        home="live.doctor:doctor",
        panel=_WATCH,
        summary="Say why a peer on this machine cannot join, and what to do.",
    ),
    "keys": Command(
        home="commands.keys:keys",
        panel=_WATCH,
        summary="Make machines' keys, and rosters of those that may take part.",
    ),
    "simulate": Command(
        home="commands.simulate:simulate",
        panel=_SIMULATE,
        summary="Train one model with many simulated workers.",
    ),
    "study": Command(
        home="commands.study:study",
        panel=_SIMULATE,
        summary="Compare topologies, rules, sizes or networks on one page.",
    ),
    "calibrate": Command(
        home="runs.calibrate:calibrate",
        panel=_SIMULATE,
        summary="Measure real peers, for `rumor simulate --from FILE`.",
    ),
    "advise": Command(
        home="runs.advise:advise",
        panel=_SIMULATE,
        summary="Say which rule, topology and wire suit measured machines.",
    ),
    "compare": Command(
        home="runs.compare:compare",
        panel=_SIMULATE,
        summary="Put a live run and a simulation side by side.",
    ),
    "rules": Command(
        home="commands.rules:rules",
        panel=_LOOK_UP,
        summary="List the rules by which peers exchange, or explain one.",
    ),
    "topology": Command(
        home="commands.topology:topology",
        panel=_LOOK_UP,
        summary="Say who pushes to whom in a topology, and how fast it mixes.",
    ),
    "config": Command(
        home="commands.config:config",
        panel=_LOOK_UP,
        summary="List and explain settings that are no options of a command.",
    ),
}
"""By name, in the order in which ``rumor --help`` lists them."""

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
    """Import a command, and make what typer calls one: its options are ``params``; one that has
    commands of its own has them in ``commands``, by name."""
    found = _imported(COMMANDS[name].home)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(**_SETTINGS)
        alone.command(name)(found)
        found = alone
    return typer.main.get_command(found)


def _imported(home: str) -> Any:
    module, _, function = home.partition(":")
    return getattr(import_module(f".{module}", __package__), function)


def _register(name: str, command: Command) -> None:
    decorate = app.command(
        name, help=command.summary, rich_help_panel=command.panel, cls=_LazyCommand
    )
    decorate(lambda: None)


for _name, _command in COMMANDS.items():
    _register(_name, _command)


def _say_version(wanted: bool) -> None:
    if wanted:
        # Here, because it reads the files of what is installed.
        from importlib.metadata import version

        print(f"rumor {version('rumor')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_say_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None: ...


@runtime_checkable
class _UsageError(Protocol):
    """What typer raises for arguments it cannot parse; the class itself is not public."""

    exit_code: int
    ctx: Any

    def format_message(self) -> str: ...


def run() -> None:
    """Run the command that ``sys.argv`` names.

    Raises:
        SystemExit: Always, with the command's exit status.
    """
    for stream in (sys.stdout, sys.stderr):
        # A terminal or pipe whose encoding lacks a letter of some name is no reason to fail.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        command = COMMANDS.get(sys.argv[1]) if len(sys.argv) > 1 else None
        if command is not None and command.forks and not {"-h", "--help"} & {*sys.argv}:
            _imported("launch.processes:begin_forking")()
        status = app(prog_name="rumor", standalone_mode=False)
    except Exception as error:
        if not isinstance(error, _UsageError):
            raise
        # typer's own way is a box of seven lines.
        if message := error.format_message():
            # An option that lacks its value comes without a context.
            called = error.ctx.command_path if error.ctx else f"rumor {sys.argv[1]}"
            hint = f"Try '{called} --help'."
            if setting := _setting_of(message, called):
                hint = f"Write --set {setting}=VALUE; `rumor config {setting}` explains it."
            elif called == "rumor run" and "--" not in sys.argv:
                # Options of the script were taken for those of the command.
                hint = "Write -- in front of your command: rumor run -n 4 -- python train.py --lr 1"
            print(f"error: {message}\n{hint}", file=sys.stderr)
        sys.exit(_WRONG_ARGUMENTS)
    sys.exit(status)


def _setting_of(message: str, called: str) -> str:
    """The setting that an option which is none would be; empty where there is none."""
    found, command = re.match(r"No such option: --([\w-]+)", message), called[6:]
    if found is None or command not in COMMANDS:
        return ""
    # Here, since it imports more than `rumor --help` needs.
    from .settings.options import settings_of_command

    name = found[1].replace("-", "_")
    return name if name in settings_of_command(load(command))[0] else ""
