"""The five commands of docs/how-to/keys.md, on two hosts of a network of their own."""

import re
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from ...hosts import Hosts, HostsError, hosts
from ...waiting import LIMIT_S

pytestmark = pytest.mark.live

RATE_BYTES_S = 12.5e6
PAGE = Path(__file__).parents[3] / "docs/how-to/keys.md"


def commands() -> tuple[list[str], list[str]]:
    """What the page says to type on the first machine, and on the second."""
    section = PAGE.read_text().split("## Two machines, five commands")[1].split("\n## ")[0]
    first, second = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return first.splitlines(), second.splitlines()


def on(network: Hosts, host: int, words: list[str]) -> list[str]:
    """What runs a `rumor` command on a host."""
    assert words[0] == "rumor"
    return network.command(host, sys.executable, "-P", "-m", "rumor.cli", *words[1:])


@pytest.mark.extended
def test_two_machines_train_together_after_five_commands(tmp_path: Path) -> None:
    first, second = commands()
    assert len(first) + len(second) == 5
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    few = ["--steps", "30", "--founders", "2", "--json"]
    with ExitStack() as stack:
        try:
            network = stack.enter_context(hosts(2, RATE_BYTES_S))
        except HostsError as error:
            pytest.skip(str(error))
        running: list[subprocess.Popen[str]] = []
        for host, line in [*((0, line) for line in first), *((1, line) for line in second)]:
            words = shlex.split(line.replace("10.0.0.1", network.addresses[0]), comments=True)
            if words[0] == "scp":
                for name in words[1:-1]:
                    shutil.copy(folders[0] / name, folders[1])
            elif words[1] != "peer":
                subprocess.run(on(network, host, words), cwd=folders[host], check=True)
            else:
                with (folders[host] / "log").open("w") as log:
                    process = subprocess.Popen(
                        on(network, host, words + few),
                        cwd=folders[host],
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                    )
                stack.enter_context(process)
                stack.callback(process.kill)
                running.append(process)
        for process in running:
            process.communicate(timeout=LIMIT_S)
    logs = [(folder / "log").read_text() for folder in folders]
    assert [process.returncode for process in running] == [0, 0], logs
    assert "met ada.m2" in logs[0] and "met ada.m1" in logs[1]
    # Models went to and fro.
    assert not any("without the average" in log for log in logs), logs
