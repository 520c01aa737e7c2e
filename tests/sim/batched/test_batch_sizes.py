"""Batch sizes of single workers, given as options."""

import pytest

from rumor.gossip import ConfigError
from rumor.sim.batched.batches import batch_sizes

IDS = ("peer-0", "peer-1", "3")


def test_workers_are_named_by_id_or_index_and_others_get_the_default() -> None:
    assert batch_sizes([], IDS, 32) == [32, 32, 32]
    assert batch_sizes(["1:8", " 3:128"], IDS, 32) == [32, 8, 128]


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        (["1"], "is not WORKER:N: write 3:128"),
        (["1:0"], "is not WORKER:N"),
        (["1:-3"], "is not WORKER:N"),
        (["1:many"], "is not WORKER:N"),
        ([":8"], "is not WORKER:N"),
        (["9:8"], "there is no worker 9, only 0 to 2, called peer-0 to 3"),
        (["1:8", "peer-1:16"], "names worker 1 twice"),
    ],
)
def test_an_invalid_batch_size_is_refused_with_its_option(texts: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        batch_sizes(texts, IDS, 32, "--set batch_sizes")
    assert str(caught.value).startswith("--set batch_sizes ")
