"""Shares of whole vectors: copied out, mixed and released level by level, with torch's bits."""

import numpy as np
import pytest
import torch
from torch import Tensor

from rumor.sim.batched.cores import ONE_CORE, Threads
from rumor.sim.batched.shares import WholeShares, mix
from rumor.sim.kernel.program import WHOLE, Level, Program, Slot

both = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def vectors(dtype: torch.dtype = torch.float64, n: int = 5, width: int = 112) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(1), dtype=dtype)


def carry_out(shares: WholeShares, levels: list[Level]) -> None:
    for level in levels:
        shares.carry_out(level.rows, level.fractions)


@both
@pytest.mark.parametrize("threads", [1, 3])
def test_copies_and_mixes_match_torch(threads: int, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(1)
    x = vectors(dtype)
    theirs, held = x.clone(), dict[Slot, Tensor]()
    cores = Threads(threads)
    shares, program = WholeShares(x, cores), Program(5)
    for number in range(200):
        source, to = rng.integers(5, size=2).tolist()
        fraction = 1.0 if number % 9 == 4 else float(rng.random())
        slot = program.snapshot(source, WHOLE, 1)
        held[slot] = theirs[source].clone()
        program.mix(to, slot, fraction)
        theirs[to].lerp_(held[slot], fraction)
        if number < 150:
            program.let_go(slot)
            del held[slot]
        if number % 7 == 0:
            carry_out(shares, program.take())
    carry_out(shares, program.take())
    cores.close()
    assert torch.equal(x, theirs)
    assert all(torch.equal(shares.share(slot.number), values) for slot, values in held.items())


@both
def test_a_single_row_is_mixed_as_in_a_level(dtype: torch.dtype) -> None:
    x = vectors(dtype)
    for fraction in (1e-3, 0.3, 0.49999, 0.5, 0.7, 0.999, 1.0):
        alone = x[0].clone()
        mix(alone, x[1], fraction)
        shares, program = WholeShares(x.clone(), ONE_CORE), Program(5)
        slot = program.snapshot(1, WHOLE, 1)
        program.mix(0, slot, fraction)
        again = program.snapshot(0, WHOLE, 1)
        carry_out(shares, program.take())
        assert torch.equal(shares.share(again.number), alone)


def test_released_slots_are_reused() -> None:
    x = vectors(n=2)
    shares, program, held = WholeShares(x, ONE_CORE), Program(2), list[Slot]()
    for _ in range(1000):
        held.append(program.snapshot(0, WHOLE, 1))
        if len(held) > 3:
            program.mix(1, held[0], 1.0)
            program.let_go(held.pop(0))
        carry_out(shares, program.take())
    assert len(shares._block) < 100
    assert torch.equal(x[1], x[0])
    for slot in held:
        assert torch.equal(shares.share(slot.number), x[0])


def test_memory_grows_for_more_shares() -> None:
    x = vectors(n=2)
    shares, program = WholeShares(x, ONE_CORE), Program(2)
    slots = [program.snapshot(number % 2, WHOLE, 1) for number in range(300)]
    carry_out(shares, program.take())
    for number, slot in enumerate(slots):
        assert torch.equal(shares.share(slot.number), x[number % 2])
