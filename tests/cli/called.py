"""Calls of the command line in this process."""

from typer.testing import CliRunner, Result

from rumor.cli.app import app

__all__ = ["called"]


def called(*words: object, status: int | None = None, columns: int = 140) -> Result:
    """Call ``rumor`` with these arguments and return its result.

    Args:
        words: Arguments after the name of the command.
        status: Expected exit status; None if the test checks it itself.
        columns: Width of the terminal.
    """
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": str(columns)})
    assert status in (None, done.exit_code), done.output
    return done
