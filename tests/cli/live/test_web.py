"""``rumor top --web``: its options, with which status it ends, and a real swarm."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from typer.testing import Result

from rumor.cli.live import web
from rumor.train.observe import observer as observer_module

from ...waiting import LIMIT_S, until
from ..called import called
from .made_up import a_view
from .test_top import Fake, running


def rumor_web(*words: object) -> Result:
    return called("top", "--web", *words)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """In place of a server, what it would be given; it is interrupted at once."""
    found: dict[str, Any] = {}

    def serve(*values: Any) -> None:
        names = ("poll", "view", "listener", "every_s", "names")
        found.update(zip(names, values, strict=True))
        found["place"] = values[2].getsockname()
        raise KeyboardInterrupt

    monkeypatch.setattr(observer_module, "Observer", Fake(a_view(4)))
    monkeypatch.setattr(web, "serve", serve)
    return found


def test_it_prints_its_address_and_ends_well_when_interrupted(given: dict[str, Any]) -> None:
    result = rumor_web("node-a:7700", "--every-s", "2")
    assert result.exit_code == 0, result.output
    host, port = given["place"]
    assert host == "127.0.0.1" and port > 0
    assert result.stdout == f"http://127.0.0.1:{port}/\n"
    assert given["view"] == a_view(4) and given["every_s"] == 2.0
    assert given["listener"].fileno() == -1


def test_it_listens_where_it_is_told_to_and_answers_to_that_name(given: dict[str, Any]) -> None:
    result = rumor_web("node-a:7700", "--listen", "localhost:0")
    assert result.exit_code == 0, result.output
    assert given["names"] == {"localhost", socket.gethostname().lower()}
    assert given["place"][0] in ("127.0.0.1", "::1")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
def test_it_listens_on_ipv6_too(given: dict[str, Any]) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("there is no IPv6 loopback")
    result = rumor_web("node-a:7700", "--listen", "[::1]:0")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"http://[::1]:{given['place'][1]}/\n"


def test_a_port_that_is_taken_is_said_to_be(given: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = rumor_web("node-a:7700", "--listen", f"127.0.0.1:{port}")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    place = f"('127.0.0.1', {port}"
    assert f"Address already in use (while attempting to bind on address {place}" in line


@pytest.mark.extended
@pytest.mark.live
def test_a_swarm_of_real_processes_is_served(tmp_path: Path) -> None:
    with running(tmp_path / "run") as address:
        command = [sys.executable, "-m", "rumor.cli", "top", "--web", address, "--every-s", "0.2"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as page_server:
            try:
                assert page_server.stdout is not None
                page = page_server.stdout.readline().strip()

                def all_train() -> bool:
                    with urlopen(f"{page}status.json", timeout=LIMIT_S) as answer:
                        told = json.load(answer)
                    return len(told["peers"]) == 3 and bool(told["steps_s"])

                until(all_train)
                # A page that is open does not keep it from ending.
                with urlopen(f"{page}events", timeout=LIMIT_S) as stream:
                    assert stream.readline() == b"event: everything\n"
                    page_server.send_signal(signal.SIGTERM)
                    _, errors = page_server.communicate(timeout=LIMIT_S)
            finally:
                page_server.kill()
    assert (page_server.returncode, errors) == (0, "")
