"""Top-k wires: the numbers that have moved most are chosen, written and mixed."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rumor.gossip.wire.formats import CHUNK, Wire, parse_wire
from rumor.train.tensors.blocks import BLOCK
from rumor.train.tensors.wires import topk
from rumor.train.tensors.wires.formats import is_finite, mix, read, write

# Tensors this large take a sample first.
LARGE = 4 * topk._SAMPLE + 1


def parts(room: Tensor, k: int) -> tuple[Tensor, Tensor]:
    half = room.numel() // 2
    return room[: 4 * k].view(torch.int32), room[half : half + 4 * k].view(torch.float32)


def send(numbers: Tensor, last: Tensor, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Write *numbers*; return the room, its indices and its values."""
    wire, n = parse_wire(name), numbers.numel()
    dtype = str(numbers.dtype).removeprefix("torch.")
    room = torch.empty(wire.room_bytes(dtype, n), dtype=torch.uint8)
    assert write(room, numbers, wire, sent=last)
    assert is_finite(room, wire, n)
    return room, *parts(room, wire.kept(n))


def expected(numbers: Tensor, last: Tensor, k: int) -> list[int]:
    """The sent positions by a full sort: the largest moves, ties by position."""
    moves = (numbers - last).abs().numpy()
    return sorted(np.argsort(-moves, kind="stable")[:k].tolist())


@given(
    st.lists(st.integers(-4, 4), min_size=1, max_size=200),
    st.sampled_from(["topk:0.001", "topk:0.1", "topk:0.5", "topk:1"]),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_the_largest_moves_are_sent_and_recorded(
    moves: list[int], name: str, dtype: torch.dtype
) -> None:
    last = torch.arange(len(moves), dtype=dtype)
    numbers, before = last + torch.tensor(moves, dtype=dtype), last.clone()
    _, indices, values = send(numbers, last, name)
    k = parse_wire(name).kept(len(moves))
    assert indices.tolist() == expected(numbers, before, k)
    assert values.tolist() == numbers[indices.long()].tolist()
    before[indices.long()] = numbers[indices.long()]
    assert torch.equal(last, before)


def distributions(n: int) -> dict[str, Tensor]:
    """Moves of many distributions, for a large tensor."""
    generator = torch.Generator().manual_seed(3)
    rows = torch.zeros(n)
    rows[1000:1400] = torch.randn(400, generator=generator)
    steps = torch.randint(0, 3, (n,), generator=generator).float()
    k, last = parse_wire("topk:0.01").kept(n), torch.arange(n).flip(0)
    # The sample sees only the large moves, and treats them as typical.
    sampled = torch.rand(n, generator=generator)
    sampled[:: n // topk._SAMPLE | 1] += 1
    few = {f"{missing} too few": (last < k - missing).float() for missing in (-1, 0, 1, 2)}
    return few | {
        "normal": torch.randn(n, generator=generator),
        "none": torch.zeros(n),
        "a few": rows,
        "all equal": torch.full((n,), 0.5),
        "three values": steps,
        "heavy tails": torch.randn(n, generator=generator) ** 9,
        "tiny": torch.full((n,), 1e-45),
        "sampled": sampled,
    }


@pytest.mark.parametrize("kind", distributions(LARGE))
@pytest.mark.parametrize("name", ["topk:0.0001", "topk:0.01", "topk:0.4", "topk:1"])
def test_a_large_tensor_sends_the_same_positions_as_a_full_sort(kind: str, name: str) -> None:
    numbers = distributions(LARGE)[kind]
    last = torch.zeros_like(numbers)
    _, indices, values = send(numbers, last, name)
    k = parse_wire(name).kept(LARGE)
    assert indices.tolist() == expected(numbers, torch.zeros(LARGE), k)
    assert torch.equal(values, numbers[indices.long()])


def test_a_gpu_chooses_the_same_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = distributions(LARGE)["normal"]
    found = []
    for is_cuda in (False, True):
        monkeypatch.setattr(Tensor, "is_cuda", is_cuda)
        found.append(send(numbers, torch.zeros_like(numbers), "topk:0.01")[0])
    assert torch.equal(*found)


def test_positions_in_every_block_count_from_the_tensor_start() -> None:
    numbers = torch.zeros(2 * BLOCK + 100)
    places = [5, BLOCK - 1, BLOCK, BLOCK + 7, 2 * BLOCK + 99]
    numbers[places] = torch.arange(1.0, 6.0)
    _, indices, values = send(numbers, torch.zeros_like(numbers), "topk:0.000008")
    assert indices.tolist() == places
    assert values.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_precision_lost_by_narrowing_counts_as_unsent() -> None:
    numbers = torch.tensor([0.5, 0.25, 1 / 3], dtype=torch.float64)
    last = torch.zeros_like(numbers)
    for _ in range(3):
        send(numbers, last, "topk:0.3")
    assert last.tolist() == [0.5, 0.25, float(np.float32(1 / 3))]
    _, indices, _ = send(numbers, last, "topk:0.3")
    assert indices.tolist() == [2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("n", [1, 100, LARGE])
def test_only_sent_numbers_are_mixed(dtype: torch.dtype, fraction: float, n: int) -> None:
    generator = torch.Generator().manual_seed(0)
    numbers, target = (torch.randn(n, dtype=dtype, generator=generator) for _ in range(2))
    room, indices, values = send(numbers, torch.zeros_like(numbers), "topk:0.1")
    plain = target.clone()
    places = indices.long()
    plain[places] += fraction * (values.to(dtype) - plain[places])
    mix(target, room, parse_wire("topk:0.1"), fraction)
    torch.testing.assert_close(target, plain)
    if fraction in (0.0, 1.0):
        assert torch.equal(target[places], values.to(dtype) if fraction else plain[places])


@pytest.mark.parametrize(
    "indices",
    [
        [-1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
        [0, 2, 3, 4, 5, 6, 7, 8, 9, 100],
        [0, 2, 2, 4, 5, 6, 7, 8, 9, 10],
        [5, 2, 3, 4, 6, 7, 8, 9, 10, 11],
        [0, 2**31 - 1, 3, 4, 5, 6, 7, 8, 9, 10],
        [0, -(2**31), 3, 4, 5, 6, 7, 8, 9, 10],
    ],
)
def test_invalid_positions_are_refused_and_do_no_harm(indices: list[int]) -> None:
    wire = parse_wire("topk:0.1")
    room, places, _ = send(torch.ones(100), torch.zeros(100), "topk:0.1")
    places.copy_(torch.tensor(indices))
    assert not is_finite(room, wire, 100)
    around = torch.zeros(300)
    mix(around[100:200], room, wire, 0.5)
    assert not around[:100].any() and not around[200:].any()


def chunked(numbers: Tensor, wire: Wire) -> Tensor:
    """A room with the largest numbers of each chunk, in two bits each."""
    dtype = str(numbers.dtype).removeprefix("torch.")
    n_bytes = wire.room_bytes(dtype, numbers.numel())
    room = torch.full((n_bytes,), 255, dtype=torch.uint8)
    assert write(room, numbers, wire)
    assert is_finite(room, wire, numbers.numel())
    return room


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "name", ["topk2bit:0.0001", "topk2bit:0.0156", "topk2bit:0.3", "topk2bit:1"]
)
@pytest.mark.parametrize("n", [1, 7, CHUNK, CHUNK + 1, 3 * CHUNK + 999])
def test_the_largest_numbers_keep_their_signs_and_mean_sizes(
    n: int, name: str, dtype: torch.dtype
) -> None:
    numbers = torch.randn(n, dtype=dtype, generator=torch.Generator().manual_seed(n))
    wire = parse_wire(name)
    found = read(chunked(numbers, wire), wire, dtype, n)
    assert int((found != 0).sum()) == wire.kept(n)
    for start in range(0, n, CHUNK):
        here, there = numbers[start : start + CHUNK], found[start : start + CHUNK]
        sent = there != 0
        if not bool(sent.all()):
            assert here[sent].abs().min() >= here[~sent].abs().max()
        assert torch.equal(here[sent].sign(), there[sent].sign())
        sizes = here[sent].abs().float()
        large = sizes > sizes.mean()
        for chosen in (large, ~large):
            if bool(chosen.any()):
                expected = torch.full((int(chosen.sum()),), float(sizes[chosen].mean()))
                torch.testing.assert_close(there[sent].abs().float()[chosen], expected)


def test_error_feedback_makes_up_for_the_loss_of_two_bits() -> None:
    """Received numbers add up to the target."""
    target = torch.randn(CHUNK, generator=torch.Generator().manual_seed(1))
    wire, received = parse_wire("topk2bit:0.1"), torch.zeros(CHUNK)
    for _ in range(120):
        received += read(chunked(target - received, wire), wire, torch.float32, CHUNK)
    assert (target - received).norm() < 0.01 * target.norm()


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_non_finite_chunks_are_neither_written_nor_accepted(bad: float) -> None:
    numbers, wire = torch.randn(CHUNK + 5), parse_wire("topk2bit:0.01")
    room = chunked(numbers, wire)
    room[-64:-60].view(torch.float32)[0] = bad
    assert not is_finite(room, wire, CHUNK + 5)
    numbers[CHUNK + 2] = bad
    assert not write(room, numbers, wire)


def test_invalid_positions_in_chunks_are_refused_and_do_no_harm() -> None:
    n, wire = CHUNK + 5, parse_wire("topk2bit:0.01")
    room = chunked(torch.randn(n), wire)
    room[:3] = room[3:6].clone()
    assert not is_finite(room, wire, n)
    room = chunked(torch.randn(n), wire)
    # The last position, which lies in the last chunk of five numbers.
    kept = wire.kept(n)
    assert kept % 2 == 0
    room[3 * kept // 2 - 1] = 255
    assert not is_finite(room, wire, n)
    assert len(read(room, wire, torch.float32, n)) == n
