"""Formats and shards in simulated swarms: their effect on agreement and training."""

from typing import Any

import numpy as np
import pytest

from rumor.gossip import TrainingError
from rumor.gossip.errors import ConfigError
from rumor.sim import simulate
from rumor.sim.batched.vector_tasks import consensus

from .test_exactness import SETTINGS


@pytest.mark.extended
def test_a_push_of_all_shards_equals_a_push_of_the_whole_vector() -> None:
    """If no message is lost, each shard's weight moves like that of the whole vector."""
    settings = SETTINGS | {"network": "ideal", "latency_s": None, "p": 0.8, "steps": 20}
    whole = simulate(**settings)
    cut = simulate(**settings, shards=8, shards_per_push=8)
    assert cut.summary["model_digest"] == whole.summary["model_digest"]
    assert cut.summary["shards"] == 8 and whole.summary["shards"] == 1
    assert (cut.workers["weight_units"] == 8 * whole.workers["weight_units"]).all()
    assert np.allclose(cut.series["weight_quantiles"], whole.series["weight_quantiles"])


def test_a_difference_that_does_not_fit_into_its_format_ends_the_run() -> None:
    settings: dict[str, Any] = {"task": "digits", "workers": 3, "p": 1.0, "steps": 10, "lr": 3e6}
    with pytest.raises(TrainingError, match="diverged"):
        simulate(**settings, wire="float16")
    assert simulate(**settings, wire="bfloat16").summary["steps"] == 30
    values = np.array([[1e6] * 8, [0.0] * 8])
    with pytest.raises(TrainingError, match="does not fit"):
        simulate(task=consensus(values), workers=2, topology="ring", steps=20, wire="float16")


def test_memory_of_last_sent_values_is_counted() -> None:
    def wanted(wire: str) -> float:
        with pytest.raises(ConfigError) as refused:
            simulate(task="digits", workers=20_000, wire=wire, memory_gib=0.5)
        return float(str(refused.value).split("about ")[1].split(" GiB")[0])

    assert wanted("topk:0.1") > 1.1 * wanted("int8")
