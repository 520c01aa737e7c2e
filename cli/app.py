"""The command line as a whole: its commands, and the answer to a wrong one.

A command's module is imported when the command is run: ``rumor --help`` answers within a few
tenths of a second, without torch, scipy or networkx.
"""

import re
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
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
    """``module:function`` inside this package."""

    summary: str
    """First sentence of the function's docstring, kept here so that nothing need be imported."""

    beside: str = ""
    """``module:function`` of a context in which it is run, for what takes long and may begin while
    its options are read."""


COMMANDS = {
    "launch": Command(
        home="commands.launch:launch",
        beside="launch.processes.fork_server:begun_early",
        summary="Train one model with several local processes, each a peer of its own.",
    ),
    "run": Command(
        home="commands.run:run",
        summary="Start your own training script several times, as the peers of one swarm.",
    ),
    "demo": Command(
        home="commands.demo:demo",
        beside="launch.processes.fork_server:begun_early",
        summary="Show in a minute what a swarm does when machines are slow, die, and come late.",
    ),
    "peer": Command(
        home="commands.peer:peer",
        summary="Be one peer of a swarm: found one, or join by the address of any member.",
    ),
    "top": Command(
        home="live.top:top",
        summary="See who is in a swarm, and how each of them is doing.",
    ),
    "web": Command(
        home="live.web:web",
        summary="Watch a swarm in the browser: who pushes to whom, curves, and what has happened.",
    ),
    "doctor": Command(
        home="live.doctor:doctor",
        summary="Say why a peer on this machine could not join at an address, and what to do.",
    ),
    "stop": Command(
        home="live.stop:stop",
        summary="End a whole swarm: all peers end their step, merge, write checkpoints and go.",
    ),
    "keygen": Command(
        home="trust.keys:keygen",
        summary="Make a machine's key, and print the line by which a roster lets it in.",
    ),
    "roster": Command(
        home="trust.keys:roster",
        summary="Say which machines may take part in a swarm: `init`, `add`, `revoke` and `show`.",
    ),
    "simulate": Command(
        home="commands.simulate:simulate",
        summary="Train one model with many simulated workers, and see how that would go on real "
        "ones.",
    ),
    "study": Command(
        home="commands.study:study",
        summary="Compare topologies, rules, sizes, machines or networks, and see the answer on one "
        "page.",
    ),
    "calibrate": Command(
        home="runs.calibrate:calibrate",
        summary="Measure real peers, and write a file that `rumor simulate --from FILE` starts "
        "from.",
    ),
    "advise": Command(
        home="runs.advise:advise",
        summary="Say which rule, topology and wire suit machines that were measured.",
    ),
    "compare": Command(
        home="runs.compare:compare",
        summary="Put a live run and a simulation side by side, and say whether they agree.",
    ),
    "replay": Command(
        home="runs.replay:replay",
        summary="Repeat a live run from its journals, and compare it with what it left, bit for "
        "bit.",
    ),
    "merge": Command(
        home="runs.merge:merge",
        summary="Average the models of several peers, each weighted by the weight that it ended "
        "with.",
    ),
    "topology": Command(
        home="commands.topology:topology",
        summary="Say who pushes to whom in a topology, how fast that mixes, and what may break it.",
    ),
    "config": Command(
        home="commands.config:config",
        summary="List the settings of `rumor peer`, `launch`, `run` and `simulate`, and explain "
        "them.",
    ),
    "storm": Command(
        home="commands.storm:storm",
        summary="Draw a storm, what goes wrong with real fleets, as a fault schedule for a swarm "
        "of any size.",
    ),
    "fuzz": Command(
        home="commands.fuzz:fuzz",
        summary="Fuzz the protocol: inject random faults until an invariant breaks or none does.",
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
    """Import a command, and make what typer calls one: its options are ``params``."""
    alone = typer.Typer(**_SETTINGS)
    alone.command(name)(_imported(COMMANDS[name].home))
    return typer.main.get_command(alone)


def _imported(home: str) -> Any:
    module, _, function = home.partition(":")
    return getattr(import_module(f".{module}", __package__), function)


def _register(name: str, command: Command) -> None:
    decorate = app.command(name, help=command.summary, cls=_LazyCommand)
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
        with _beside(sys.argv[1:]):
            status = app(standalone_mode=False)
    except Exception as error:
        if not isinstance(error, _UsageError):
            raise
        # typer's own way is a box of seven lines.
        if message := error.format_message():
            hint = f"Try '{_called()} --help'."
            if setting := _setting_of(message):
                hint = f"Write --set {setting}=VALUE; `rumor config {setting}` explains it."
            elif _called() == "rumor run" and "--" not in sys.argv:
                # Options of the script were taken for those of the command.
                hint = "Write -- in front of your command: rumor run -n 4 -- python train.py --lr 1"
            print(f"error: {message}\n{hint}", file=sys.stderr)
        sys.exit(_WRONG_ARGUMENTS)
    sys.exit(status)


def _beside(arguments: Sequence[str]) -> AbstractContextManager[None]:
    """The context of the command that *arguments* name, unless they only ask for help."""
    command = COMMANDS.get(arguments[0]) if arguments else None
    if command is None or not command.beside or {"-h", "--help"} & set(arguments):
        return nullcontext()
    context: AbstractContextManager[None] = _imported(command.beside)()
    return context


def _setting_of(message: str) -> str:
    """The setting that an option which is none would be; empty where there is none."""
    found, command = re.match(r"No such option: --([\w-]+)", message), _called()[6:]
    if found is None or not command:
        return ""
    # Here, since it imports more than `rumor --help` needs.
    from .settings.options import settings_of_command

    name = found[1].replace("-", "_")
    return name if name in settings_of_command(load(command))[0] else ""


def _called() -> str:
    named = next((argument for argument in sys.argv[1:] if argument in COMMANDS), "")
    return f"rumor {named}".strip()
