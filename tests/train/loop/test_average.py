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

from rumor.gossip import ConfigError, GoSGD, ProtocolConfig, RuleContext, audit
from rumor.gossip.errors import LocalProtocolError
from rumor.gossip.protocol.rule import Requirements
from rumor.gossip.wire.messages import Phase
from rumor.train import Peer, PeerConfig
from rumor.train.loop.average import Average, AverageEvaluator
from rumor.train.runtime.telling.counters import Counters
from rumor.train.runtime.telling.stats import PeerStats
from rumor.train.storage.jsonl import read_metrics
from rumor.train.storage.ledger_file import read_ledger
from rumor.train.tensors.buffers import MemoryUse

from ...waiting import LIMIT_S, until

pytestmark = pytest.mark.live

QUICK = ProtocolConfig(gossip_s=0.1, seek_s=0.05)

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


class Standing:
    """A peer that takes turns on a thread of its own, and no steps of training."""

    def __init__(self, model: nn.Module, config: PeerConfig) -> None:
        self.model, self.peer = model, Peer(model, config)
        self.error: BaseException | None = None
        self.inside, self.over = threading.Event(), threading.Event()
        self.before: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._stand)
        self._thread.start()

    def _stand(self) -> None:
        try:
            with self.peer:
                self.draw()
                self.inside.set()
                while not self.over.wait(0.001):
                    self.before()
                    self.peer.step()
                self.peer.leave()
        except BaseException as error:
            self.error = error
            self.inside.set()

    def draw(self) -> None:
        """Make its model differ from the others'."""
        generator = torch.Generator().manual_seed(sum(map(ord, self.peer.id)))
        with torch.no_grad():
            for name, tensor in self.model.named_parameters():
                if not name.startswith("frozen"):
                    tensor.add_(torch.randn(tensor.shape, generator=generator))
            statistics = dict(self.model.named_buffers())["norm.running_mean"]
            statistics.add_(torch.randn(statistics.shape, generator=generator))

    def end(self) -> None:
        self.over.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()


def config(id: str, **changes: Any) -> PeerConfig:
    given: dict[str, Any] = {"protocol": QUICK, "rule": STILL, "linger_s": 0.0, "leave_s": LIMIT_S}
    # What each peer has of its own is to be seen in its averages.
    given["frozen_may_differ"] = True
    return PeerConfig(id=id, **given | changes)


@contextmanager
def swarm(
    make: Callable[[int], nn.Module], others: Sequence[str] = "bcd", **changes: Any
) -> Iterator[tuple[Standing, list[Standing]]]:
    """A founder, and newcomers that have halved its weight one after another."""
    first = Standing(make(0), config("a", **changes))
    standing = [first]
    try:
        assert first.inside.wait(LIMIT_S)
        for index, id in enumerate(others, 1):
            joins = {"join": (first.peer.address or "",)}
            standing.append(Standing(make(index), config(id, **changes | joins)))
            assert standing[-1].inside.wait(LIMIT_S)
            assert standing[-1].error is None
        until(lambda: all(trainers(each) == len(standing) for each in standing))
        yield first, standing[1:]
    finally:
        for each in reversed(standing):
            each.end()


def trainers(standing: Standing) -> int:
    """How many peers train, as far as one of them knows."""
    live = standing.peer._running().look(lambda protocol: protocol.table.live())
    return sum(member.phase is Phase.TRAINING for member in live)


def read_on(standing: Standing, timeout_s: float = LIMIT_S) -> Average:
    """Let a peer average on its own thread, as a training loop does."""
    found: list[Average] = []

    def once() -> None:
        standing.before = lambda: None
        found.append(standing.peer.average(timeout_s))

    standing.before = once
    until(lambda: bool(found) or standing.error is not None)
    assert standing.error is None
    return found[0]


def expected(standing: Sequence[Standing], name: str) -> Any:
    """The definition, in numpy; weights of GoSGD that stands still are powers of two."""
    weights = [each.peer.weight for each in standing]
    values = [each.model.state_dict()[name].detach().numpy() for each in standing]
    total = np.zeros(values[0].shape)
    for weight, value in zip(weights, values, strict=True):
        total += value.astype(np.float64) * weight
    return (total / np.sum(weights)).astype(values[0].dtype)


@pytest.mark.extended
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"shards": 3},
        {"protocol": ProtocolConfig(gossip_s=0.1, seek_s=0.05, inline_bytes_max=1, exact=True)},
        {
            "protocol": ProtocolConfig(
                gossip_s=0.1, seek_s=0.05, inline_bytes_max=1, shared_memory=False, wire="int8"
            )
        },
        {"rule": Scattered()},
    ],
    ids=["whole", "shards", "memory", "frames", "scattered"],
)
def test_the_average_of_a_swarm_that_stands_still_is_exact(changes: dict[str, Any]) -> None:
    with swarm(Net, **changes) as (first, others):
        every = [first, *others]
        before = [each.peer.stats().weight_units for each in every]
        states = [{n: v.clone() for n, v in each.model.state_dict().items()} for each in every]
        found = read_on(first)
        assert found.missing == ()
        assert found.weights == {each.peer.id: each.peer.weight for each in every}
        assert [each.peer.stats().weight_units for each in every] == before
        own = first.model.state_dict()
        assert list(found.state) == list(own)
        for name in ("first.weight", "first.bias", "tied.weight", "norm.running_mean"):
            np.testing.assert_array_equal(found.state[name].numpy(), expected(every, name))
            assert not torch.equal(found.state[name], own[name])
        for name in ("frozen.weight", "norm.num_batches_tracked"):
            assert torch.equal(found.state[name], own[name])
        for each, state in zip(every, states, strict=True):
            assert all(torch.equal(v, state[n]) for n, v in each.model.state_dict().items())
            copies = 0 if each is first else each.peer._vector.schema.shards
            assert (each.peer.stats().counters.mixed, each.peer.stats().counters.refusals) == (
                copies,
                0,
            )
            assert each.peer.stats().queue == 0


def test_peers_that_average_at_the_same_time_answer_one_another() -> None:
    with swarm(Net, "b") as (first, others):
        found: dict[str, Average] = {}
        both = threading.Barrier(2)

        def once(standing: Standing) -> Callable[[], None]:
            def read() -> None:
                standing.before = lambda: None
                both.wait(LIMIT_S)
                found[standing.peer.id] = standing.peer.average(LIMIT_S)

            return read

        for each in (first, *others):
            each.before = once(each)
        until(lambda: len(found) == 2)
        assert [each.missing for each in found.values()] == [(), ()]
        one, other = found.values()
        assert all(torch.equal(one.state[name], other.state[name]) for name in ("first.weight",))


@pytest.mark.extended
def test_who_does_not_answer_in_time_is_named_and_counts_nothing() -> None:
    with swarm(Net, "bc") as (first, others):
        busy, halted = threading.Event(), threading.Event()

        def halt() -> None:
            halted.set()
            busy.wait(LIMIT_S)

        others[0].before = halt
        assert halted.wait(LIMIT_S)
        try:
            found = Average(state={}, weights={})

            def has_answer_of_c() -> bool:
                nonlocal found
                found = read_on(first, timeout_s=0.5)
                return "c" in found.weights

            until(has_answer_of_c)
            assert found.missing == ("b",) and set(found.weights) == {"a", "c"}
            np.testing.assert_array_equal(
                found.state["first.bias"].numpy(), expected([first, others[1]], "first.bias")
            )
        finally:
            busy.set()
        others[0].before = lambda: None
        # What it showed too late was sent back: it may be asked again.
        until(lambda: not read_on(first).missing)


def test_the_average_while_all_train_moves_no_weight(tmp_path: Path) -> None:
    training = {"rule": GoSGD(p=0.5)}
    folders = {id: tmp_path / id for id in "wxyz"}
    first = Standing(Net(0), config("w", out=folders["w"], **training))
    assert first.inside.wait(LIMIT_S)
    joins = {"join": (first.peer.address or "",)}
    others = [Standing(Net(0), config(i, out=folders[i], **training, **joins)) for i in "xyz"]
    try:
        for _ in range(5):
            found = read_on(first)
            assert set(found.weights) | set(found.missing) >= {"w"}
            # Not so their sum: what one has pushed since it was read, another may be read with.
            assert all(0 <= weight <= 1.0 for weight in found.weights.values())
            assert sum(found.weights.values()) > 0
    finally:
        for each in (*others, first):
            each.end()
    told = audit(read_ledger(folder / "ledger.jsonl")[0] for folder in folders.values())
    assert told.balanced and told.in_flight == told.stranded == told.died == 0


def test_a_peer_that_has_left_has_no_average_and_one_alone_is_its_own() -> None:
    with Peer(Net(0), config("a")) as peer:
        alone = peer.average()
        assert alone.weights == {"a": 1.0} and alone.missing == ()
        own = peer._model.state_dict()
        assert all(torch.equal(value, own[name]) for name, value in alone.state.items())
        peer.leave()
        with pytest.raises(LocalProtocolError, match="left"):
            peer.average()


def test_the_average_is_measured_every_so_many_steps_by_the_first_alone(tmp_path: Path) -> None:
    measured: list[tuple[str, float]] = []

    def evaluating(id: str) -> dict[str, Any]:
        def evaluate(model: nn.Module) -> dict[str, float]:
            value = float(model.state_dict()["bias"][0])
            measured.append((id, value))
            return {"loss": value}

        return {"evaluate": evaluate, "evaluate_every": 3}

    def linear(value: float) -> nn.Linear:
        model = nn.Linear(2, 1)
        nn.init.constant_(model.bias, value)
        return model

    over = threading.Event()

    def second(join: str) -> None:
        other = linear(0.0)
        given = config("b", join=(join,), out=tmp_path / "b", log_every=1000)
        with Peer(other, given, **evaluating("b")) as peer:
            with torch.no_grad():
                other.bias.fill_(4.0)
            while not over.wait(0.001):
                peer.step()
            peer.leave()

    given = config("a", out=tmp_path / "a", log_every=1000)
    with Peer(linear(1.0), given, **evaluating("a")) as peer:
        peer.step(loss=1.0)
        thread = threading.Thread(target=second, args=(peer.address,))
        thread.start()
        while (1.0 + 4.0) / 2 not in [value for _, value in measured]:
            peer.step(loss=1.0)
            time.sleep(0.001)
        steps = peer.steps
        averaged = peer.stats().averaged
        assert averaged is not None and averaged.step == steps and steps % 3 == 0
        assert averaged.evaluation.loss == 2.5 and averaged.peers == 2
        over.set()
        while thread.is_alive():
            peer.step()
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
