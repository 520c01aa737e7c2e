"""The average of a training swarm: exact if the swarm is idle, without side effects."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rumor.gossip import ConfigError, GoSGD, RuleContext, audit
from rumor.gossip.errors import LocalProtocolError
from rumor.gossip.protocol.rule import Requirements
from rumor.gossip.wire.messages import Excerpt, Phase
from rumor.train import Peer, PeerConfig
from rumor.train.loop.average import Average, AverageEvaluator
from rumor.train.runtime.telling.stats import Counters, PeerStats
from rumor.train.storage.jsonl import read_metrics

from ...waiting import LIMIT_S, until
from ..members import Member, accounts, linear, settings

pytestmark = pytest.mark.live

IDLE = GoSGD(p=0.0)


class Scattered:
    """Pushes nothing; each shard has rows from all over the vector."""

    name = "scattered"
    registers: tuple[str, ...] = ()
    outstanding_max = 2
    requirements = Requirements(whole=False, shards=2, scattered=True)

    def step(self, context: RuleContext) -> None:
        for share in context.shares():
            context.mix(share)


class Net(nn.Module):
    """A layer, two layers tied to it, a transposed layer, a frozen layer, and statistics."""

    def __init__(self, seed: int, width: int = 7) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first = nn.Linear(width, width)
        self.tied = nn.Linear(width, width)
        self.tied.weight = self.first.weight
        self.by_data = nn.Linear(width, width)
        self.by_data.weight.data = self.first.weight.data
        self.turned = nn.Linear(2, width)
        self.turned.weight = nn.Parameter(torch.randn(2, width).t())
        self.norm = nn.BatchNorm1d(width)
        self.frozen = nn.Linear(2, 2).requires_grad_(False)


class IdleMember(Member):
    """A peer that steps without training, on a model of its own."""

    def __init__(self, model: nn.Module, config: PeerConfig) -> None:
        self.model = model
        self.before: Callable[[], object] = lambda: None
        peer = Peer(model, config)
        peer.on_start(self.randomize)
        super().__init__(peer, self.idle_step)

    def idle_step(self) -> None:
        self.before()
        self.peer.step()

    def randomize(self) -> None:
        generator = torch.Generator().manual_seed(sum(map(ord, self.peer.id)))
        with torch.no_grad():
            for name, tensor in self.model.named_parameters():
                if not name.startswith("frozen"):
                    tensor.add_(torch.randn(tensor.shape, generator=generator))
            statistics = dict(self.model.named_buffers())["norm.running_mean"]
            statistics.add_(torch.randn(statistics.shape, generator=generator))

    def trainers(self) -> int:
        """Number of peers that train, as far as this peer knows."""
        live = self.peer._running().look(lambda protocol: protocol.table.live())
        return sum(member.phase is Phase.TRAINING for member in live)

    def average(self, timeout_s: float = LIMIT_S) -> Average:
        """Compute the average on the thread of the peer, as a training loop does."""
        found: list[Average] = []

        def once() -> None:
            self.before = lambda: None
            found.append(self.peer.average(timeout_s))

        self.before = once
        until(lambda: bool(found) or self.error is not None)
        assert self.error is None
        return found[0]


def config(id: str, **changes: Any) -> PeerConfig:
    # Frozen parameters differ, to show that each average keeps the peer's own.
    given: dict[str, Any] = {"rule": IDLE, "frozen_may_differ": True}
    return settings(id, **given | changes)


@contextmanager
def idle_swarm(
    others: Sequence[str] = "bcd", width: int = 7, **changes: Any
) -> Iterator[list[IdleMember]]:
    """A founder, and newcomers that have halved its weight one after another."""
    members = [IdleMember(Net(0, width), config("a", **changes))]
    try:
        for index, id in enumerate(others, 1):
            joins = {"join": (members[0].entered().address,)}
            members.append(IdleMember(Net(index, width), config(id, **changes | joins)))
            members[-1].entered()
        until(lambda: all(each.trainers() == len(members) for each in members))
        yield members
    finally:
        for each in reversed(members):
            each.end()


def expected(members: Sequence[IdleMember], name: str) -> Any:
    """The average by its definition, in numpy; idle GoSGD weights are powers of two."""
    weights = [each.peer.weight for each in members]
    values = [each.model.state_dict()[name].detach().numpy() for each in members]
    total = np.zeros(values[0].shape)
    for weight, value in zip(weights, values, strict=True):
        total += value.astype(np.float64) * weight
    return (total / np.sum(weights)).astype(values[0].dtype)


def counts(member: Member) -> tuple[object, ...]:
    """Figures that an average must not change: weight, mixed shares and refusals."""
    stats = member.peer.stats()
    # Each shard of a copy is mixed; on a slow machine, a newcomer may get those of two donors.
    copied = 0 if member.peer.id == "a" else member.peer._vector.schema.shards
    assert stats.counters.mixed >= copied
    return stats.weight_units, stats.counters.mixed, stats.counters.refusals


@pytest.mark.extended
def test_the_average_of_an_idle_swarm_is_exact() -> None:
    with idle_swarm(shards=3) as members:
        first = members[0]
        before = [counts(each) for each in members]
        states = [{n: v.clone() for n, v in each.model.state_dict().items()} for each in members]
        found = first.average()
        assert found.missing == ()
        assert found.weights == {each.peer.id: each.peer.weight for each in members}
        assert [counts(each) for each in members] == before
        own = first.model.state_dict()
        assert list(found.state) == list(own)
        for name in ("first.weight", "first.bias", "tied.weight", "norm.running_mean"):
            np.testing.assert_array_equal(found.state[name].numpy(), expected(members, name))
            assert not torch.equal(found.state[name], own[name])
        for name in ("frozen.weight", "norm.num_batches_tracked"):
            assert torch.equal(found.state[name], own[name])
        for each, state in zip(members, states, strict=True):
            assert all(torch.equal(v, state[n]) for n, v in each.model.state_dict().items())
            assert each.peer.stats().queue == 0


@pytest.mark.extended
def test_a_peer_that_misses_the_timeout_is_named_and_left_out() -> None:
    with idle_swarm("bc") as members:
        first, b, c = members
        busy, halted = threading.Event(), threading.Event()

        def halt() -> None:
            halted.set()
            busy.wait(LIMIT_S)

        b.before = halt
        assert halted.wait(LIMIT_S)
        try:
            found: list[Average] = []

            def has_answer_of_c() -> bool:
                found.append(first.average(timeout_s=0.5))
                return "c" in found[-1].weights

            until(has_answer_of_c)
            assert found[-1].missing == ("b",) and set(found[-1].weights) == {"a", "c"}
            bias = found[-1].state["first.bias"].numpy()
            np.testing.assert_array_equal(bias, expected([first, c], "first.bias"))
        finally:
            busy.set()
        b.before = lambda: None
        # After its late answer, b can be asked again.
        until(lambda: not first.average().missing)


def test_a_late_answer_to_an_earlier_read_is_ignored() -> None:
    with idle_swarm("b") as members:
        runtimes = [each.peer._running() for each in members]
        to, source = [each.protocol.account.life for each in runtimes]
        late = runtimes[1]._envelope(source, to, Excerpt(snapshot=999))
        runtimes[0].excerpts.put((late, Excerpt(snapshot=999), b""))
        assert members[0].average().missing == ()


def test_averaging_during_training_moves_no_weight(tmp_path: Path) -> None:
    def training_member(id: str, **joins: Any) -> IdleMember:
        return IdleMember(Net(0), config(id, out=tmp_path / id, rule=GoSGD(p=0.5), **joins))

    first = training_member("w").entered()
    others = [training_member(id, join=(first.address,)) for id in "xyz"]
    try:
        for _ in range(5):
            found = first.average()
            assert set(found.weights) | set(found.missing) >= {"w"}
            # The sum may exceed 1: weight that is pushed between two reads counts twice.
            assert all(0 <= weight <= 1.0 for weight in found.weights.values())
            assert sum(found.weights.values()) > 0
    finally:
        for each in (*others, first):
            each.end()
    total = audit(accounts(*(tmp_path / id for id in "wxyz")))
    assert total.balanced and total.in_flight == total.stranded == total.died == 0


@pytest.mark.extended
def test_a_lone_peer_is_its_own_average_until_it_leaves() -> None:
    with Peer(Net(0), config("a")) as peer:
        alone = peer.average()
        assert alone.weights == {"a": 1.0} and alone.missing == ()
        own = peer._model.state_dict()
        assert all(torch.equal(value, own[name]) for name, value in alone.state.items())
        peer.leave()
        with pytest.raises(LocalProtocolError, match="left"):
            peer.average()


@pytest.mark.extended
def test_only_the_first_peer_measures_the_average_at_each_interval(tmp_path: Path) -> None:
    measured: list[tuple[str, float]] = []

    def make_peer(id: str, value: float, join: tuple[str, ...] = ()) -> Peer:
        def evaluate(model: nn.Module) -> dict[str, float]:
            found = float(model.state_dict()["bias"][0])
            measured.append((id, found))
            return {"loss": found}

        given = config(id, join=join, out=tmp_path / id, log_every=1000)
        return Peer(linear(value), given, evaluate=evaluate, evaluate_every=3)

    first = make_peer("a", 1.0)
    with first:
        first.step(loss=1.0)
        second = make_peer("b", 0.0, (first.address or "",))
        second.on_start(lambda: second._vector.flats[0].fill_(4.0))
        other = Member(second)
        while (1.0 + 4.0) / 2 not in [value for _, value in measured]:
            first.step(loss=1.0)
            time.sleep(0.001)
        steps = first.steps
        other.halt.set()
        while other.thread.is_alive():
            first.step()
            time.sleep(0.001)
    assert {id for id, _ in measured} == {"a"}
    rows = read_metrics(tmp_path / "a" / "metrics.jsonl")
    averaged = {row["step"]: row for row in rows if "average_peers" in row}
    assert averaged[steps]["average_test_loss"] == 2.5 and averaged[steps]["average_peers"] == 2
    assert all(step % 3 == 0 for step in averaged)
    assert rows[-1]["average_accuracy"] is None
    assert not any("average_peers" in row for row in read_metrics(tmp_path / "b/metrics.jsonl"))


def test_the_first_live_peer_by_id_measures_the_average() -> None:
    evaluator = AverageEvaluator(nn.Linear(1, 1), lambda model: {}, 5)
    stats = PeerStats(id="b", members=("b", "c"), counters=Counters())
    assert evaluator.is_due(10, lambda: stats)
    assert not evaluator.is_due(10, lambda: replace(stats, members=("a", "b", "c")))
    assert not evaluator.is_due(11, lambda: pytest.fail("the statistics are not needed"))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"evaluate": lambda model: {}}, "go together"),
        ({"evaluate_every": 3}, "go together"),
        ({"evaluate": lambda model: {}, "evaluate_every": 0}, "at least 1"),
    ],
)
def test_evaluate_and_evaluate_every_must_be_given_together(
    given: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Peer(nn.Linear(2, 1), **given)


def test_peers_that_average_at_the_same_time_answer_one_another() -> None:
    with idle_swarm("b") as members:
        found, both = list[Average](), threading.Barrier(2)

        def reading(each: IdleMember) -> Callable[[], None]:
            def once() -> None:
                each.before = lambda: None
                both.wait(LIMIT_S)
                found.append(each.peer.average(LIMIT_S))

            return once

        for each in members:
            each.before = reading(each)
        until(lambda: len(found) == 2)
        assert [each.missing for each in found] == [(), ()]
        assert torch.equal(found[0].state["first.weight"], found[1].state["first.weight"])


@pytest.mark.extended
def test_members_that_only_dial_out_are_read_on_their_connection() -> None:
    with idle_swarm("b") as members:
        first = members[0]
        inward = IdleMember(Net(2), config("i", bind="none", join=(first.address,)))
        try:
            inward.entered()
            until(lambda: first.trainers() == 3)
            found = first.average()
            assert found.missing == () and set(found.weights) == {"a", "b", "i"}
            assert inward.average().missing == ()
        finally:
            inward.end()
