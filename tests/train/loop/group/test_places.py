"""The processes that form one peer, and the part of the model that each process has."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import product
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.nn.parallel import DistributedDataParallel

from rumor.gossip import ConfigError, GoSGD, TrainingError
from rumor.gossip.errors import LocalProtocolError
from rumor.gossip.wire.formats import Form
from rumor.train import Peer, PeerConfig
from rumor.train.loop.group import rank_group
from rumor.train.loop.group.detection import ranks_of, require_placed
from rumor.train.loop.group.rank_group import meet
from rumor.train.loop.group.shared_model import OwnParts, Parts, SharedModel
from rumor.train.tensors.vector import Vector

from .processes import fake_process_group


class Holder(nn.Module):
    """A parameter, a frozen one, a counter, and statistics that differ in each process."""

    def __init__(self, trained: Tensor, frozen: Tensor, rank: int) -> None:
        super().__init__()
        self.trained = nn.Parameter(trained)
        self.frozen = nn.Parameter(frozen, requires_grad=False)
        self.register_buffer("seen", torch.tensor(7))
        self.register_buffer("mean", torch.full((3,), float(rank)))


def part_of(whole: Tensor, placements: tuple[Placement, ...], sizes: Any, at: Any) -> Tensor:
    """Return the part of a tensor that one process has."""
    for placement, size, index in zip(placements, sizes, at, strict=True):
        if isinstance(placement, Shard):
            chunks = whole.chunk(size, placement.dim)
            empty = whole.narrow(placement.dim, 0, 0)
            whole = chunks[index] if index < len(chunks) else empty
    return whole.clone(memory_format=torch.contiguous_format)


MESHES = [(2,), (3,), (2, 2), (3, 2)]

Drawn = tuple[tuple[int, ...], tuple[int, ...], tuple[Placement, ...]]
"""Shapes of a tensor and of a mesh, and how the tensor is placed on it."""


@st.composite
def placed(draw: st.DrawFn) -> Drawn:
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    mesh = draw(st.sampled_from(MESHES))
    kinds = st.sampled_from([Replicate(), *map(Shard, range(len(shape)))])
    return shape, mesh, tuple(draw(kinds) for _ in mesh)


class Spread:
    """A model of which each fake process has its part, and the whole model of the leader."""

    def __init__(self, drawn: Drawn, trained: Tensor, start: Tensor, **given: Any) -> None:
        self.shape, self.sizes, self.placements = drawn
        self.places_of_ranks = [*product(*map(range, self.sizes))]
        self.processes: list[tuple[Any, Parts]] = []
        for rank in range(len(self.places_of_ranks)):
            with self.process(rank):
                model = Holder(self.part(trained), self.part(-trained), rank)
                if rank == 0:
                    shared = SharedModel(model, ())
                    whole: Any = shared.module
                    whole.trained.data.copy_(start)
                    self.whole, self.vector = whole, Vector(whole, empty=shared.empty, **given)
                    self.places = shared.places(self.vector.layout)
                parts = Parts(model, self.places, shared.segments, leads=rank == 0)
                self.processes.append((model, parts))

    @contextmanager
    def process(self, rank: int) -> Iterator[None]:
        self.at = self.places_of_ranks[rank]
        coordinate = patch.object(DeviceMesh, "get_coordinate", lambda _: self.at)
        with fake_process_group(len(self.places_of_ranks), rank), coordinate:
            yield

    def part(self, whole: Tensor) -> Tensor:
        made: Tensor = DTensor.from_local(
            part_of(whole, self.placements, self.sizes, self.at),
            init_device_mesh("cpu", self.sizes),
            self.placements,
            run_check=False,
            shape=whole.shape,
            stride=whole.stride(),
        )
        return made

    def each(self) -> Iterator[tuple[int, Any, Parts]]:
        for rank, (model, parts) in enumerate(self.processes):
            with self.process(rank):
                yield rank, model, parts

    def has(self, tensor: Any, whole: Tensor) -> bool:
        return torch.equal(tensor.to_local(), part_of(whole, self.placements, self.sizes, self.at))


@settings(max_examples=8)
@given(placed())
@torch.no_grad()
def test_parts_of_all_processes_form_the_model_and_are_read_back(drawn: Drawn) -> None:
    trained = torch.arange(float(torch.Size(drawn[0]).numel())).view(drawn[0])
    spread = Spread(drawn, trained, torch.zeros_like(trained))
    for _, _, parts in spread.each():
        parts.write(everything=True)
    whole, uses = spread.whole, {place.name: place.use for place in spread.places}
    assert torch.equal(whole.trained, trained) and torch.equal(whole.frozen, -trained)
    assert uses == {"trained": "shared", "mean": "shared", "frozen": "constant", "seen": "local"}
    whole.trained.mul_(2)
    whole.frozen.zero_()
    for _, model, parts in spread.each():
        parts.read()
        assert spread.has(model.trained, 2 * trained) and spread.has(model.frozen, -trained)


@settings(max_examples=15)
@given(placed(), st.sampled_from(["float32", "bfloat16", "float16"]), st.sampled_from([0.3, 1.0]))
@torch.no_grad()
def test_parts_copy_and_mix_the_same_bits_as_the_whole_model(
    drawn: Drawn, wire: str, fraction: float
) -> None:
    torch.manual_seed(0)
    trained, start, form = torch.randn(drawn[0]), torch.randn(drawn[0]), Form(wire)
    spread = Spread(drawn, trained, start, keeps_anchor=form.needs_anchor())

    def ask(kind: str, share: Any, own: Any, before: Any = None) -> list[Any]:
        if before is not None:
            before()
        each = spread.each()
        return [getattr(parts, kind)(share if rank else own) for rank, _, parts in each]

    whole, vector, own = spread.whole, spread.vector, OwnParts(spread.processes[0][1], ask)
    layout, memory = vector.plan(form, 0), vector.memory
    host = memory.lend(layout.size_bytes).fill_(255)
    assert own.take(host, memory.segments.name_of(host), layout)
    whole.trained.copy_(trained)
    assert torch.equal(host, vector.snapshot(form=form))
    whole.trained.copy_(-trained)
    whole.mean.fill_(9.0)
    share = vector.snapshot(form=form)
    whole.trained.copy_(trained)
    whole.mean.fill_(0.0)
    assert own.mix(share, memory.segments.name_of(share), fraction, layout)
    vector.mix(share, fraction, form)
    for _, model, _ in spread.each():
        # For plain tensors, such as statistics, the values of the leader count.
        assert spread.has(model.trained, whole.trained) and torch.equal(model.mean, whole.mean)


def test_partial_placements_are_refused() -> None:
    with fake_process_group(2):
        spread = DTensor.from_local(
            torch.zeros(2), init_device_mesh("cpu", (2,)), [Partial()], run_check=False
        )
        with pytest.raises(TrainingError, match=r"w is placed as .*Shard.*Replicate"):
            require_placed("w", spread)


def test_a_group_is_found_from_the_model() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    assert ranks_of(model) == ()
    for size in (1, 2):
        with fake_process_group(size):
            assert ranks_of(model) == ()
            wrapped = nn.Sequential(DistributedDataParallel(model))
            assert ranks_of(wrapped) == tuple(range(size))[: 2 * (size - 1)]
            assert ranks_of(model, dist.group.WORLD) == ranks_of(wrapped)
            statistics = nn.SyncBatchNorm.convert_sync_batchnorm(deepcopy(model))
            if size > 1:
                with pytest.raises(TrainingError, match=r"waits for 2 processes in each step"):
                    ranks_of(statistics)
    with fake_process_group(4):
        whole = DistributedDataParallel(model)
        pair = dist.new_group([0, 1])
        with pytest.raises(TrainingError, match=r"processes 0, 1, 2, 3, and the model by 0, 1: "):
            ranks_of(whole, pair)
        assert ranks_of(DistributedDataParallel(model, process_group=pair)) == (0, 1)


def test_options_that_need_a_whole_model_are_refused() -> None:
    with fake_process_group(2):
        model = DistributedDataParallel(nn.Linear(2, 2))
        with pytest.raises(ConfigError, match=r"evaluate= needs a whole model"):
            Peer(model, evaluate=lambda _: {}, evaluate_every=1)
        with pytest.raises(ConfigError, match=r"layers= needs a whole model"):
            Peer(model, rule=GoSGD(layers=2))


def test_processes_that_make_no_peer_are_named() -> None:
    with fake_process_group(3):
        with pytest.raises(TrainingError, match=r"ranks 1, 2 made no Peer within 0 s"):
            meet((0, 1, 2), nn.Linear(2, 2), timeout_s=0)


def test_meeting_a_process_that_ends_before_connecting_times_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def register_rank_1(store: Any, keys: dict[int, str], timeout_s: float) -> None:
        store.set(keys[1], store.get(keys[0]))

    monkeypatch.setattr(rank_group, "_await", register_rank_1)
    with fake_process_group(2), pytest.raises(TrainingError, match="did not meet: timed out"):
        meet((0, 1), nn.Linear(2, 2), timeout_s=0.1)


@pytest.mark.live
def test_calls_after_the_end_of_a_group_are_refused() -> None:
    with fake_process_group(1):
        model: Any = fully_shard(nn.Linear(2, 2), mesh=init_device_mesh("cpu", (1,)))
        with Peer(model, PeerConfig(linger_s=0)) as peer:
            assert peer.model_state_dict().keys() == {"weight", "bias"}
        with pytest.raises(LocalProtocolError, match="the peer has ended"):
            peer.model_state_dict()
