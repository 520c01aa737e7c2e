"""The example of docs/how-to/keys.md: what its commands print, and the peers that they start."""

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rumor.cli.app import app
from rumor.cli.commands import peer as peer_command
from rumor.gossip.transport.keys.keyring import Keyring, read_keyring
from rumor.train import PeerConfig
from rumor.train.config import RunConfig

PAGE = Path(__file__).parents[3] / "docs/how-to/keys.md"
MACHINES = "m1", "m2", "m3"
KEY = re.compile(r"[\w-]{43}", re.ASCII)


def typed() -> list[tuple[str, list[str], list[str]]]:
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
    """Folders in which the commands of the page run, with keys that are not the page's."""

    def __init__(self, folder: Path) -> None:
        self.folders = {name: folder / name for name in MACHINES}
        self._keys: dict[str, str] = {}
        for each in self.folders.values():
            each.mkdir()

    def run(self, machine: str, words: list[str], output: list[str], at: pytest.MonkeyPatch) -> str:
        """Run a command; its output, with the keys of the page."""
        if words[0] == "scp":
            shutil.copy(self.folders[machine] / words[1], self.folders[words[2].rstrip(":")])
            return ""
        at.chdir(self.folders[machine])
        result = CliRunner().invoke(app, [self._keys.get(word, word) for word in words[1:]])
        assert result.exit_code == 0, result.output
        if words[1:3] == ["keys", "make"]:
            self._keys[KEY.findall(output[0])[0]] = KEY.findall(result.output)[0]
        printed = str(result.output)
        for here, made in self._keys.items():
            printed = printed.replace(made, here)
        return printed


def test_the_commands_print_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines, keyrings = Machines(tmp_path), list[Keyring]()

    def note(run_config: RunConfig, config: PeerConfig, *_: object) -> dict[str, Any]:
        keyring = read_keyring(config.key, config.roster)
        assert keyring is not None
        keyrings.append(keyring)
        assert bool(config.join) is (len(keyrings) > 1)
        return {}

    monkeypatch.setattr(peer_command, "_run", note)
    commands = typed()
    assert len(commands) == 12
    for machine, words, output in commands:
        printed = machines.run(machine, words, output, monkeypatch).splitlines()
        assert words[1] == "peer" or printed == output
    assert len({keyring.roster.version for keyring in keyrings}) == 1 and len(keyrings) == 3
