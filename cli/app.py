"""The command line as a whole: its commands, and what a wrong one is answered.

Nothing heavy is imported until a command needs it: ``rumor --help`` answers without torch.
"""

import sys
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated, Protocol, runtime_checkable

import typer

from .bench import bench
from .calibrate import calibrate
from .commands.study import study
from .compare import compare
from .edge import WRONG_ARGUMENTS
from .launch import launch
from .merge import merge
from .peer import peer
from .replay import replay
from .simulate import simulate
from .topology import topology
from .torture import torture

__all__ = ["app", "run"]

app = typer.Typer(
    name="rumor",
    help="Train one model on many machines, with no coordinator.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Joins the lines of a docstring to paragraphs.
    rich_markup_mode="markdown",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(wanted: bool) -> None:
    if wanted:
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


app.command()(launch)
app.command()(peer)
app.command()(simulate)
app.command()(study)
app.command()(calibrate)
app.command()(compare)
app.command()(replay)
app.command()(merge)
app.command()(topology)
app.command()(torture)
app.command()(bench)


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
        # A terminal, or a pipe, that has no letter for a peer's or a folder's name is no failure.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = app(standalone_mode=False)
    except Exception as error:
        if not isinstance(error, _UsageError):
            raise
        # typer's own way is a box of seven lines.
        if message := error.format_message():
            print(f"error: {message}\nTry '{_command()} --help'.", file=sys.stderr)
        sys.exit(WRONG_ARGUMENTS)
    sys.exit(status)


def _command() -> str:
    names = {command.name or command.callback.__name__ for command in app.registered_commands}  # type: ignore[union-attr]
    named = next((argument for argument in sys.argv[1:] if argument in names), "")
    return f"rumor {named}".strip()
