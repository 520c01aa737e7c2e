"""The connection to an agent ignores other output, and ends an ssh that hangs."""

from pathlib import Path

import pytest

from rumor.cli.cluster import connection as module
from rumor.cli.cluster.connection import Connection
from rumor.cli.cluster.hosts import Host

HOST = Host(line=1, name="node-a", address="node-a")


def ssh(folder: Path, script: str) -> str:
    path = folder / "ssh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_greetings_are_ignored_and_the_end_has_a_reason(tmp_path: Path) -> None:
    greeting = "echo Welcome to node-a; echo '[1]'; echo '{\"hello\": 1}'; exit 3"
    connection = Connection(HOST, ssh(tmp_path, greeting))
    assert list(connection.news()) == [{"hello": 1}]
    assert connection.why() == "[1]"
    connection.say(ping=True)
    connection.close()
    connection.close()
    connection.say(ping=True)
    failed = Connection(HOST, ssh(tmp_path, "echo no route >&2; echo >&2; exit 3"))
    assert list(failed.news()) == [] and failed.why() == "no route"
    failed.close()
    silent = Connection(HOST, ssh(tmp_path, "exit 3"))
    assert list(silent.news()) == [] and silent.why().endswith("ssh ended with status 3")
    silent.close()


def test_an_ssh_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CLOSE_S", 0.1)
    connection = Connection(HOST, ssh(tmp_path, "exec sleep 1000"))
    connection.end()
    assert connection.why().endswith("ssh ended with status -9")
    connection.close()
