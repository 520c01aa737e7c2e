"""Peers of several processes train as one process would, and with peers of other kinds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy

from rumor.gossip import GoSGD
from rumor.gossip.weight import ONE
from rumor.train import Peer, PeerConfig

from .processes import KINDS, layers, nodes, spread, values_of

pytestmark = pytest.mark.live

Send = Callable[[Any], None]


def batch(step: int, kind: str, rank: int) -> Tensor:
    """Return the rank's part of a batch of 12."""
    whole = torch.randn(12, 6, generator=torch.Generator().manual_seed(step))
    size = 1 if kind in ("plain", "tp") else KINDS[kind]
    return whole.chunk(size)[rank % size]


def descend(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor) -> None:
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()


def train_alone(rank: int, send: Send, *, kind: str, policy: str) -> None:
    policies: dict[str, dict[str, Any]] = {
        "offload": {"offload_policy": CPUOffloadPolicy(pin_memory=False)},
        "bfloat16": {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16)},
        "kept": {"reshard_after_forward": False},
    }
    given = policies.get(policy, {})
    # DistributedDataParallel begins with the model of rank 0.
    seed = rank if kind == "ddp" else 0
    ours, model = spread(layers(seed), kind, **given), spread(layers(seed), kind, **given)
    one, other = (torch.optim.AdamW(each.parameters(), lr=0.01) for each in (ours, model))
    whole = layers(0)
    alone = torch.optim.AdamW(whole.parameters(), lr=0.01)
    with Peer(ours, PeerConfig(rule=GoSGD(p=0.0))) as peer:
        for step in range(8):
            descend(ours, one, batch(step, kind, rank))
            descend(model, other, batch(step, kind, rank))
            descend(whole, alone, batch(step, "plain", 0))
            ours(batch(0, kind, rank))  # leaves parameters gathered
            peer.step()
        peer.merge()
        found = values_of(ours)
    send((found, values_of(model), values_of(whole), values_of(ours)))


@pytest.mark.extended
@pytest.mark.parametrize(
    ("kind", "policy"),
    [("ddp", ""), ("fsdp3", ""), ("hsdp", ""), ("tp", "")]
    + [("fsdp", policy) for policy in ("offload", "bfloat16", "kept")],
)
def test_a_group_without_exchange_trains_as_without_a_peer(
    tmp_path: Path, kind: str, policy: str
) -> None:
    with nodes() as make:
        node = make(kind, train_alone, tmp_path / "meet", policy=policy)
        for found, without, alone, left in node.receive_all():
            assert found == without == left
            if policy != "bfloat16":  # one process computes in float32
                assert found == pytest.approx(alone, abs=1e-6)
        assert set(node.end()) == {0}


def take_part(
    rank: int,
    send: Send,
    *,
    kind: str,
    index: int,
    join: str = "",
    lr: float = 0.05,
    device: str = "cpu",
) -> None:
    model = spread(layers(index), kind, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    config = PeerConfig(id=f"{index}-{kind}", rule=GoSGD(p=0.5), join=join or ())
    steps = mixed = 0
    with Peer(model, config) as peer:
        send((peer.address, values_of(model)))
        plain = layers(9).to(device)
        while steps < 10 or mixed < 3:
            steps += len(peer.members) > 1
            descend(model, optimizer, batch(peer.steps, kind, rank).to(device))
            before = values_of(model)
            peer.step()
            now = values_of(model)
            mixed += before != now and len(peer.members) > 1
            # The model computes with the parameters that peers average.
            nn.utils.vector_to_parameters(torch.tensor(now, device=device), plain.parameters())
            inputs = batch(0, "plain", 0).to(device)
            assert torch.allclose(model(inputs), plain(inputs), atol=1e-5)
            if rank == 0:
                flat = peer.model_state_dict()
                kept = [n for t in flat.values() for n in t.reshape(-1).tolist()]
                assert kept == now
            else:
                assert not peer.model_state_dict()
        merged = peer.merge()
        send((bool(merged), peer.stats().weights, values_of(model)))


NEWCOMERS = dict(zip(KINDS, [*KINDS][1:] + [*KINDS][:1], strict=True))


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.extended] if kind != "ddp" else []) for kind in KINDS],
)
def test_peers_of_two_kinds_train_together(tmp_path: Path, kind: str) -> None:
    with nodes() as make:
        first = make(kind, take_part, tmp_path / "a", index=0, lr=0.0)
        (address, start), *_ = first.receive_all()
        second = make(NEWCOMERS[kind], take_part, tmp_path / "b", index=1, join=address)
        # A newcomer begins with the whole model, however it is divided.
        assert all(message[1] == start for message in second.receive_all())
        one, two = first.receive_all(), second.receive_all()
        assert all(message[0] for message in (*one, *two))
        assert sum(one[0][1]) + sum(two[0][1]) == ONE
        for ranks in (one, two):
            assert all(message[2] == ranks[0][2] for message in ranks)
        assert one[0][2] == pytest.approx(two[0][2], abs=1e-4)
        assert {*first.end(), *second.end()} == {0}


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["fsdp1", "ddp", "fsdp", "tp"])
def test_a_group_on_gpus_trains_with_a_plain_peer(tmp_path: Path, kind: str) -> None:
    if torch.cuda.device_count() < KINDS[kind]:
        pytest.skip(f"needs {KINDS[kind]} CUDA devices")
    with nodes() as make:
        first = make(kind, take_part, tmp_path / "a", index=0, lr=0.0, device="cuda")
        (address, start), *_ = first.receive_all()
        second = make("plain", take_part, tmp_path / "b", index=1, join=address)
        assert second.receive()[1] == start
        one, (two,) = first.receive_all(), second.receive_all()
        assert sum(one[0][1]) + sum(two[1]) == ONE
        assert one[0][2] == one[-1][2] == pytest.approx(two[2], abs=1e-4)
        assert {*first.end(), *second.end()} == {0}


class Counting(nn.Module):
    """Statistics, a frozen layer, and extra state."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.base = nn.Linear(6, 6).requires_grad_(False)
        torch.manual_seed(seed)
        self.norm, self.last = nn.BatchNorm1d(6), nn.Linear(6, 3)
        self.count = seed

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.last(self.norm(self.base(inputs)))
        return outputs

    def get_extra_state(self) -> int:
        return self.count

    def set_extra_state(self, state: int) -> None:
        self.count = state


def begin(rank: int, send: Send, *, kind: str, seed: int, join: str = "") -> None:
    model: Any = Counting(seed)
    if seed == 3:
        model.norm(torch.randn(5, 6))
    whole = model
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    elif kind == "fsdp":
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (KINDS[kind],))
        torch.distributed.fsdp.fully_shard(model, mesh=mesh)
    with Peer(model, PeerConfig(id=f"{seed}", join=join or (), rule=GoSGD(p=0.9))) as peer:
        while len(peer.members) < 2:
            if not join and rank == 0:
                send(peer.address)
                join = "sent"
            peer.step()
        # The donor sends its model during steps, which change nothing.
        norm, count = whole.norm, whole.count
        send((norm.running_mean.tolist(), int(norm.num_batches_tracked), count, values_of(model)))
        peer.merge()


@pytest.mark.extended
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_newcomer_gets_buffers_and_extra_state_in_all_processes(
    tmp_path: Path, kind: str
) -> None:
    with nodes() as make:
        first = make("fsdp", begin, tmp_path / "a", seed=3)
        second = make(kind, begin, tmp_path / "b", seed=4, join=first.receive())
        (message, *others) = first.receive_all() + second.receive_all()
        assert message[1:3] == (1, 3) and others == [message] * 3
        assert {*first.end(), *second.end()} == {0}
