"""The average of a swarm that trains: exact where it stands still, and nothing moves."""

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
from rumor.gossip.wire.messages import Phase
from rumor.train import Peer, PeerConfig
from rumor.train.loop.average import Average, AverageEvaluator
from rumor.train.runtime.telling.counters import Counters
from rumor.train.runtime.telling.stats import PeerStats
from rumor.train.storage.jsonl import read_metrics
from rumor.train.tensors.buffers import MemoryUse

from ...waiting import LIMIT_S, until
from ..members import Member, accounts, linear, settings

pytestmark = pytest.mark.live

STILL = GoSGD(p=0.0)


class Scattered:
    """Pushes nothing; the vector is cut into pieces with lines from all over it."""

    name = "scattered"
    registers: tuple[str, ...] = ()
    outstanding_max = 2
    requirements = Requirements(whole=False, shards=2, scattered=True)

    def step(self, context: RuleContext) -> None:
        for share in context.shares():
            context.mix(share)


class Net(nn.Module):
    """A layer and two that are tied to it, a transposed and a frozen one, and statistics."""

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


class Standing(Member):
    """A peer that takes turns, and no steps of training, on a model unlike the others'."""

    def __init__(self, model: nn.Module, config: PeerConfig) -> None:
        self.model = model
        self.before: Callable[[], object] = lambda: None
        peer = Peer(model, config)
        peer.on_start(self.draw)
        super().__init__(peer, self.stand)

    def stand(self) -> None:
        self.before()
        self.peer.step()

    def draw(self) -> None:
        generator = torch.Generator().manual_seed(sum(map(ord, self.peer.id)))
        with torch.no_grad():
            for name, tensor in self.model.named_parameters():
                if not name.startswith("frozen"):
                    tensor.add_(torch.randn(tensor.shape, generator=generator))
            statistics = dict(self.model.named_buffers())["norm.running_mean"]
            statistics.add_(torch.randn(statistics.shape, generator=generator))

    def trainers(self) -> int:
        """How many peers train, as far as it knows."""
        live = self.peer._running().look(lambda protocol: protocol.table.live())
        return sum(member.phase is Phase.TRAINING for member in live)

    def reads(self, timeout_s: float = LIMIT_S) -> Average:
        """Let it average on its own thread, as a training loop does."""
        found: list[Average] = []

        def once() -> None:
            self.before = lambda: None
            found.append(self.peer.average(timeout_s))

        self.before = once
        until(lambda: bool(found) or self.error is not None)
        assert self.error is None
        return found[0]


def config(id: str, **changes: Any) -> PeerConfig:
    # What each peer has of its own is to be seen in its averages.
    given: dict[str, Any] = {"rule": STILL, "frozen_may_differ": True}
    return settings(id, **given | changes)


@contextmanager
def standing(
    others: Sequence[str] = "bcd", width: int = 7, **changes: Any
) -> Iterator[list[Standing]]:
    """A founder, and newcomers that have halved its weight one after another."""
    every = [Standing(Net(0, width), config("a", **changes))]
    try:
        for index, id in enumerate(others, 1):
            joins = {"join": (every[0].entered().address,)}
            every.append(Standing(Net(index, width), config(id, **changes | joins)))
            every[-1].entered()
        until(lambda: all(each.trainers() == len(every) for each in every))
        yield every
    finally:
        for each in reversed(every):
            each.end()


def expected(standing: Sequence[Standing], name: str) -> Any:
    """The definition, in numpy; weights of GoSGD that stands still are powers of two."""
    weights = [each.peer.weight for each in standing]
    values = [each.model.state_dict()[name].detach().numpy() for each in standing]
    total = np.zeros(values[0].shape)
    for weight, value in zip(weights, values, strict=True):
        total += value.astype(np.float64) * weight
    return (total / np.sum(weights)).astype(values[0].dtype)


def counts(member: Member) -> tuple[object, ...]:
    """What reading a model must not change: the peer's weight, and what it mixed and refused."""
    stats = member.peer.stats()
    # Each shard of a copy is mixed; on a slow machine, a newcomer may get those of two donors.
    copied = 0 if member.peer.id == "a" else member.peer._vector.schema.shards
    assert stats.counters.mixed >= copied
    return stats.weight_units, stats.counters.mixed, stats.counters.refusals


@pytest.mark.extended
def test_the_average_of_a_swarm_that_stands_still_is_exact() -> None:
    with standing(shards=3) as every:
        first = every[0]
        before = [counts(each) for each in every]
        states = [{n: v.clone() for n, v in each.model.state_dict().items()} for each in every]
        found = first.reads()
        assert found.missing == ()
        assert found.weights == {each.peer.id: each.peer.weight for each in every}
        assert [counts(each) for each in every] == before
        own = first.model.state_dict()
        assert list(found.state) == list(own)
        for name in ("first.weight", "first.bias", "tied.weight", "norm.running_mean"):
            np.testing.assert_array_equal(found.state[name].numpy(), expected(every, name))
            assert not torch.equal(found.state[name], own[name])
        for name in ("frozen.weight", "norm.num_batches_tracked"):
            assert torch.equal(found.state[name], own[name])
        for each, state in zip(every, states, strict=True):
            assert all(torch.equal(v, state[n]) for n, v in each.model.state_dict().items())
            assert each.peer.stats().queue == 0


@pytest.mark.extended
def test_who_does_not_answer_in_time_is_named_and_counts_nothing() -> None:
    with standing("bc") as every:
        first, b, c = every
        busy, halted = threading.Event(), threading.Event()

        def halt() -> None:
            halted.set()
            busy.wait(LIMIT_S)

        b.before = halt
        assert halted.wait(LIMIT_S)
        try:
            found: list[Average] = []

            def has_answer_of_c() -> bool:
                found.append(first.reads(timeout_s=0.5))
                return "c" in found[-1].weights

            until(has_answer_of_c)
            assert found[-1].missing == ("b",) and set(found[-1].weights) == {"a", "c"}
            bias = found[-1].state["first.bias"].numpy()
            np.testing.assert_array_equal(bias, expected([first, c], "first.bias"))
        finally:
            busy.set()
        b.before = lambda: None
        # What it showed too late was sent back: it may be asked again.
        until(lambda: not first.reads().missing)


def test_the_average_while_all_train_moves_no_weight(tmp_path: Path) -> None:
    def training(id: str, **joins: Any) -> Standing:
        return Standing(Net(0), config(id, out=tmp_path / id, rule=GoSGD(p=0.5), **joins))

    first = training("w").entered()
    others = [training(id, join=(first.address,)) for id in "xyz"]
    try:
        for _ in range(5):
            found = first.reads()
            assert set(found.weights) | set(found.missing) >= {"w"}
            # Not so their sum: what one has pushed since it was read, another may be read with.
            assert all(0 <= weight <= 1.0 for weight in found.weights.values())
            assert sum(found.weights.values()) > 0
    finally:
        for each in (*others, first):
            each.end()
    told = audit(accounts(*(tmp_path / id for id in "wxyz")))
    assert told.balanced and told.in_flight == told.stranded == told.died == 0


@pytest.mark.extended
def test_a_peer_that_has_left_has_no_average_and_one_alone_is_its_own() -> None:
    with Peer(Net(0), config("a")) as peer:
        alone = peer.average()
        assert alone.weights == {"a": 1.0} and alone.missing == ()
        own = peer._model.state_dict()
        assert all(torch.equal(value, own[name]) for name, value in alone.state.items())
        peer.leave()
        with pytest.raises(LocalProtocolError, match="left"):
            peer.average()


@pytest.mark.extended
def test_the_average_is_measured_every_so_many_steps_by_the_first_alone(tmp_path: Path) -> None:
    measured: list[tuple[str, float]] = []

    def made(id: str, value: float, join: tuple[str, ...] = ()) -> Peer:
        def evaluate(model: nn.Module) -> dict[str, float]:
            found = float(model.state_dict()["bias"][0])
            measured.append((id, found))
            return {"loss": found}

        given = config(id, join=join, out=tmp_path / id, log_every=1000)
        return Peer(linear(value), given, evaluate=evaluate, evaluate_every=3)

    first = made("a", 1.0)
    with first:
        first.step(loss=1.0)
        second = made("b", 0.0, (first.address or "",))
        second.on_start(lambda: second._vector.flats[0].fill_(4.0))
        other = Member(second)
        while (1.0 + 4.0) / 2 not in [value for _, value in measured]:
            first.step(loss=1.0)
            time.sleep(0.001)
        steps = first.steps
        averaged = first.stats().averaged
        assert averaged is not None and averaged.step == steps and steps % 3 == 0
        assert averaged.evaluation.loss == 2.5 and averaged.peers == 2
        other.halt.set()
        while other.thread.is_alive():
            first.step()
            time.sleep(0.001)
    assert {id for id, _ in measured} == {"a"}
    rows = read_metrics(tmp_path / "a" / "metrics.jsonl")
    told = {row["step"]: row["average_test_loss"] for row in rows if "average_peers" in row}
    assert told[steps] == 2.5 and all(step % 3 == 0 for step in told)
    assert rows[-1]["average_accuracy"] is None
    assert not any("average_peers" in row for row in read_metrics(tmp_path / "b/metrics.jsonl"))


def test_of_those_who_live_the_first_by_id_measures() -> None:
    evaluator = AverageEvaluator(nn.Linear(1, 1), lambda model: {}, 5)
    stats = PeerStats(
        id="b", members=("b", "c"), counters=Counters(), memory=MemoryUse(model_bytes=0)
    )
    assert evaluator.is_due(10, lambda: stats)
    assert not evaluator.is_due(10, lambda: replace(stats, members=("a", "b", "c")))
    assert not evaluator.is_due(11, lambda: pytest.fail("it is asked in vain"))


def test_a_peer_that_is_silent_holds_up_a_measurement_no_longer_than_reading_takes() -> None:
    model, waited_s = nn.Linear(1, 1), list[float]()

    def read(timeout_s: float) -> Average:
        waited_s.append(timeout_s)
        return Average(state=model.state_dict(), weights={"a": 1.0})

    evaluator = AverageEvaluator(model, lambda model: {"loss": 1.0}, 5)
    for step in (5, 10, 15):
        evaluator.measure(step, read)
    # Nobody knows beforehand how long reading takes; here it takes next to nothing.
    assert waited_s == [10.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"evaluate": lambda model: {}}, "go together"),
        ({"evaluate_every": 3}, "go together"),
        ({"evaluate": lambda model: {}, "evaluate_every": 0}, "at least 1"),
    ],
)
def test_what_is_to_be_measured_and_when_go_together(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Peer(nn.Linear(2, 1), **given)


def test_peers_that_average_at_the_same_time_answer_one_another() -> None:
    with standing("b") as every:
        found, both = list[Average](), threading.Barrier(2)

        def reading(each: Standing) -> Callable[[], None]:
            def once() -> None:
                each.before = lambda: None
                both.wait(LIMIT_S)
                found.append(each.peer.average(LIMIT_S))

            return once

        for each in every:
            each.before = reading(each)
        until(lambda: len(found) == 2)
        assert [each.missing for each in found] == [(), ()]
        assert torch.equal(found[0].state["first.weight"], found[1].state["first.weight"])
