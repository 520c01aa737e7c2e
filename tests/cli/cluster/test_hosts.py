"""The hosts file, and the settings that each peer there gets."""

from pathlib import Path

import pytest

from rumor.cli.cluster.fleet import told_by_machine
from rumor.cli.cluster.hosts import Host, read_hosts
from rumor.cli.cluster.machine import machines_of
from rumor.cli.launch.config import LaunchConfig
from rumor.gossip import ConfigError

FILE = """\
# The first rack
node-a slots=2 device=cuda:{i} dir=work python=/opt/venv/bin/python
ada@node-b address=10.0.0.2 listen=9000   # the second

[fd00::3] env:HF_HOME="/data/hf cache" env:EMPTY=
"""


def hosts(tmp_path: Path, text: str) -> tuple[Host, ...]:
    path = tmp_path / "hosts.txt"
    path.write_text(text)
    return read_hosts(path)


def test_each_line_describes_a_machine(tmp_path: Path) -> None:
    first, second, third = hosts(tmp_path, FILE)
    assert (first.name, first.address, first.slots) == ("node-a", "node-a", 2)
    assert [first.device, first.dir, first.python] == ["cuda:{i}", "work", "/opt/venv/bin/python"]
    found = [second.line, second.name, second.address, second.listen]
    assert found == [3, "ada@node-b", "10.0.0.2", 9000]
    assert third.address == "fd00::3"
    assert third.variables == {"HF_HOME": "/data/hf cache", "EMPTY": ""}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no machine"),
        ("slots=2", "line 1: 'slots=2' is not a machine"),
        ("-oProxyCommand=x", "line 1: '-oProxyCommand=x' is not a machine"),
        ("node-a\nada@", "line 2: 'ada@' is not a machine"),
        ("node-a slots=0", "line 1: slots=0: it must be a whole number from 1 to 1024"),
        ("node-a listen=70000", "listen=70000"),
        ("node-a slot=2", "'slot=2' is not understood: known are slots=, device="),
        ("node-a dir=", "'dir=' is not understood"),
        ("node-a env:1X=2", "'env:1X=2': write env:NAME=VALUE"),
        ("node-a env:X", "'env:X': write env:NAME=VALUE"),
        ("node-a dir='x", "line 1: No closing quotation"),
        ("node/a", "line 1: address"),
        ("node-a\n\nbob@node-a", "line 3: node-a has a line already"),
        ("node-a\nlocalhost", "line 2: other machines cannot reach localhost"),
    ],
)
def test_an_error_in_a_line_is_reported_with_its_number(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        hosts(tmp_path, text)
    assert message in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere: No such file"):
        read_hosts(tmp_path / "nowhere")
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="bytes: "):
        read_hosts(tmp_path / "bytes")


def test_the_ssh_command_reaches_a_machine_without_asking_questions(tmp_path: Path) -> None:
    first, second, third = machines_of(hosts(tmp_path, FILE), None)
    words = second.command("ssh -F 'my config'")
    assert words[:3] == ["ssh", "-F", "my config"] and "BatchMode=yes" in words
    assert words[-2] == "ada@node-b"
    assert first.command("ssh")[-1] == (
        "sh -c 'exec /opt/venv/bin/python -P -m rumor.cli.cluster.agent'"
    )
    assert "exec python3 -P -m rumor.cli.cluster.agent" in third.command("ssh")[-1]
    for wrong in ("", "ssh 'x"):
        with pytest.raises(ConfigError, match="ssh is "):
            first.command(wrong)


def test_each_peer_gets_the_addresses_of_peers_on_other_machines(tmp_path: Path) -> None:
    made = machines_of(hosts(tmp_path, FILE), None)
    config = LaunchConfig(peers=4, key=Path("key"), roster=Path("roster"), device="cpu")
    env = told_by_machine(config, Path("runs/x"), made)
    assert [env[index]["RUMOR_ID"] for index in range(4)] == [f"peer-{i}" for i in range(4)]
    assert env[1]["RUMOR_OUT"] == "runs/x/hosts/node-a/peer-1"
    assert env[1]["RUMOR_BIND"] == "tcp://0.0.0.0:7701"
    assert env[1]["RUMOR_ADVERTISE"] == "tcp://node-a:7701"
    assert env[1]["RUMOR_JOIN"] == "tcp://10.0.0.2:9000,tcp://[fd00::3]:7700,tcp://node-a:7700"
    assert env[2]["RUMOR_ADVERTISE"] == "tcp://10.0.0.2:9000"
    assert env[3]["RUMOR_BIND"] == "tcp://[::]:7700"
    assert [env[index]["RUMOR_DEVICE"] for index in range(4)] == ["cuda:0", "cuda:1", "cpu", "cpu"]
    listed = machines_of(hosts(tmp_path, "node-a slots=3 device=cuda:0,cuda:3"), None)
    devices = told_by_machine(LaunchConfig(peers=3), Path("x"), listed)
    assert [devices[index]["RUMOR_DEVICE"] for index in range(3)] == ["cuda:0", "cuda:3", "cuda:0"]
    assert (env[0]["RUMOR_KEY"], env[0]["RUMOR_FOUNDERS"]) == ("key", "1")
    assert "RUMOR_RENDEZVOUS" not in env[0] and env[3]["EMPTY"] == ""
    together = told_by_machine(LaunchConfig(peers=4, rule="allreduce"), Path("x"), made)
    assert together[3]["RUMOR_FOUNDERS"] == "4"


def test_peers_bind_to_loopback_addresses_unchanged(tmp_path: Path) -> None:
    made = machines_of(hosts(tmp_path, "localhost\n127.0.0.2 listen=9000\n"), 8000)
    env = told_by_machine(LaunchConfig(peers=2), Path("x"), made)
    assert env[0]["RUMOR_BIND"] == "tcp://127.0.0.1:8000"
    assert env[1]["RUMOR_BIND"] == "tcp://127.0.0.2:9000"
