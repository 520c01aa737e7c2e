"""The command line as a process: what it prints where, and its exit status."""

import subprocess
import sys
from importlib.metadata import version

import pytest


def rumor(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rumor.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_the_version_is_said() -> None:
    done = rumor("--version")
    assert (done.returncode, done.stdout) == (0, f"rumor {version('rumor')}\n")


def test_help_lists_the_commands_and_needs_no_torch() -> None:
    code = (
        "import sys; from rumor.cli import main; sys.argv = ['rumor', '--help']\n"
        "try: main()\n"
        "except SystemExit as error: assert not error.code\n"
        "assert not {'torch', 'matplotlib', 'zmq'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in ("launch", "peer", "merge"))


@pytest.mark.parametrize(
    ("arguments", "message", "help_on"),
    [
        (["lanch"], "No such command 'lanch'", "rumor --help"),
        (["launch", "--taks", "digits"], "--taks", "rumor launch --help"),
        (["launch", "--peers", "many"], "--peers", "rumor launch --help"),
        (["merge", "-o", "m.safetensors"], "DIR", "rumor merge --help"),
        (["peer", "--steps"], "--steps", "rumor peer --help"),
    ],
)
def test_what_cannot_be_parsed_is_answered_in_two_lines(
    arguments: list[str], message: str, help_on: str
) -> None:
    done = rumor(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: ") and message in error
    assert help_on in hint
