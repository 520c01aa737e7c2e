"""Shares in the simulator: the bytes that a live vector sends, mixed as it mixes them."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rumor.gossip.types import stream
from rumor.gossip.wire.formats import Form
from rumor.sim.batched.parameters import ParameterMatrix
from rumor.sim.batched.steppers.stepper import WorkerCheckpoints
from rumor.sim.kernel.program import Combine, Cut, Keep, Mix, Operation, Release, Snapshot, Start
from rumor.train.tensors.vector import Vector

WIRES = ("float32", "bfloat16", "float16", "int8", "topk:0.1")
IDS = ("ada", "bob", "cyd")
SEED = 7


class Mixed(nn.Module):
    """Parameters of three dtypes, one of which every format leaves unconverted."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(40, 50)
        self.second = nn.Linear(30, 7).double()
        self.third = nn.Linear(9, 20).bfloat16()


def module() -> nn.Module:
    torch.manual_seed(SEED)
    return Mixed()


def rows(
    shards: int = 1, registers: tuple[str, ...] = (), *, scattered: bool = False
) -> ParameterMatrix:
    """Workers whose models have diverged from a common start."""
    cut: dict[str, Any] = {"shards": shards, "scattered": scattered}
    found = ParameterMatrix(module(), len(IDS), registers, **cut, ids=IDS, seed=SEED)
    for part in found.x:
        noise = torch.randn(part.shape, generator=torch.Generator().manual_seed(1))
        part += (noise / 10).to(part.dtype)
    return found


def live(
    workers: ParameterMatrix, *indices: int, wire: str = "float32", **settings: Any
) -> list[Vector]:
    """Vectors of live peers with the same start and the same current models as the workers."""
    found = []
    for index in indices:
        vector = Vector(module(), **settings, keeps_anchor=True, sends_topk=wire.startswith("topk"))
        for flat, value in zip(vector.flats, workers.row(index), strict=True):
            flat.copy_(value)
        found.append(vector)
    return found


def bits(parts: tuple[Tensor, ...]) -> bytes:
    return b"".join(part.contiguous().view(torch.uint8).numpy().tobytes() for part in parts)


@pytest.mark.parametrize(("shards", "scattered"), [(1, False), (5, False), (5, True)])
@pytest.mark.parametrize("wire", WIRES)
def test_a_worker_sends_and_mixes_like_a_live_peer_to_the_last_bit(
    wire: str, shards: int, scattered: bool
) -> None:
    workers = rows(shards, scattered=scattered)
    sender, receiver = live(workers, 1, 2, wire=wire, shards=shards, scattered=scattered)
    form = Form(wire)
    for number in range(2 * shards):
        shard, id = number % shards, 100 + number
        payload = sender.snapshot("x", form, shard, stream(SEED, "bob", f"rounding:{id}"))
        receiver.mix(payload, 0.3, form, shard)
        unfit = workers.shares.carry_out(
            [Snapshot(1, number, Cut("x", form, shard), id), Mix(2, number, 0.3), Release(number)]
        )
        assert not unfit
        assert bits(workers.row(2)) == bits(receiver.flats)
        assert bits(workers.row(1)) == bits(sender.flats)


@pytest.mark.parametrize("wire", [wire for wire in WIRES if not wire.startswith("topk")])
def test_several_registers_in_one_share_match_a_live_peer_to_the_last_bit(wire: str) -> None:
    workers = rows(registers=("y",))
    form, small = Form(wire, registers=2), [(1e-3, "x")]
    sender, receiver = live(workers, 0, 1, registers=("y",))
    sender.combine("y", small)
    payload = sender.snapshot(("x", "y"), form, 0, stream(SEED, "ada", "rounding:3"))
    receiver.combine("y", [(0.5, "x"), (2.0, (payload, form, 1))])
    receiver.combine("x", [(0.25, "x"), (0.75, (payload, form, 0)), (1.0, "y")])
    workers.shares.carry_out(
        [
            Combine(0, "y", ((1e-3, "x"),)),
            Snapshot(0, 0, Cut(("x", "y"), form), 3),
            Combine(1, "y", ((0.5, "x"), (2.0, (0, 1)))),
            Combine(1, "x", ((0.25, "x"), (0.75, (0, 0)), (1.0, "y"))),
            Release(0),
        ]
    )
    assert bits(workers.row(1)) == bits(receiver.flats)


def test_a_copy_may_include_registers() -> None:
    workers = rows(registers=("y",))
    cut = Cut(("x", "y"), Form(copy=True, registers=2))
    workers.shares.carry_out(
        [
            Combine(0, "y", ((2.0, "x"),)),
            Snapshot(0, 0, cut, 1),
            Combine(1, "y", ((1.0, (0, 1)),)),
            Mix(1, 0, 1.0),
            Mix(2, 0, 0.5),
            Release(0),
        ]
    )
    assert bits(workers.row(1)) == bits(workers.row(0)) != bits(workers.row(2))
    workers.shares.carry_out([Combine(2, "x", ((0.5, "y"),)), Combine(1, "x", ((0.5, "y"),))])
    assert bits(workers.row(1)) == bits(workers.row(0)) != bits(workers.row(2))


@pytest.mark.parametrize("scattered", [False, True])
def test_shards_cover_the_vector_without_overlap(scattered: bool) -> None:
    workers = rows(7, scattered=scattered)
    seen = [torch.zeros(part.shape[1]) for part in workers.x]
    for shard in range(7):
        for span in workers.spans(shard):
            count = span.of(seen)
            count += 1
            span.put(seen, count)
    assert all(bool((count == 1).all()) for count in seen)


@pytest.mark.extended
def test_freed_memory_is_reused_by_shares_of_the_same_kind() -> None:
    workers = rows(2)
    kinds = [Cut("x", Form(wire), shard) for wire in WIRES for shard in (0, 1)]
    kinds.append(Cut(("x", "x"), Form(registers=2)))
    kinds += [Cut("x", Form(wire, bare=True)) for wire in WIRES]
    for number in range(2000):
        cut = kinds[number % len(kinds)]
        is_mixed = cut.form.registers == 1 and not cut.form.bare
        mixes = [Mix(1, number, 0.1)] if is_mixed else []
        workers.shares.carry_out([Snapshot(0, number, cut, 1), *mixes, Release(number)])
    free = workers.shares._free
    assert len(free) == len(kinds) and all(len(rooms) == 1 for rooms in free.values())


@pytest.mark.parametrize("wire", [*WIRES, "topk2bit:0.1"])
def test_bare_shares_match_a_live_peer_to_the_last_bit(wire: str) -> None:
    workers, form = rows(registers=("y",)), Form(wire, bare=True)
    sender, receiver = live(workers, 0, 1, registers=("y",))
    for number in (3, 4):  # nothing is recorded as sent, so the second equals the first
        payload = sender.snapshot("x", form, 0, stream(SEED, "ada", f"rounding:{number}"))
        receiver.combine("x", [(1.0, "x"), (0.5, (payload, form, 0))])
        sender.combine("y", [(1.0, "y"), (0.5, (payload, form, 0))])
        operations: list[Operation] = [
            Snapshot(0, number, Cut("x", form), number),
            Combine(1, "x", ((1.0, "x"), (0.5, (number, 0)))),
            Combine(0, "y", ((1.0, "y"), (0.5, (number, 0)))),
            Release(number),
        ]
        assert not workers.shares.carry_out(operations)
    assert bits(workers.row(1)) == bits(receiver.flats)
    assert bits(workers._rows["y"][0]) == bits(sender._registers["y"])


def test_a_register_on_demand_belongs_to_one_worker() -> None:
    workers = rows(registers=("from/*",))
    register = workers._rows["from/ada"]
    workers.shares.carry_out([Combine(1, "from/ada", ((2.0, "x"), (1.0, "from/ada")))])
    assert isinstance(register, dict) and register.keys() == {1}
    assert bits(register[1]) == bits(tuple(2 * part for part in workers.row(1)))
    workers.shares.carry_out([Combine(1, "from/ada", ()), Combine(2, "from/ada", ())])
    assert register == {}


def test_a_register_on_demand_is_restored_with_its_worker() -> None:
    workers = rows(registers=("from/*",))
    workers.shares.begin_again = WorkerCheckpoints(workers._rows).carry_out
    set_both = [Combine(0, f"from/{name}", ((2.0, "x"),)) for name in ("ada", "bob")]
    workers.shares.carry_out([set_both[0], Keep(0), *set_both])
    expected = bits(workers._rows["from/ada"][0])
    workers.shares.carry_out([Combine(0, "from/ada", ((5.0, "x"),)), Start(0, kept=True)])
    assert bits(workers._rows["from/ada"][0]) == expected
    workers.shares.carry_out([Start(0, kept=False)])
    assert [isinstance(rows, dict) and rows for rows in workers._rows.values()] == [False, {}, {}]


@pytest.mark.parametrize("wire", WIRES[:-1])
@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize("shards", [1, 3])
def test_the_measured_distance_of_a_share_equals_the_effect_of_mixing(
    wire: str, shards: int, *, scattered: bool
) -> None:
    found = rows(shards, scattered=scattered)
    before = [part[1].double().clone() for part in found.x]
    for shard in range(shards):
        cut = Cut("x", Form(wire), shard)
        found.shares.carry_out([Snapshot(0, shard, cut, 1)])
    squares = [found.shares.distance(1, shard) ** 2 for shard in range(shards)]
    found.shares.carry_out([Mix(1, shard, 1.0) for shard in range(shards)])
    after = [part[1].double() for part in found.x]
    moved = sum(float((a - b).square().sum()) for a, b in zip(after, before, strict=True))
    assert sum(squares) == pytest.approx(moved, rel=1e-3)
