"""Every rule between live peers, over real ZeroMQ on the loopback interface."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rumor.gossip import ProtocolConfig, TrainingError, audit
from rumor.gossip.effects.effects import Exchange
from rumor.gossip.effects.ledger import Account
from rumor.gossip.protocol.rule import requirements_of
from rumor.gossip.rules.registry import RULES, make_rule
from rumor.gossip.weight import ONE, UNIT
from rumor.train import Peer, PeerConfig
from rumor.train.storage.ledger_file import read_ledger
from rumor.train.tensors.centers import SharedCenters
from rumor.train.tensors.vector import Vector

from ...rules import ELASTIC, spec_of, topology_of
from ...waiting import LIMIT_S, until

pytestmark = pytest.mark.live

FRAMES: dict[str, Any] = {
    name: 64 for name in ("frame_bytes", "frame_bytes_min", "frame_bytes_max")
}

QUICK: dict[str, Any] = {"gossip_s": 0.1, "seek_s": 0.05, "found_s": 0.3, "roll_s": LIMIT_S}
MORTAL: dict[str, Any] = {"dead_s": 4.0}
"""Where one is killed."""


class Member:
    """A peer that adds its number to its model at every step, on a thread of its own."""

    def __init__(
        self, number: int, folder: Path, rule: str, steps: int, count: int, **protocol: Any
    ) -> None:
        self.model = nn.Linear(4, 3)
        for parameter in self.model.parameters():
            nn.init.zeros_(parameter)
        self.folder = folder / f"p{number}"
        self.error: BaseException | None = None
        self.taken = 0
        self.history: list[torch.Tensor] = []
        """What the bias was after each step."""
        config = PeerConfig(
            id=f"p{number}",
            rule=rule,
            topology=topology_of(rule),
            rendezvous=folder / "meeting",
            founders=count,
            out=self.folder,
            protocol=ProtocolConfig(**QUICK | protocol),
            linger_s=LIMIT_S,
            leave_s=LIMIT_S,
        )
        self.peer = Peer(self.model, config)
        self.number, self.steps = number, steps
        self.thread = threading.Thread(target=self._train, daemon=True)
        self.thread.start()

    def _train(self) -> None:
        try:
            with self.peer:
                while self.taken < self.steps:
                    with torch.no_grad():
                        self.model.bias.add_(self.number)
                    self.peer.step()
                    self.history.append(self.model.bias.detach().clone())
                    self.taken += 1
                    time.sleep(0.002 * self.number)
        except BaseException as error:
            self.error = error


def _end(members: list[Member], *, now: bool = False) -> None:
    """Wait until all have ended in order, which *now* they must not put off."""
    for member in members if now else ():
        member.steps = 0
    for member in members:
        member.thread.join(LIMIT_S)
        assert not member.thread.is_alive() and member.error is None


def _accounts(members: list[Member]) -> list[Account]:
    return [each for member in members for each in read_ledger(member.folder / "ledger.jsonl")]


@pytest.mark.extended
@pytest.mark.parametrize("rule", [spec_of(name) for name in RULES])
def test_a_swarm_ends_in_order_with_all_its_weight(rule: str, tmp_path: Path) -> None:
    members = [Member(number, tmp_path, rule, steps=30, count=3) for number in range(3)]
    _end(members)
    account = audit(_accounts(members))
    shards = requirements_of(make_rule(rule)).shards
    assert account.balanced and account.held == account.founded == 3 * shards * ONE
    models = torch.stack([member.model.bias.detach() for member in members])
    # Each step moves the mean by 1: (0 + 1 + 2) / 3.
    if rule in ("allreduce", "dpsgd"):
        torch.testing.assert_close(models.mean(0), torch.full((3,), 30.0), rtol=0.02, atol=0)
    if rule == "local-sgd:h=5":
        torch.testing.assert_close(models, torch.full((3, 3), 30.0), rtol=1e-5, atol=0)
    if rule == "seasgd":
        # Each has read the center at the end, whose moves are those of the three models.
        assert torch.equal(models[0], models[1]) and torch.equal(models[0], models[2])
        assert 5 < models.mean() < 60
    if rule == "allreduce":
        assert torch.equal(models[0], models[1]) and torch.equal(models[0], models[2])


@pytest.mark.extended
@pytest.mark.parametrize(
    "protocol",
    [
        {},
        {"inline_bytes_max": 1, "shared_memory": True},
        {"inline_bytes_max": 1, "shared_memory": False, **FRAMES},
        {"wire": "float16"},
    ],
    ids=["whole", "from memory", "in frames", "as float16"],
)
def test_two_registers_of_a_share_arrive_as_they_were_sent(
    protocol: dict[str, Any], tmp_path: Path
) -> None:
    """Gradient tracking, step by step: ``x+ = W (x - u + c)``, ``c+ = W (c - u) + u``."""
    rounds, rule = 12, "gradient-tracking"
    members = [Member(n, tmp_path, rule, rounds, 3, **protocol) for n in range(3)]
    _end(members)
    x, c, u = np.zeros(3), np.zeros(3), -np.arange(3.0)
    w = np.full((3, 3), 1 / 3)
    for round in range(rounds):
        x, c = w @ (x - u + c), w @ (c - u) + u
        found = [member.history[round].numpy() for member in members]
        np.testing.assert_allclose(found, np.outer(x, np.ones(3)), rtol=1e-3, atol=1e-3)
    assert np.ptp(c) > 1


def test_a_loop_can_end_with_that_of_another_peer(tmp_path: Path) -> None:
    steps, ended = dict[str, int](), dict[str, str]()

    def train(name: str) -> None:
        config = PeerConfig(
            id=name,
            rule="seasgd:progress=master,master=p1",
            rendezvous=tmp_path / "meeting",
            founders=3,
            protocol=ProtocolConfig(**QUICK),
        )
        # Founders of different models found a swarm each at first, and the master of one that has
        # come to its end before the others come over leaves alone.
        model = nn.Linear(4, 3)
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
        with Peer(model, config) as peer:
            while not peer.ended_by and not (name == "p1" and peer.steps == 20):
                peer.step()
                time.sleep(0.005)
        steps[name], ended[name] = peer.steps, peer.ended_by

    threads = [threading.Thread(target=train, args=(f"p{n}",), daemon=True) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    assert ended == {"p0": "p1", "p1": "", "p2": "p1"} and steps["p1"] == 20


VICTIM = """
import sys, time
from pathlib import Path
from torch import nn
from rumor.gossip import ProtocolConfig
from rumor.train import Peer, PeerConfig

model = nn.Linear(4, 3)
for parameter in model.parameters():
    nn.init.zeros_(parameter)
config = PeerConfig(
    id="victim", rule=sys.argv[2], rendezvous=Path(sys.argv[1]) / "meeting", founders=3,
    protocol=ProtocolConfig(gossip_s=0.1, seek_s=0.05, dead_s=4.0, found_s=0.3, roll_s=600.0),
)
with Peer(model, config) as peer:
    while True:
        peer.step()
        time.sleep(0.01)
"""


def endless(folder: Path, rule: str, number: int, **settings: Any) -> list[Member]:
    """Members that train until their `steps` are set."""
    return [Member(each, folder, rule, steps=10**9, **settings) for each in range(number)]


def _go_on(members: list[Member], steps: int) -> None:
    """Wait until each has taken so many steps more."""
    goals = [member.taken + steps for member in members]

    def have() -> bool:
        assert all(member.thread.is_alive() for member in members)
        return all(m.taken >= goal for m, goal in zip(members, goals, strict=True))

    until(have)


def _kill_beside(members: list[Member], folder: Path, rule: str) -> None:
    """Let a further founder train along, and kill it after a while."""
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, str(folder), rule])
    try:
        until(lambda: victim.poll() is not None or all(m.taken >= 10 for m in members))
        assert victim.poll() is None
    finally:
        victim.send_signal(signal.SIGKILL)
        victim.wait()


@pytest.mark.extended
@pytest.mark.parametrize("name", ELASTIC)
def test_when_a_peer_is_killed_outer_rounds_go_on_without_it(name: str, tmp_path: Path) -> None:
    rule = f"{name}:h=3"
    members = endless(tmp_path, rule, 2, count=3, **MORTAL)
    _kill_beside(members, tmp_path, rule)
    # More than two rounds, so that the one in which it died is over.
    _go_on(members, 9)
    _end(members, now=True)
    held = sum(account.weight for account in _accounts(members))
    # A few units that were under way to the third one, or from it, may be where nobody can tell.
    assert 2 * ONE - 100 * UNIT < held < 2 * ONE + 100 * UNIT


@pytest.fixture
def two_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four peers, two are told that they run on another machine."""
    machine = "rumor.train.runtime.opening._host"
    monkeypatch.setattr(machine, lambda config, rule: bytes([int(config.id[1:]) // 2 + 1]) * 16)


@pytest.mark.extended
@pytest.mark.usefixtures("two_machines")
def test_machines_gossip_and_the_peers_of_one_act_as_one(tmp_path: Path) -> None:
    members = [Member(number, tmp_path, "hybrid", steps=30, count=4) for number in range(4)]
    _end(members)
    account = audit(_accounts(members))
    assert account.balanced and account.held == account.founded == 4 * ONE
    for one, other in (members[:2], members[2:]):
        found = [torch.stack(each.history[:20]) for each in (one, other)]
        torch.testing.assert_close(*found, rtol=1e-5, atol=0)
    models = torch.stack([member.model.bias.detach() for member in members])
    # By themselves one machine comes to 30 (0 + 1) / 2, and the other to 30 (2 + 3) / 2.
    assert 16 < models.mean() < 74
    torch.testing.assert_close(models, models[:1].expand(4, -1), rtol=1e-2, atol=0)


@pytest.mark.extended
@pytest.mark.usefixtures("two_machines")
def test_machines_sum_up_within_before_their_leaders_do(tmp_path: Path) -> None:
    rule = "allreduce:levels=2"
    members = [Member(number, tmp_path, rule, steps=20, count=4) for number in range(4)]
    _end(members)
    account = audit(_accounts(members))
    assert account.balanced and account.held == account.founded == 4 * ONE
    for step in range(19):
        one, *others = [member.history[step] for member in members]
        assert all(torch.equal(one, other) for other in others)


@pytest.mark.extended
def test_when_a_peer_is_killed_those_who_share_its_center_go_on(tmp_path: Path) -> None:
    members = endless(tmp_path, "seasgd", 2, count=3, **MORTAL)
    _kill_beside(members, tmp_path, "seasgd")
    _go_on(members, 20)
    _end(members, now=True)
    assert torch.equal(members[0].model.bias, members[1].model.bias)
    # Nobody had pushed anything before the third one was gone.
    assert sum(account.weight for account in _accounts(members)) == 2 * ONE


@pytest.mark.extended
def test_when_a_peer_is_killed_a_synchronous_rule_names_it_and_gives_up(tmp_path: Path) -> None:
    members = endless(tmp_path, "dpsgd", 2, count=3, **MORTAL)
    _kill_beside(members, tmp_path, "dpsgd")
    for member in members:
        member.thread.join(LIMIT_S)
        assert isinstance(member.error, TrainingError)
        assert "victim died in round " in str(member.error)
        assert "dpsgd cannot go on without it" in str(member.error)


@pytest.mark.extended
def test_who_comes_late_to_a_synchronous_swarm_is_told_so(tmp_path: Path) -> None:
    members = endless(tmp_path, "allreduce", 2, count=2)
    try:
        until(lambda: min(member.taken for member in members) >= 3)
        assert members[0].peer.address is not None
        late = PeerConfig(
            id="late",
            rule="allreduce",
            join=(members[0].peer.address,),
            protocol=ProtocolConfig(**QUICK),
        )
        with pytest.raises(TrainingError, match="takes nobody in once it has started"):
            with Peer(nn.Linear(4, 3), late):
                pass
    finally:
        for member in members:
            member.steps = 0
            member.peer._stop.set()
        for member in members:
            member.thread.join(LIMIT_S)
    assert not any(member.thread.is_alive() for member in members)


def test_nobody_trains_before_the_network_thread_has_carried_out_the_start_of_the_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A swarm is founded by whichever thread learns that all are there."""
    exchange, done = SharedCenters.exchange, set[str]()

    def slowly(segments: SharedCenters, effect: Exchange, vector: Vector) -> None:
        time.sleep(0.2)
        exchange(segments, effect, vector)
        done.add(segments.life[0])

    monkeypatch.setattr(SharedCenters, "exchange", slowly)
    early: list[str] = []

    def enter(name: str) -> None:
        config = PeerConfig(
            id=name,
            rule="seasgd",
            rendezvous=tmp_path,
            founders=2,
            protocol=ProtocolConfig(**QUICK),
            linger_s=0,
            leave_s=0.1,
        )
        with Peer(nn.Linear(2, 2), config):
            if name not in done:
                early.append(name)

    threads = [threading.Thread(target=enter, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == {"a", "b"} and not early
