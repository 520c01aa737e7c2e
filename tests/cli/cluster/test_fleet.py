"""The launcher's side of several machines, and the messages that it accepts from them."""

import base64
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rumor.cli.cluster import fleet as module
from rumor.cli.cluster.fleet import Fleet
from rumor.cli.cluster.hosts import Host
from rumor.cli.cluster.machine import Machine
from rumor.cli.launch.config import Job, LaunchConfig, MachinesConfig

News = dict[str, Any] | Callable[[], dict[str, Any]]


class Canned(Machine):
    """A machine with one peer that replays given news, and records its orders."""

    def __init__(self, *news: News) -> None:
        super().__init__(Host(line=1, name="node-a", address="node-a"), range(1), 7700)
        self.orders: list[dict[str, Any]] = []
        self._canned = news

    def say(self, **order: Any) -> None:
        self.orders.append(order)

    def news(self) -> Iterator[dict[str, Any]]:
        for each in self._canned:
            yield each() if callable(each) else each

    def why(self) -> str:
        return "it is over"

    def end(self) -> None: ...

    def close(self) -> None: ...


def fleet_of(folder: Path, *news: News) -> Fleet:
    job = Job(config=LaunchConfig(peers=1), name="x", command=("x",), out=folder)
    return Fleet(job, [Canned(*news)], MachinesConfig())


def piece(name: str, data: bytes, peer: Any = 0) -> dict[str, Any]:
    return {"peer": peer, "file": name, "data": base64.b64encode(data).decode()}


def run(fleet: Fleet) -> int | None:
    fleet.start()
    fleet.wait()
    fleet.close()
    return fleet.processes[0].poll()


def test_only_known_files_are_written_to_the_folder_of_their_peer(tmp_path: Path) -> None:
    fleet = fleet_of(
        tmp_path / "run",
        piece("ledger.2.jsonl", b"{}\n"),
        piece("../../../stolen", b"x"),
        piece("ledger/../../x.jsonl", b"x"),
        piece(".bashrc", b"x"),
        piece("metrics.jsonl", b"x", peer=7),
        piece("metrics.jsonl", b"x", peer="0"),
        {"peer": 9, "exit": 0},
        {"news": "of another kind"},
        {"peer": 0},
        {"peer": 0, "exit": 3},
    )
    assert run(fleet) == 3
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"run/peers/peer-0/log.txt", "run/peers/peer-0/ledger.2.jsonl"}
    assert fleet.unreached == []


def test_output_of_peers_is_shown_by_line_with_control_characters_escaped(tmp_path: Path) -> None:
    fleet = fleet_of(
        tmp_path / "run",
        piece("log.txt", b"one\ntw"),
        piece("log.txt", b"o\n10 %\r20 %\r\n\x1b[2Jgone\xff\nrest"),
        {"peer": 0, "exit": 0},
    )
    assert run(fleet) == 0
    assert fleet.look() == [
        "[node-a peer-0] one",
        "[node-a peer-0] two",
        "[node-a peer-0] 20 %",
        "[node-a peer-0] \\x1b[2Jgone\ufffd",
    ]
    assert fleet.look() == []


def test_an_unwritable_copy_is_reported_and_stops_no_peer(tmp_path: Path) -> None:
    def in_the_way() -> dict[str, Any]:
        (tmp_path / "run/peers/peer-0/peer.json").mkdir()
        return piece("peer.json", b"{")

    end = {"peer": 0, "exit": 0}
    fleet = fleet_of(tmp_path / "run", in_the_way, piece("peer.json", b"}"), end)
    assert run(fleet) == 0
    assert fleet.unreached == ["peer-0"]
    assert [line for line in fleet.look() if "cannot be written: Is a directory" in line]


def test_a_machine_that_cannot_start_its_peers_says_why(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path / "run", {"failed": "[Errno 13] Permission denied: 'run'"})
    assert run(fleet) == 1
    log = (tmp_path / "run/peers/peer-0/log.txt").read_text()
    assert log == "error: node-a: [Errno 13] Permission denied: 'run'\n"
    assert fleet.unreached == ["peer-0"]


def test_a_machine_that_does_not_answer_is_abandoned_after_a_second_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_KILL_S", 0.0)
    fleet = fleet_of(tmp_path / "run")
    (machine,) = fleet._machines
    assert isinstance(machine, Canned)
    fleet._follow = lambda *_: None  # type: ignore[method-assign]
    fleet.start()
    assert fleet.processes[0].poll() is None
    fleet.leave_all()
    fleet.kill_all()
    fleet.kill_all()
    fleet.wait()
    assert {"ping": True} in machine.orders
    fleet.close()
    assert fleet.processes[0].poll() == -9
    assert [each for each in machine.orders if "ping" not in each][1:] == [
        {"leave": signal.SIGTERM},
        {"kill": True},
        {"kill": True},
    ]
