"""The end of a peer of several processes: by a death, a signal, an error, or a request."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from rumor.gossip import GoSGD, ProtocolConfig, TrainingError
from rumor.gossip.weight import ONE
from rumor.train import Peer, PeerConfig
from rumor.train.loop.group.shared_model import Parts
from rumor.train.observe.observer import Observer
from rumor.train.observe.stop import SwarmStop

from ....waiting import LIMIT_S
from .processes import layers, nodes, spread, values_of

pytestmark = [pytest.mark.live, pytest.mark.extended]

Send = Callable[[Any], None]


def until_stopped(
    rank: int,
    send: Send,
    *,
    kind: str,
    name: str,
    join: str = "",
    p: float = 0.5,
    steps: int = 100_000,
    dies_in: str = "",
    fails: int = -1,
) -> None:
    """Train until something ends this peer; send its steps, the error and the weights."""
    if rank == 1 and dies_in:
        setattr(Parts, dies_in, lambda parts, share: os.kill(os.getpid(), signal.SIGKILL))
    model = spread(layers(0), kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    quick = ProtocolConfig(gossip_s=0.2, suspect_s=60.0, dead_s=120.0)
    config = PeerConfig(id=name, rule=GoSGD(p=p), join=join or (), signals=True, protocol=quick)
    peer = Peer(model, config)
    try:
        with peer:
            send((peer.address, os.getpid()))
            has_shared = False
            while peer.steps < steps:
                optimizer.zero_grad()
                model(torch.ones(4, 6)).square().mean().backward()
                optimizer.step()
                if rank == fails and peer.steps >= 20:
                    raise ValueError("bad luck")
                peer.step()
                if peer.steps == 5:
                    send("trains")
                weight = sum(peer.stats().weights)
                if kind == "plain" and has_shared and weight == ONE:
                    send("has all")
                    has_shared = False
                has_shared |= weight < ONE
                time.sleep(0.002)
    except BaseException as error:
        send((peer.steps, f"{type(error).__name__}: {error}", peer.stats().weights))
        if not isinstance(error, SystemExit):
            os._exit(1)  # others may wait for this process
        raise
    send((peer.steps, "", peer.stats().weights))


def pair(make: Callable[..., Any], path: Path, **given: Any) -> tuple[Any, Any, list[Any]]:
    """Return a group and a plain peer that train together, and a first message of each rank."""
    plain = make("plain", until_stopped, path / "plain", name="plain")
    (address, _), *_ = plain.receive_all()
    node = make("fsdp", until_stopped, path / "node", name="node", join=address, **given)
    first = node.receive_all()
    for each in (plain, node):
        assert each.receive_all() == ["trains"] * len(each.processes)
    return node, plain, first


@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_any_process_ends_all_at_the_same_step(tmp_path: Path, rank: int) -> None:
    with nodes() as make:
        node, plain, first = pair(make, tmp_path)
        os.kill(first[rank][1], signal.SIGTERM)
        messages = node.receive_all()
        assert [error for _, error, _ in messages] == ["SystemExit: 143"] * 2
        assert messages[0][0] == messages[1][0]
        assert sum(messages[0][2]) == 0
        assert node.end() == [143, 143]
        assert plain.receive() == "has all"


def test_a_stop_request_ends_all_processes_at_the_same_step(tmp_path: Path) -> None:
    with nodes() as make:
        node, plain, first = pair(make, tmp_path)
        with Observer(first[0][0]) as observer:
            for _ in SwarmStop(observer, timeout_s=LIMIT_S).run(LIMIT_S):
                pass
        messages = node.receive_all()
        assert [error for _, error, _ in messages] == ["SystemExit: 0"] * 2
        assert messages[0][0] == messages[1][0]
        assert node.end() == [0, 0] and plain.end() == [0]


@pytest.mark.parametrize("dies_in", ["take", "mix"])
def test_a_follower_that_dies_during_an_exchange_loses_no_weight(
    tmp_path: Path, dies_in: str
) -> None:
    """It never copies, or mixes, its own parts of the first share."""
    with nodes() as make:
        plain = make("plain", until_stopped, tmp_path / "plain", name="plain")
        (address, _), *_ = plain.receive_all()
        given = {"name": "node", "join": address, "p": 1.0 if dies_in == "take" else 0.0}
        node = make("fsdp", until_stopped, tmp_path / "node", dies_in=dies_in, **given)
        assert node.receive()[0]  # its address
        while (message := node.receive()) == "trains":
            pass
        _, error, weights = message
        assert "rank 1 of this peer has ended" in error and sum(weights) == 0
        assert [plain.receive(), plain.receive()] == ["trains", "has all"]


def test_a_killed_leader_ends_the_other_processes(tmp_path: Path) -> None:
    with nodes() as make:
        node, _, first = pair(make, tmp_path)
        os.kill(first[0][1], signal.SIGKILL)
        _, error, _ = node.receive(1)
        assert error


def hang(rank: int, send: Send, *, kind: str, join: str) -> None:
    model = spread(layers(0), kind)
    config = PeerConfig(id="node", rule=GoSGD(p=0.5), join=join, stuck_s=2.0, leave_s=60.0)
    with Peer(model, config) as peer:
        peer.step()
        send("trains")
        if rank == 1:
            time.sleep(1000)
        values_of(model)  # waits for the other rank


def test_a_hanging_collective_operation_ends_the_peer(tmp_path: Path) -> None:
    with nodes() as make:
        plain = make("plain", until_stopped, tmp_path / "plain", name="plain")
        (address, _), *_ = plain.receive_all()
        node = make("fsdp", hang, tmp_path / "node", join=address)
        assert node.receive_all() == ["trains"] * 2
        node.processes[0].join()
        assert node.processes[0].exitcode == 1
        assert [plain.receive(), plain.receive()] == ["trains", "has all"]


def differ(rank: int, send: Send, *, kind: str, how: str) -> None:
    model: nn.Module = spread(layers(0), kind)
    if how == "machine" and rank:
        patch = pytest.MonkeyPatch()
        patch.setattr("rumor.train.loop.group.rank_group.host_id", lambda: b"elsewhere")
    if how == "model" and rank:
        model = nn.Linear(3, 3)
    try:
        Peer(model, group=dist.group.WORLD)
    except TrainingError as error:
        send(str(error))
    else:
        send("no error")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("machine", "the processes of one peer share memory, and those on"),
        ("model", "rank 1 has other tensors than rank 0"),
    ],
)
def test_mismatched_processes_are_refused(tmp_path: Path, how: str, message: str) -> None:
    with nodes() as make:
        node = make("ddp", differ, tmp_path / "meet", how=how)
        assert all(message in error for error in node.receive_all())
        node.end()


@pytest.mark.parametrize("fails", [0, 1])
def test_an_error_of_one_process_ends_all_processes(tmp_path: Path, fails: int) -> None:
    with nodes() as make:
        node, plain, _ = pair(make, tmp_path, fails=fails)
        messages = node.receive_all()
        assert messages[fails][1] == "ValueError: bad luck"
        assert messages[1 - fails][1]
        assert sum(messages[0][2]) == 0
        assert plain.receive() == "has all"
