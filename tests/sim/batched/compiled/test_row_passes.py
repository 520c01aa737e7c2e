"""One pass over rows gives torch's bits, in machine code or not."""

import numpy as np
import pytest
import torch

from rumor.sim.batched.compiled import row_passes
from rumor.sim.batched.compiled.row_passes import (
    RowPasses,
    over_models,
    over_vectors,
    rounds_as_torch,
)
from rumor.sim.batched.cores import Cores
from rumor.sim.kernel.fast_path.decisions.tables import MIX, RELEASE, SNAPSHOT

both = pytest.mark.parametrize("compiled", [False, True])


def test_it_rounds_as_torch_does_on_this_machine() -> None:
    assert rounds_as_torch()


@pytest.mark.parametrize(("compiled", "threads"), [(False, 1), (True, 1), (True, 3)])
def test_copies_and_mixes_are_those_of_torch(compiled: bool, threads: int) -> None:
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.standard_normal((5, 112), np.float32))
    theirs, held = x.clone(), {}
    passes = RowPasses(x.numpy(), over_models(compiled=compiled), Cores(threads))
    rows, fractions = [], []
    for slot in range(200):
        source, to, room, part = *rng.integers(5, size=2), slot % 90, float(rng.random())
        part = 1.0 if slot % 9 == 4 else part
        rows += [[SNAPSHOT, source, 0, slot, room, 1], [MIX, to, 0, slot, room, 0]]
        fractions += [0.0, part]
        held[slot] = theirs[source].clone()
        theirs[to].lerp_(held[slot], part)
        if slot < 150:
            rows.append([RELEASE, 0, 0, slot, room, 0])
            fractions.append(0.0)
            del held[slot]
        if slot % 7 == 0:
            passes.carry_out(np.array(rows), np.array(fractions))
            rows, fractions = [], []
    passes.carry_out(np.array(rows), np.array(fractions))
    passes.carry_out(np.empty((0, 6), np.int64), np.empty(0))
    passes.close()
    assert torch.equal(x, theirs)
    assert sorted(passes.left()) == sorted(held)
    assert all(
        torch.equal(torch.from_numpy(values), held[slot]) for slot, values in passes.left().items()
    )


@both
def test_shares_lie_close_together_however_many_rooms_they_pass_through(compiled: bool) -> None:
    x = np.arange(8.0).reshape(4, 2)
    passes = RowPasses(x, over_vectors(compiled=compiled))
    for room in range(1000):
        rows = [[SNAPSHOT, 0, 0, room, room, 1]]
        if room >= 3:
            rows += [[MIX, 1, 0, room - 3, room - 3, 0], [RELEASE, 0, 0, room - 3, room - 3, 0]]
        passes.carry_out(np.array(rows), np.array([0.0, 1.0, 0.0])[: len(rows)])
    assert sorted(passes.left()) == [997, 998, 999]
    assert len(passes._shares) < 100
    assert x[1].tolist() == [0.0, 1.0]


@both
def test_a_room_may_be_used_a_thousand_times_between_two_steps(compiled: bool) -> None:
    x = np.arange(8.0).reshape(4, 2)
    passes = RowPasses(x, over_vectors(compiled=compiled))
    turn = [[SNAPSHOT, 0, 0, 0, 0, 1], [MIX, 1, 0, 0, 0, 0], [RELEASE, 0, 0, 0, 0, 0]]
    for _ in range(3):
        passes.carry_out(np.array(1000 * turn), np.array(1000 * [0.0, 0.5, 0.0]))
    assert not passes.left() and x[1].tolist() == pytest.approx([0.0, 1.0])
    # No more rest than are let go within the operations that are done together.
    assert passes._n_places == passes._n_free < 100
    assert len(passes._free) >= passes._n_places


def test_machine_code_rounds_vectors_as_numpy_does() -> None:
    rng = np.random.default_rng(2)
    start = rng.standard_normal((6, 8))
    rows, fractions = [], []
    for slot in range(100):
        rows += [[SNAPSHOT, rng.integers(6), 0, slot, slot % 7, 1]]
        rows += [[MIX, rng.integers(6), 0, slot, slot % 7, 0], [RELEASE, 0, 0, slot, slot % 7, 0]]
        fractions += [0.0, 1.0 if slot % 10 == 0 else rng.random(), 0.0]
    found = []
    for compiled in (False, True):
        x = start.copy()
        passes = RowPasses(x, over_vectors(compiled=compiled))
        passes.carry_out(np.array(rows), np.array(fractions))
        found.append(x)
    assert not np.array_equal(found[0], start)
    assert np.array_equal(found[0], found[1])


def test_an_older_torch_mixes_one_row_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def lerp(*given: object) -> None:
        raise TypeError("no such signature")

    row_passes._takes_a_fraction_each.cache_clear()
    monkeypatch.setattr(torch, "_foreach_lerp_", lerp)
    assert not row_passes._takes_a_fraction_each()
    test_copies_and_mixes_are_those_of_torch(compiled=False, threads=1)
    row_passes._takes_a_fraction_each.cache_clear()
