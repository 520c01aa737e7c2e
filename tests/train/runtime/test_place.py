"""The address of a peer in a list of addresses that all peers share."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from rumor.train import PeerConfig
from rumor.train.runtime.script.cluster import take_place

HERE, THERE = "node-a.test", "node-b.test"


@pytest.fixture(autouse=True)
def _host_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host names, one of this machine and one of another."""
    real, known = socket.getaddrinfo, {HERE: "127.0.1.1", THERE: "192.0.2.1"}

    def look_up(host: str, *given: Any, **more: Any) -> Any:
        return real(known.get(host, host), *given, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(socket, "gethostname", lambda: "own.example.org")
    monkeypatch.setattr("rumor.train.config.gethostname", socket.gethostname)


@pytest.fixture
def ports() -> Iterator[list[int]]:
    """Two free ports, of which the second follows the first."""
    while True:
        with ExitStack() as stack:
            first = stack.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port + 1))
            except OSError:
                continue
        yield [port, port + 1]
        return


def test_a_peer_listens_at_the_address_of_its_machine(ports: list[int]) -> None:
    join = f"{THERE}:{ports[0]},{HERE}:{ports[0]}"
    placed = take_place(PeerConfig(join=join))
    assert placed.bind == f"tcp://0.0.0.0:{ports[0]}"
    assert placed.advertise == (f"tcp://{HERE}:{ports[0]}",)
    assert placed.named() == f"{HERE}-{ports[0]}"
    assert take_place(placed) == placed


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_a_second_peer_on_a_machine_takes_the_next_port(ports: list[int], kind: int) -> None:
    # Another process has the port, or has only claimed it so far.
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind(("127.0.0.1", ports[0]))
        if kind == socket.SOCK_STREAM:
            taken.listen()
        placed = take_place(PeerConfig(join=f"{THERE}:{ports[0]},{HERE}:{ports[0]}"))
        assert placed.bind == f"tcp://0.0.0.0:{ports[1]}"
        assert placed.named() == f"{HERE}-{ports[1]}"
        # The next address in the list is tried before the next port.
        join = f"localhost:{ports[0]},127.0.0.1:{ports[1]}"
        placed = take_place(PeerConfig(join=join))
        assert placed.bind == f"tcp://127.0.0.1:{ports[1]}"
        assert placed.named() == f"127.0.0.1-{ports[1]}"


@pytest.mark.parametrize(
    "settings",
    [
        {"join": f"{THERE}:9"},
        # A founder on this machine may start later.
        {"join": "127.0.0.1:9"},
        {"join": ("dns:swarm.test:9", THERE)},
        {"join": (f"{HERE}:9", THERE), "bind": "tcp://127.0.0.1:*"},
        {"join": (HERE, THERE), "rendezvous": "folder"},
        {},
    ],
)
def test_other_settings_stay_unchanged(settings: dict[str, Any]) -> None:
    config = PeerConfig(**settings)
    assert take_place(config) == config
    assert config.named().startswith("own-") and config.named() != config.named()


def test_a_peer_behind_a_router_takes_its_advertised_address(ports: list[int]) -> None:
    join = f"192.0.2.1:{ports[0]},192.0.2.2:{ports[0]}"
    placed = take_place(PeerConfig(join=join, advertise=f"192.0.2.2:{ports[0]}"))
    assert placed.bind == f"tcp://0.0.0.0:{ports[0]}" and placed.named() == f"192.0.2.2-{ports[0]}"
