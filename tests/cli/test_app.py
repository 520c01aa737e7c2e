"""The command line as a process: its output and exit status."""

import io
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rumor.cli import main
from rumor.cli.app import COMMANDS, app, load


def test_the_version_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["rumor", "--version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert capsys.readouterr().out == f"rumor {version('rumor')}\n"


HEAVY = {"matplotlib", "networkx", "numpy", "scipy", "torch", "zmq"}


@pytest.mark.extended
@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_import_only_the_terminal_libraries(argument: str) -> None:
    code = (
        "import sys; from rumor.cli import main\n"
        f"sys.argv = ['rumor', '{argument}']\n"
        "try: main()\n"
        "except SystemExit as error: assert not error.code\n"
        "print(*(name for name in sys.modules if name.startswith('rumor.')), file=sys.stderr)\n"
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    own, all_names = done.stderr.splitlines()
    assert own.split() == ["rumor.cli", "rumor.cli.app"]
    assert not HEAVY & set(all_names.split())


def test_help_lists_every_command_with_the_first_sentence_of_its_own_help() -> None:
    listed = " ".join(CliRunner().invoke(app, ["--help"], terminal_width=100).stdout.split())
    for name, (_, summary) in COMMANDS.items():
        assert " ".join(load(name).help.partition("\n\n")[0].split()) == summary
        assert f"│ {name} " in listed


@pytest.mark.parametrize(
    ("arguments", "message", "help_on"),
    [
        (["lanch"], "No such command 'lanch'", "rumor --help"),
        (["launch", "--taks", "digits"], "--taks", "rumor launch --help"),
        (["launch", "--peers", "many"], "--peers", "rumor launch --help"),
        (["merge", "-o", "m.safetensors"], "DIR", "rumor merge --help"),
        (["peer", "--steps"], "--steps", "rumor peer --help"),
        (["top"], "Missing argument", "rumor top --help"),
        (["doctor"], "Missing argument", "rumor doctor --help"),
        (["run", "--dead-s", "3"], "No such option: --dead-s", "--set dead_s=VALUE"),
        (["keys", "add", "roster"], "NAME KEY", "rumor keys add --help"),
        (["keys", "revoke", "roster", "m1"], "Missing option '--key'", "rumor keys revoke --help"),
    ],
)
def test_a_parse_error_takes_two_lines(
    arguments: list[str],
    message: str,
    help_on: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["rumor", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    assert (ended.value.code, captured.out) == (2, "")
    error, hint = captured.err.splitlines()
    assert error.startswith("error: ") and message in error
    assert help_on in hint


def test_ctrl_c_during_startup_prints_one_word_and_gives_status_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rumor.cli.app.run", stopped)
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    assert (ended.value.code, captured.out, captured.err) == (130, "", "stopped\n")


def test_a_file_name_that_stdout_cannot_encode_is_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "schön.toml"
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    monkeypatch.setattr(sys, "argv", ["rumor", "study", "graphs", "--copy", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    sys.stdout.flush()
    assert not ended.value.code
    assert written.getvalue().endswith(b"sch\\xf6n.toml\n") and path.exists()
