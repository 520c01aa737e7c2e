"""Peers compare their models' schemas before anything else."""

import pytest

from rumor.gossip import Schema, TensorSpec
from rumor.gossip.schema import ALIGNMENT_BYTES, itemsize

WEIGHT = TensorSpec("weight", (3, 5), "float32")
COUNT = TensorSpec("count", (), "int64", shared=False)


def test_every_tensor_takes_whole_cache_lines() -> None:
    assert WEIGHT.size_bytes == 60
    assert WEIGHT.room_bytes == ALIGNMENT_BYTES
    assert TensorSpec("none", (0,), "float32").room_bytes == 0


def test_a_share_holds_the_shared_tensors_and_a_copy_all() -> None:
    schema = Schema((WEIGHT, COUNT))
    assert (schema.share_bytes, schema.copy_bytes) == (64, 128)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (Schema((WEIGHT, COUNT)), None),
        (
            Schema((WEIGHT,)),
            "tensor 1 is count () int64 (local) here and absent there",
        ),
        (
            Schema((TensorSpec("weight", (3, 5), "float16"), COUNT)),
            "tensor 0 is weight (3, 5) float32 here and weight (3, 5) float16 there",
        ),
    ],
)
def test_the_first_difference_is_named(other: Schema, difference: str | None) -> None:
    mine = Schema((WEIGHT, COUNT))
    assert mine.difference(other) == difference
    assert (mine.hash == other.hash) == (difference is None)


def test_only_known_dtypes_travel() -> None:
    assert itemsize("bfloat16") == 2
    assert itemsize("object") is None
