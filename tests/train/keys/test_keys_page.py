"""The example of docs/how-to/keys.md: the output of its commands, and three training machines."""

import re
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rumor.cli.app import app

from ...hosts import Hosts, HostsError, hosts
from ...waiting import LIMIT_S

RATE_BYTES_S = 12.5e6
PAGE = Path(__file__).parents[3] / "docs/how-to/keys.md"
MACHINES = "m1", "m2", "m3"
KEY = re.compile(r"[\w-]{43}", re.ASCII)


def page_commands() -> list[tuple[str, list[str], list[str]]]:
    """Machine, words and output of each command of the page."""
    found: list[tuple[str, list[str], list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL):
        for line in block.splitlines():
            if line[2:4] == "$ ":
                found.append((line[:2], shlex.split(line[4:]), []))
            else:
                found[-1][2].append(line)
    return found


class Machines:
    """Folders in which the commands of the page run, with new keys."""

    def __init__(self, folder: Path) -> None:
        self.folders = {name: folder / name for name in MACHINES}
        self._keys: dict[str, str] = {}
        for each in self.folders.values():
            each.mkdir()

    def run(
        self, machine: str, words: list[str], output: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> str:
        """Run a command; return its output, with new keys replaced by those of the page."""
        if words[0] == "scp":
            shutil.copy(self.folders[machine] / words[1], self.folders[words[2].rstrip(":")])
            return ""
        monkeypatch.chdir(self.folders[machine])
        result = CliRunner().invoke(app, [self._keys.get(word, word) for word in words[1:]])
        assert result.exit_code == 0, result.output
        if words[1:3] == ["keys", "make"]:
            self._keys[KEY.findall(output[0])[0]] = KEY.findall(result.output)[0]
        printed = str(result.output)
        for here, made in self._keys.items():
            printed = printed.replace(made, here)
        return printed


def test_the_commands_print_the_output_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Machines(tmp_path)
    commands = [each for each in page_commands() if each[1][1] != "peer"]
    assert len(commands) == 9
    for machine, words, output in commands:
        assert machines.run(machine, words, output, monkeypatch).splitlines() == output


def command_on(network: Hosts, host: int, words: list[str]) -> list[str]:
    """Arguments that run a `rumor` command on a host."""
    return network.command(host, sys.executable, "-P", "-m", "rumor.cli", *words[1:])


@pytest.mark.extended
@pytest.mark.live
def test_three_machines_train_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Machines(tmp_path)
    options = ["--steps", "30", "--set", "founders=3", "--json"]
    options += ["--set", f"linger_s={LIMIT_S}"]
    with ExitStack() as stack:
        try:
            network = stack.enter_context(hosts(3, RATE_BYTES_S))
        except HostsError as error:
            pytest.skip(str(error))
        running: list[subprocess.Popen[str]] = []
        for machine, words, output in page_commands():
            if len(running) == 3:
                break
            if words[1] != "peer":
                machines.run(machine, words, output, monkeypatch)
                continue
            here = [word.replace("10.0.0.1", network.addresses[0]) for word in words]
            folder = machines.folders[machine]
            with (folder / "log").open("w") as log:
                process = subprocess.Popen(
                    command_on(network, MACHINES.index(machine), here + options),
                    cwd=folder,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            stack.enter_context(process)
            stack.callback(process.kill)
            running.append(process)
        for process in running:
            process.communicate(timeout=LIMIT_S)
    logs = [(folder / "log").read_text() for folder in machines.folders.values()]
    assert [process.returncode for process in running] == [0, 0, 0], logs
    assert "met m2" in logs[0] and "met m3" in logs[0] and "met m1" in logs[1]
    # Models were exchanged.
    assert not any("without the average" in log for log in logs), logs
