"""``rumor top``: its output, its page, its exit status, and a real swarm."""

import json
import re
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from urllib.request import urlopen

import pytest
from rich.console import Console
from typer.testing import Result

from rumor.cli.live import top, web
from rumor.cli.live.top import TopConfig, print_view
from rumor.train.observe import observer as observer_module
from rumor.train.observe.view import SwarmView

from ...gossip.transport.keyrings import Swarm
from ...train.members import one_of, swarm
from ...waiting import LIMIT_S, until
from ..called import called
from .made_up import a_peer, a_view

FAST = ("--every-s", "0.2")


def rumor_top(*words: object) -> Result:
    return called("top", *words)


class Fake:
    """A fake observer that returns given views, the last one forever."""

    def __init__(self, *views: SwarmView) -> None:
        self.views = list(views)
        self.given: dict[str, Any] = {}

    def __call__(self, addresses: list[str], **given: Any) -> "Fake":
        self.given = {"addresses": addresses, **given}
        return self

    def __enter__(self) -> "Fake":
        return self

    def __exit__(self, *_: object) -> None: ...

    def poll(self) -> SwarmView:
        return self.views.pop(0) if len(self.views) > 1 else self.views[0]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake(a_view(4))
    monkeypatch.setattr(observer_module, "Observer", made)
    return made


def test_without_a_terminal_one_table_is_printed(fake: Fake) -> None:
    silent = a_peer("nat", source="others", state="dead")
    fake.views = [a_view(4), replace(a_view(4), peers=(*a_view(4).peers, silent))]
    result = rumor_top("node-a:7700", "node-b:7700", *FAST)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("swarm 3d42e0d4 · step 790,123")
    assert lines[2].split()[:6] == ["peer", "state", "step", "step/s", "weight", "loss"]
    assert [line.split()[0] for line in lines[3:8]] == ["nat", "p00", "p01", "p02", "p03"]
    assert "dead*" in lines[3] and "* as other members report" in result.stdout
    assert lines[-1].endswith("p03 founded the swarm")
    assert fake.given == {"addresses": ["node-a:7700", "node-b:7700"], "keyring": None}


def test_a_terminal_shows_as_much_as_fits() -> None:
    console = Console(width=80, record=True, force_terminal=True, file=open("/dev/null", "w"))
    with console.capture() as capture:
        print_view(a_view(64), console)
    console.file.close()
    text = capture.get()
    assert "accuracy" not in text and "\x1b[31mdead" in text


def test_json_is_one_object(fake: Fake) -> None:
    result = rumor_top("a:1", "--json", *FAST)
    (line,) = result.stdout.splitlines()
    status = json.loads(line)
    assert status["alive"] == 4 and status["peers"][0]["settings"]["rule"] == "gosgd"
    assert result.exit_code == 0


def test_on_a_terminal_the_table_is_redrawn_until_ctrl_c(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []

    def draw(view: SwarmView, *rest: Any) -> str:
        drawn.append(rest[-1])
        if len(drawn) == 3:
            raise KeyboardInterrupt
        return ""

    monkeypatch.setattr(top, "screen_of", draw)
    fake.views = [a_view(4, answered=0)]
    top._redraw(cast(Any, fake), a_view(4), TopConfig(every_s=0.2))
    assert drawn[0] == "" and drawn[1].startswith("no member answers")


@pytest.mark.parametrize("height", [8, 20, 24, 100])
@pytest.mark.parametrize("members", [1, 12, 64])
def test_a_screen_is_never_taller_than_the_terminal(height: int, members: int) -> None:
    console = Console(width=80, height=height)
    with console.capture() as capture:
        screen = top.screen_of(a_view(members), 80, height, "step/s", "nobody answers")
        console.print(screen)
    lines = capture.get().splitlines()
    assert len(lines) <= height and all(len(line) <= 80 for line in lines)
    # Figures that do not fit continue on a second line, without being split.
    folded = members > 1
    assert lines[0].startswith("swarm") and lines[folded].strip().endswith("up 12:34")
    assert lines[folded + 1].strip() == "nobody answers"
    shown = sum(re.match(r"p\d\d  ", line) is not None for line in lines)
    assert shown == members or f"{members - shown} more" in capture.get()


def test_members_are_sorted_by_a_column(fake: Fake) -> None:
    peers = tuple(a_peer(name, loss=loss) for name, loss in (("a", 1.0), ("b", 3.0), ("c", 2.0)))
    fake.views = [a_view(3, peers=peers)]
    lines = rumor_top("x:1", "--once", "--sort", "loss", *FAST).stdout.splitlines()
    assert [line.split()[0] for line in lines[3:6]] == ["b", "c", "a"]


def test_keys_are_read(fake: Fake, tmp_path: Path) -> None:
    keys = Swarm(tmp_path)
    key, roster = keys.machine("m"), keys.file()
    assert rumor_top("a:1", "--key", key, "--roster", roster, *FAST).exit_code == 0
    assert fake.given["keyring"].names == "m"


@pytest.fixture
def server_arguments(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments that the server would get; it is interrupted at once."""
    found: dict[str, Any] = {}

    def serve(*values: Any) -> None:
        names = ("poll", "view", "listener", "every_s", "names")
        found.update(zip(names, values, strict=True))
        found["place"] = values[2].getsockname()
        raise KeyboardInterrupt

    monkeypatch.setattr(observer_module, "Observer", Fake(a_view(4)))
    monkeypatch.setattr(web, "serve", serve)
    return found


def test_the_page_address_is_printed_and_an_interrupt_gives_status_0(
    server_arguments: dict[str, Any],
) -> None:
    result = rumor_top("--web", "node-a:7700", "--every-s", "2")
    assert result.exit_code == 0, result.output
    host, port = server_arguments["place"]
    assert host == "127.0.0.1" and port > 0
    assert result.stdout == f"http://127.0.0.1:{port}/\n"
    assert server_arguments["view"] == a_view(4) and server_arguments["every_s"] == 2.0
    assert server_arguments["listener"].fileno() == -1


def test_the_page_is_served_at_the_given_address_and_host_name(
    server_arguments: dict[str, Any],
) -> None:
    result = rumor_top("--web", "node-a:7700", "--listen", "localhost:0")
    assert result.exit_code == 0, result.output
    assert server_arguments["names"] == {"localhost", socket.gethostname().lower()}
    assert server_arguments["place"][0] in ("127.0.0.1", "::1")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
def test_the_page_is_served_on_ipv6(server_arguments: dict[str, Any]) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("there is no IPv6 loopback")
    result = rumor_top("--web", "node-a:7700", "--listen", "[::1]:0")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"http://[::1]:{server_arguments['place'][1]}/\n"


def test_a_port_in_use_is_reported(server_arguments: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = rumor_top("--web", "node-a:7700", "--listen", f"127.0.0.1:{port}")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    place = f"('127.0.0.1', {port}"
    assert f"Address already in use (while attempting to bind on address {place}" in line


@pytest.mark.extended
@pytest.mark.live
def test_a_swarm_of_real_processes_is_shown_on_a_terminal_and_a_page(tmp_path: Path) -> None:
    with swarm(*(one_of(tmp_path, id, 2) for id in "ab"), at_once=True) as members:
        address = members[0].address
        status: dict[str, Any] = {}

        def all_train() -> bool:
            result = rumor_top(address, "--json", *FAST)
            assert result.exit_code == 0, result.output
            status.update(json.loads(result.stdout))
            steps = [peer["steps_s"] for peer in status["peers"] if peer["state"] == "training"]
            return len(steps) == status["answered"] == 2 and all(steps)

        until(all_train, lambda: status)
        command = [sys.executable, "-m", "rumor.cli", "top", "--web", address, "--every-s", "0.2"]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, **pipes) as page_server:
            try:
                assert page_server.stdout is not None
                page = page_server.stdout.readline().strip()

                def is_served() -> bool:
                    with urlopen(f"{page}status.json", timeout=LIMIT_S) as answer:
                        shown = json.load(answer)
                    return len(shown["peers"]) == 2 and bool(shown["steps_s"])

                until(is_served)
                with urlopen(f"{page}history.json", timeout=LIMIT_S) as answer:
                    assert json.load(answer)
                page_server.send_signal(signal.SIGTERM)
                _, errors = page_server.communicate(timeout=LIMIT_S)
            finally:
                page_server.kill()
    assert (page_server.returncode, errors) == (0, "")
    assert [peer["id"] for peer in status["peers"]] == ["a", "b"]
    assert {peer["settings"]["rule"] for peer in status["peers"]} == {"gosgd"}
    assert status["alive"] == status["answered"] == 2
    assert {event["event"] for event in status["events"]} >= {"founded", "met"}
