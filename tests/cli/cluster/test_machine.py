"""The connection to an agent ignores other output, and ends an ssh that hangs."""

from pathlib import Path

import pytest

from rumor.cli.cluster import machine as module
from rumor.cli.cluster.hosts import Host
from rumor.cli.cluster.machine import Machine


def connected(folder: Path, script: str) -> Machine:
    """Connect to a machine by an ssh that is a script."""
    path = folder / "ssh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    machine = Machine(Host(line=1, name="node-a", address="node-a"), range(1), 7700)
    machine.connect(str(path))
    return machine


def test_greetings_are_ignored_and_the_end_has_a_reason(tmp_path: Path) -> None:
    greeting = "echo Welcome to node-a; echo '[1]'; echo '{\"hello\": 1}'; exit 3"
    connection = connected(tmp_path, greeting)
    assert list(connection.news()) == [{"hello": 1}]
    assert connection.why() == "[1]"
    connection.say(ping=True)
    connection.close()
    connection.close()
    connection.say(ping=True)
    failed = connected(tmp_path, "echo no route >&2; echo >&2; exit 3")
    assert list(failed.news()) == [] and failed.why() == "no route"
    failed.close()
    silent = connected(tmp_path, "exit 3")
    assert list(silent.news()) == [] and silent.why().endswith("ssh ended with status 3")
    silent.close()


def test_an_ssh_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CLOSE_S", 0.1)
    connection = connected(tmp_path, "exec sleep 1000")
    connection.end()
    assert connection.why().endswith("ssh ended with status -9")
    connection.close()
