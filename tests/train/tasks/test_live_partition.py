"""Samples that follow who is there: dealt anew by the swarm's clock, by each peer for itself."""

from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip import ConfigError
from rumor.gossip.wire.messages import Member, Phase
from rumor.train.tasks.data import make_loader
from rumor.train.tasks.live_partition import (
    Deal,
    Epoch,
    LiveBatches,
    LiveSampler,
    live_passes,
    seen_of,
    slice_bounds,
    training_of,
)
from rumor.train.tasks.partition import partition_module, split
from rumor.train.tasks.registry import load_task
from rumor.train.tasks.task import Task

NAMES = ("ada", "bob", "cyd", "dan", "eve")


def samplers(
    n: int, names: tuple[str, ...], *, batch: int = 4, epoch: int = 3
) -> list[LiveSampler]:
    found = []
    for name in names:
        sampler = LiveSampler(n, batch, seed=7, peer=name)
        sampler.deal(Deal(epoch, names, 10))
        found.append(sampler)
    return found


@given(st.integers(1, 60), st.integers(1, 5), st.integers(0, 9))
def test_peers_with_one_view_share_all_samples_and_no_two_have_the_same(
    n: int, count: int, epoch: int
) -> None:
    parts = [each.samples() for each in samplers(n, NAMES[:count], epoch=epoch)]
    everything = np.sort(np.concatenate(parts)).tolist()
    if count <= n:
        assert everything == list(range(n))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    else:
        # Nobody is without: several have the same one.
        assert set(everything) == set(range(n)) and all(len(part) == 1 for part in parts)


@given(st.integers(1, 40), st.integers(1, 50), st.integers(0, 12))
def test_each_pass_over_a_slice_takes_each_of_its_samples_once(
    n: int, batch: int, steps: int
) -> None:
    sampler = LiveSampler(n, batch, seed=1, peer="ada")
    sampler.deal(Deal(2, ("ada", "bob"), 5))
    mine = sampler.samples()
    batches = [sampler.batch(5 + step) for step in range(steps)]
    assert all(len(each) == min(batch, n) for each in batches)
    taken = np.concatenate([*batches, mine[:0]])
    for start in range(0, len(taken) - len(mine) + 1, len(mine)):
        assert set(taken[start : start + len(mine)].tolist()) == set(mine.tolist())
    counts = [int((taken == sample).sum()) for sample in mine]
    assert sampler.counts(steps).tolist() == counts


def test_any_step_can_be_asked_for_in_any_order() -> None:
    one, other = (samplers(50, NAMES[:2])[0] for _ in range(2))
    forwards = [one.batch(step).tolist() for step in range(10, 40)]
    backwards = [other.batch(step).tolist() for step in reversed(range(10, 40))]
    assert forwards == backwards[::-1]
    with pytest.raises(ConfigError, match="step is 9: it must be 10 or more"):
        one.batch(9)


def test_another_epoch_shuffles_anew_and_another_seed_too() -> None:
    slices = [each.samples().tolist() for each in samplers(100, NAMES, epoch=3)]
    assert slices != [each.samples().tolist() for each in samplers(100, NAMES, epoch=4)]
    other = LiveSampler(100, 4, seed=8, peer="ada")
    other.deal(Deal(3, NAMES, 10))
    assert other.samples().tolist() != slices[0]


def test_one_that_dies_leaves_its_samples_to_the_others_in_the_next_epoch() -> None:
    epoch = Epoch(n_samples=120, batch_size=10)
    sampler = LiveSampler(120, 10, seed=0, peer="bob")
    assert sampler.is_due(0)
    sampler.look(0, {"ada": 0, "bob": 0, "cyd": 0}, 0)
    assert len(sampler.samples()) == 40
    assert not sampler.is_due(epoch.n_samples // epoch.batch_size - 1) and sampler.is_due(12)
    # Cyd died after two steps, and is not in the view any more; its last word counts.
    dealt = sampler.look(12, {"ada": 5, "bob": 4}, 5)
    assert dealt == Deal(1, ("ada", "bob"), 5) and len(sampler.samples()) == 60
    assert sampler.seen is not None
    assert sampler.seen.as_row() == {
        "epoch": 0,
        "epoch_members": 3,
        "epoch_seen": 80 / 120,  # all of ada's and bob's, nothing that is known of cyd's
        "epoch_passes_min": 0.0,
        "epoch_passes_max": 1.25,
    }


def test_a_clock_that_is_behind_deals_nothing() -> None:
    sampler = LiveSampler(20, 10, seed=0, peer="ada")
    sampler.look(9, {}, 0)
    assert sampler.dealt == Deal(4, ("ada",), 0) and not sampler.is_due(3)


def test_how_much_was_seen_follows_from_everybodys_steps() -> None:
    dealt = Deal(0, ("ada", "bob"), 0)
    seen = seen_of(Epoch(100, 10), dealt, {"ada": 5, "bob": 7}, {"ada": 15, "bob": 9, "eve": 50})
    assert (seen.share, seen.passes_min, seen.passes_max) == (0.7, 0.4, 2.0)


def test_only_who_takes_steps_is_dealt_samples() -> None:
    class Sight:
        def live(self) -> tuple[Member, ...]:
            phases = (Phase.JOINING, Phase.TRAINING, Phase.FINISHED, Phase.TRAINING)
            return tuple(
                Member(id=id, incarnation=1, heartbeat=0, phase=phase, step=number)
                for number, (id, phase) in enumerate(zip(NAMES[:4], phases, strict=True))
            )

    assert training_of(Sight()) == {"bob": 1, "dan": 3}


class FakePeer:
    id = "bob"
    swarm_steps = 0

    def __init__(self) -> None:
        self.training = {"ada": 0, "bob": 0}

    def stats(self) -> "FakePeer":
        return self


def test_batches_for_a_loop_of_ones_own_follow_the_peer() -> None:
    peer = FakePeer()
    data = torch.utils.data.TensorDataset(torch.arange(40))
    batches = LiveBatches(peer, 40, 5, seed=3)
    loader = iter(torch.utils.data.DataLoader(data, batch_sampler=batches))
    first = torch.cat([batch[0] for batch in islice(loader, 4)])
    assert len(set(first.tolist())) == 20 and batches.seen is None
    peer.swarm_steps, peer.training = 8, {"bob": 4}
    second = torch.cat([batch[0] for batch in islice(loader, 8)])
    assert sorted(second.tolist()) == list(range(40))
    assert batches.dealt == Deal(1, ("bob",), 4)
    assert batches.seen is not None and batches.seen.share == 0.5


@pytest.mark.parametrize(
    "spec", ["live:0", "live:", "live:1.5", "live:-1", "live:x", "live:9999999"]
)
def test_a_number_of_passes_that_is_none_is_refused(spec: str) -> None:
    with pytest.raises(ConfigError, match=r"it must be an integer in \[1, 1e\+06\]"):
        live_passes(spec)
    with pytest.raises(ConfigError, match="passes="):
        split(spec, np.zeros(10), 2, seed=0)


def test_before_anything_is_dealt_everybody_has_all() -> None:
    assert [part.tolist() for part in split("live", np.zeros(3), 2, seed=0)] == [[0, 1, 2]] * 2
    assert partition_module("live:20") is None
    assert LiveSampler(4, 9, seed=0, peer="a").batch(0).tolist() != []


def test_sizes_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="batch_size is 0"):
        LiveSampler(4, 0, seed=0, peer="a")
    with pytest.raises(ConfigError, match="peer a has no samples"):
        LiveSampler(0, 1, seed=0, peer="a")


def test_a_loader_of_a_tasks_own_cannot_be_dealt_samples() -> None:
    task = Task(
        name="own",
        model=lambda: torch.nn.Linear(1, 1),
        train=lambda context: iter([(torch.ones(1, 1), torch.ones(1, 1))]),
        test=(torch.ones(1, 1), torch.ones(1, 1)),
        loss=torch.nn.functional.mse_loss,
        n_samples=1,
        lr=0.1,
        batch_size=1,
        steps=1,
    )
    with pytest.raises(ConfigError, match="task own has a loader of its own"):
        make_loader(
            task,
            task.split("live", 1, 0)[0],
            batch_size=1,
            seed=0,
            peer="a",
            device=torch.device("cpu"),
            passes=1,
        )


def test_nothing_is_prepared_ahead_of_what_is_dealt() -> None:
    task = load_task("digits", seed=0)
    samples = task.split("live", 1, 0)[0]
    loader = make_loader(
        task,
        samples,
        batch_size=8,
        seed=0,
        peer="ada",
        device=torch.device("cpu"),
        prefetch=4,
        passes=1,
    )
    assert loader.live is not None and samples is not None
    loader.live.deal(Deal(0, ("ada", "bob"), 0))
    loader.take(0)
    loader.live.deal(Deal(1, ("ada",), 1))
    assert len(loader.live.samples()) == len(samples)
    assert loader.samples(1).tolist() == loader.live.batch(1).tolist()
    loader.close()


def slice_of(n: int, members: str, peer: str) -> tuple[int, int]:
    return slice_bounds(n, tuple(members), peer)


def test_slices_lie_end_to_end() -> None:
    assert [slice_of(7, "abc", peer) for peer in "abc"] == [(0, 3), (3, 5), (5, 7)]
