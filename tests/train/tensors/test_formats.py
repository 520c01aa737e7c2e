"""Wire formats: numbers are written, read back and mixed in every format."""

import math
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rumor.gossip.wire.formats import INT8_BLOCK, Wire, parse_wire
from rumor.train.tensors import blocks
from rumor.train.tensors.wires import int8
from rumor.train.tensors.wires.formats import arrays_in, is_finite, mix, read, write

DENSE = ("bfloat16", "float16", "int8")
ALL = (*DENSE, "topk:0.1")
FLOATS = (torch.float32, torch.float64)

# Lengths around a cache line, a row of int8 and a block.
LENGTHS = (1, 15, 16, 17, 1023, 1024, 1025, 5000, blocks.BLOCK + 1, blocks.BLOCK + 1030)

finite_numbers = st.floats(-1e6, 1e6, width=32)


def room_for(wire: Wire, numbers: Tensor) -> Tensor:
    """A room full of ones, so that an unwritten byte shows."""
    name = str(numbers.dtype).removeprefix("torch.")
    size = wire.room_bytes(name, numbers.numel())
    return torch.full((size,), 255, dtype=torch.uint8)


def write_room(
    numbers: Tensor, wire: Wire, anchor: Tensor, *, sent: Tensor | None = None, seed: int = 0
) -> Tensor:
    room = room_for(wire, numbers)
    rng = np.random.default_rng(seed)
    assert write(room, numbers, wire, anchor=anchor, sent=sent, rng=rng)
    return room


def sample(n: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Numbers and a nearby anchor."""
    generator = torch.Generator().manual_seed(seed)
    anchor = torch.randn(n, dtype=dtype, generator=generator)
    return anchor + 0.01 * torch.randn(n, dtype=dtype, generator=generator), anchor


def bound(difference: Tensor, wire: Wire) -> Tensor:
    """Largest allowed error of each received number, float64."""
    size = difference.double().abs()
    if wire.name == "bfloat16":
        return size * 2**-8 + 1e-37
    if wire.name == "float16":
        return size * 2**-11 + 2**-25
    if wire.name == "int8":
        rows = torch.nn.functional.pad(size, (0, -size.numel() % INT8_BLOCK)).view(-1, INT8_BLOCK)
        largest = rows.amax(1).repeat_interleave(INT8_BLOCK)[: size.numel()]
        return largest / 127 * (1 + 1e-5) + 1.2e-38
    return torch.zeros_like(size)


def check_round_trip(numbers: Tensor, anchor: Tensor, wire: Wire) -> None:
    room = write_room(numbers, wire, anchor)
    found = read(room, wire, numbers.dtype, numbers.numel(), anchor=anchor)
    assert found.dtype == numbers.dtype
    # Besides the format's own error: the rounding of a difference and of a sum.
    slack = torch.finfo(torch.float32).eps * (numbers.double().abs() + anchor.double().abs())
    error = (found.double() - numbers.double()).abs()
    assert (error <= bound(numbers - anchor, wire) + 2 * slack).all()


@pytest.mark.extended
@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", LENGTHS)
def test_sample_numbers_are_read_within_the_error_bound(
    name: str, dtype: torch.dtype, n: int
) -> None:
    check_round_trip(*sample(n, dtype), parse_wire(name))


tiny_numbers = st.floats(-(2.0**-123), 2.0**-123, width=32)


@given(
    st.lists(st.tuples(finite_numbers, st.floats(-3e4, 3e4, width=32)), min_size=1)
    | st.lists(st.tuples(st.just(0.0), tiny_numbers), min_size=1)
)
def test_any_numbers_are_read_within_the_error_bound(pairs: list[tuple[float, float]]) -> None:
    anchor = torch.tensor([base for base, _ in pairs])
    numbers = torch.tensor([base + move for base, move in pairs])
    for name in DENSE:
        for dtype in FLOATS:
            check_round_trip(numbers.to(dtype), anchor.to(dtype), parse_wire(name))


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("n", [1, 1023, 3000])
def test_numbers_equal_to_the_anchor_are_read_exactly(name: str, n: int) -> None:
    anchor = sample(n)[1]
    anchor[0] = -0.0
    wire = parse_wire(name)
    found = read(write_room(anchor, wire, anchor), wire, anchor.dtype, n, anchor=anchor)
    assert torch.equal(found, anchor)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("n", [1, 17, 1025])
def test_padding_is_zeroed_and_an_equal_rng_writes_equal_bytes(name: str, n: int) -> None:
    numbers, anchor = sample(n)
    wire = parse_wire(name)
    sent = anchor.clone()
    first = write_room(numbers, wire, anchor, sent=sent)
    again = write_room(numbers, wire, anchor, sent=anchor.clone())
    assert torch.equal(first, again)
    for part in arrays_in(first, wire, n):
        stop = part.storage_offset() * part.itemsize + part.nbytes
        assert not first[stop : -(-stop // 64) * 64].any()


@pytest.mark.extended
@pytest.mark.parametrize("drawn", [False, True])
def test_rounding_is_unbiased_for_every_number(
    drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if drawn:
        # Takes the path of a GPU on the CPU.
        monkeypatch.setattr(Tensor, "is_cuda", True)
    numbers, wire, n_shares = sample(2100)[0], parse_wire("int8"), 2000
    anchor = torch.zeros_like(numbers)
    rng = np.random.default_rng(7)
    room, total = room_for(wire, numbers), torch.zeros(2100, dtype=torch.float64)
    for _ in range(n_shares):
        write(room, numbers, wire, anchor=anchor, rng=rng)
        total += read(room, wire, torch.float32, 2100, anchor=anchor) - numbers
    scale = bound(numbers, wire)
    parts = (numbers.double() / scale) % 1
    # Rounding up with probability p has the variance p (1 - p); a rare event needs some room.
    deviation = scale * (parts * (1 - parts) / n_shares).sqrt() + scale * 2 / n_shares
    assert ((total / n_shares).abs() < 5 * deviation).all()
    spread = (total / n_shares / deviation).std()
    assert 0.7 < spread < 1.2


@given(st.floats(2.0**-149, 1.5 * 2.0**127, width=32))
def test_no_code_exceeds_127_even_with_the_largest_noise(largest: float) -> None:
    numbers = torch.tensor([largest, -largest]).repeat(50)
    room, anchor = room_for(parse_wire("int8"), numbers), torch.zeros(100)
    noise = torch.full((100,), 1 - 2.0**-24)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int8, "_tabled", lambda rng, n: lambda block: noise)
        write(room, numbers, parse_wire("int8"), anchor=anchor, rng=np.random.default_rng(0))
    codes = room[:100].view(torch.int8)
    assert (codes[::2] >= 0).all() and (codes[1::2] <= 0).all()
    assert codes.min() >= -127


@pytest.mark.extended
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("dtype", "bad"), [*product(FLOATS, [math.nan, math.inf, -math.inf]), (torch.float64, 1e39)]
)
def test_writing_detects_a_non_finite_number_at_any_position(
    name: str, bad: float, dtype: torch.dtype
) -> None:
    """This includes numbers beyond the range of float32."""
    wire = parse_wire(name)
    for n, place in [(1, 0), (2000, 1999), (blocks.BLOCK + 5, 3), (blocks.BLOCK + 5, -1)]:
        numbers, anchor = sample(n, dtype)
        numbers[place] = bad
        rng = np.random.default_rng(0)
        sent = anchor.clone()
        room = room_for(wire, numbers)
        assert not write(room, numbers, wire, anchor=anchor, sent=sent, rng=rng)
        assert torch.equal(sent, anchor)


def test_float16_refuses_a_difference_beyond_its_range() -> None:
    anchor = torch.zeros(100)
    for move, fits in [(65504.0, True), (65519.0, True), (65520.0, False), (-1e6, False)]:
        numbers = torch.zeros(100)
        numbers[42] = move
        for name in ("float16", "bfloat16"):
            wire = parse_wire(name)
            room = room_for(wire, numbers)
            assert write(room, numbers, wire, anchor=anchor) == (fits or name == "bfloat16")
            assert is_finite(room, wire, 100) == (fits or name == "bfloat16")


def test_large_numbers_whose_squares_overflow_are_finite() -> None:
    numbers, anchor = torch.full((3000,), 60000.0), torch.zeros(3000)
    write_room(numbers, parse_wire("float16"), anchor)
    write_room(numbers * 1e30, parse_wire("bfloat16"), anchor)
    write_room(numbers * 1e30, parse_wire("int8"), anchor)
    write_room(numbers * 1e33, parse_wire("topk:0.1"), anchor, sent=-numbers * 1e33)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_difference_is_taken_before_it_is_narrowed(dtype: torch.dtype) -> None:
    anchor = torch.full((16,), 1e6, dtype=dtype)
    move = 0.0625 if dtype == torch.float32 else 1e-6
    for name in ("bfloat16", "float16", "int8"):
        wire = parse_wire(name)
        found = read(write_room(anchor + move, wire, anchor), wire, dtype, 16, anchor=anchor)
        assert ((found - anchor) / move - 1).abs().max() < 0.02


@pytest.mark.extended
@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("n", [17, 2500, blocks.BLOCK + 7])
def test_mixing_moves_the_target_by_a_fraction(
    name: str, dtype: torch.dtype, fraction: float, n: int
) -> None:
    numbers, anchor = sample(n, dtype)
    wire, target = parse_wire(name), sample(n, dtype, seed=1)[0]
    room = write_room(numbers, wire, anchor)
    before, bytes_before = target.clone(), room.clone()
    mix(target, room, wire, fraction, anchor=anchor)
    arrived = read(room, wire, dtype, n, anchor=anchor)
    assert torch.equal(room, bytes_before)
    if fraction in (0.0, 1.0):
        assert torch.equal(target, arrived if fraction else before)
    else:
        torch.testing.assert_close(target, before + fraction * (arrived - before))


@pytest.mark.parametrize("name", ["bfloat16", "int8"])
def test_threads_do_not_share_scratch_memory(name: str) -> None:
    wire = parse_wire(name)
    inputs = [sample(50_000, seed=seed) for seed in range(4)]
    alone = [write_room(numbers, wire, anchor) for numbers, anchor in inputs]

    def is_equal(index: int) -> bool:
        rooms = [write_room(inputs[index][0], wire, inputs[index][1]) for _ in range(10)]
        return all(torch.equal(room, alone[index]) for room in rooms)

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(is_equal, range(4)))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e38])
def test_received_numbers_are_refused_unless_finite(name: str, bad: float) -> None:
    numbers, anchor = sample(3000)
    wire = parse_wire(name)
    room = write_room(numbers, wire, anchor, sent=anchor.clone())
    assert is_finite(room, wire, 3000)
    # The last array has the numbers themselves, or scales, which must be finite times 127.
    arrays_in(room, wire, 3000)[-1][-1] = bad
    fits = bad == 1e38 and name in ("bfloat16", "topk:0.1")
    assert is_finite(room, wire, 3000) is fits


@pytest.mark.parametrize("move", [3.0, -3.0, 1e-30, -65504.0])
def test_int8_carries_a_constant_move_without_noise(move: float) -> None:
    numbers, anchor = torch.full((3000,), move), torch.zeros(3000)
    wire = parse_wire("int8")
    for seed in range(20):
        room = write_room(numbers, wire, anchor, seed=seed)
        found = read(room, wire, numbers.dtype, 3000, anchor=anchor)
        assert (found - move).abs().max() <= abs(move) / 127 * 1.001
        assert (found == found[0]).float().mean() > 0.99
