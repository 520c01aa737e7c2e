"""Batches prepared ahead: the same ones, in the same order, and never too many."""

import threading
from concurrent.futures import wait
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from rumor.train import PeerConfig
from rumor.train.config import RunConfig
from rumor.train.loop.learner import Learner
from rumor.train.loop.trainer import run
from rumor.train.tasks.data import Loader, Sampler
from rumor.train.tasks.sources import SampledSource

from ...waiting import LIMIT_S

CPU = torch.device("cpu")
TRAIN = (torch.arange(40.0).reshape(20, 2), torch.arange(20))


class Watched(Sampler):
    """A sampler that notes what is asked of it, and may fail at a step."""

    def __init__(self, fails_at: int = -1) -> None:
        super().__init__(np.arange(20), 6, seed=1, peer="a")
        self.fails_at = fails_at
        self.asked: list[int] = []
        self.noted = threading.Condition()

    def batch(self, step: int) -> NDArray[np.int64]:
        with self.noted:
            self.asked.append(step)
            self.noted.notify_all()
        if step == self.fails_at:
            raise OSError("the disk is gone")
        return super().batch(step)

    def wait_for(self, step: int) -> None:
        with self.noted:
            assert self.noted.wait_for(lambda: step in self.asked, timeout=LIMIT_S)


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("rumor-loader")]


def loader(sampler: Sampler, prefetch: int, train: tuple[Tensor, Tensor] = TRAIN) -> Loader:
    return Loader(SampledSource(sampler, train), CPU, prefetch=prefetch)


@pytest.mark.parametrize("prefetch", [0, 1, 4])
@pytest.mark.parametrize("asks_first", [False, True])
def test_batches_are_those_of_the_sampler_however_many_are_prepared(
    prefetch: int, asks_first: bool
) -> None:
    expected, found = Watched(), loader(Watched(), prefetch)
    for step in range(15):
        samples = found.samples(step) if asks_first else None
        inputs, targets = found.take(step, samples)
        rows = torch.from_numpy(expected.batch(step))
        assert samples is None or np.array_equal(samples, rows)
        assert torch.equal(inputs, TRAIN[0][rows]) and torch.equal(targets, TRAIN[1][rows])
    found.close()


def test_no_more_are_prepared_than_was_said() -> None:
    sampler = Watched()
    ahead = loader(sampler, 3)
    ahead.take(0)
    sampler.wait_for(3)
    assert len(ahead._ahead) == 3 and not wait(ahead._ahead, timeout=LIMIT_S).not_done
    ahead.take(1)
    sampler.wait_for(4)
    assert len(ahead._ahead) == 3 and not wait(ahead._ahead, timeout=LIMIT_S).not_done
    assert sampler.asked == [0, 1, 2, 3, 4]
    ahead.close()


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_an_error_is_raised_at_the_step_that_needs_the_batch(prefetch: int) -> None:
    sampler = Watched(fails_at=2)
    ahead = loader(sampler, prefetch)
    ahead.take(0)
    if prefetch == 4:
        sampler.wait_for(2)
    ahead.take(1)
    for _ in range(2):
        with pytest.raises(OSError, match="the disk is gone"):
            ahead.take(2)
    ahead.close()


def test_one_that_is_closed_early_ends_its_thread_and_prepares_by_itself() -> None:
    sampler = Watched()
    ahead = loader(sampler, 2)
    ahead.take(0)
    assert threads()
    ahead.close()
    ahead.close()
    assert not threads() and not ahead._ahead
    assert torch.equal(ahead.take(1)[1], TRAIN[1][torch.from_numpy(Watched().batch(1))])


def test_one_that_was_never_asked_has_no_thread() -> None:
    ahead = loader(Watched(), 2)
    assert not threads()
    ahead.close()


def test_a_tensor_of_a_kind_of_its_own_is_read_when_it_is_due() -> None:
    class Noisy(Tensor):
        pass

    sampler = Watched()
    ahead = loader(sampler, 4, (TRAIN[0].as_subclass(Noisy), TRAIN[1]))
    ahead.take(0)
    assert sampler.asked == [0] and not threads()


@pytest.mark.parametrize("journal", [False, True])
@pytest.mark.parametrize("task", ["digits", "chars"])
def test_training_is_the_same_to_the_bit(task: str, journal: bool) -> None:
    models = []
    for prefetch in (0, 1, 4):
        learner = Learner(RunConfig(task=task, prefetch=prefetch, journal=journal), "a")
        learner.start()
        losses = [float(learner.step(learner.batch() if journal else None)) for _ in range(8)]
        learner.close()
        models.append((losses, learner.model.state_dict()))
    for losses, state in models[1:]:
        assert losses == models[0][0]
        assert all(torch.equal(state[name], tensor) for name, tensor in models[0][1].items())


@pytest.mark.live
def test_a_run_leaves_no_thread_behind(tmp_path: Path) -> None:
    report = run(RunConfig(steps=5, prefetch=2), PeerConfig(out=tmp_path))
    assert report.steps == 5 and not threads()
    learner = Learner(RunConfig(prefetch=2), "a")
    learner.step()
    assert len(threads()) == 1
    learner.close()
    assert not threads()
