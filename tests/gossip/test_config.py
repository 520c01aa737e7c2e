"""Settings out of range are refused with the field, the value and what is allowed."""

from typing import Any

import numpy as np
import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gossip_s": 0.0}, "gossip_s is 0.0: it must be above 0"),
        ({"staged_max": -1}, "staged_max is -1: it must be an integer of at least 1"),
        ({"dead_s": float("nan")}, "dead_s is nan: it must be above 0"),
        (
            {"window_bytes": 10, "frame_bytes": 20, "frame_bytes_min": 20, "frame_bytes_max": 20},
            "window_bytes is 10: it must hold a frame of 20",
        ),
        ({"frame_bytes": 20}, "frame_bytes is 20: it must be from 65536 to 2097152"),
        ({"frame_bytes_max": 70_000}, "frame_bytes is 1048576: it must be from 65536 to 70000"),
        ({"bandwidth_bytes_s": 0.0}, "bandwidth_bytes_s is 0.0: it must be above 0"),
        ({"shards_per_push": 0}, "shards_per_push is 0: it must be an integer of at least 1"),
        ({"shard_order": "backwards"}, "shard_order is 'backwards': it must be round-robin or"),
        ({"wire": "int4"}, "unknown wire 'int4', did you mean 'int8'"),
        ({"wire": "int8", "exact": True}, "wire is 'int8': with exact it must be float32"),
        ({"query_s_max": 0.1}, "query_s_max is 0.1: it must be at least 0.25"),
    ],
)
def test_a_setting_out_of_range_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ProtocolConfig(**settings)


def test_numbers_of_numpy_become_pythons() -> None:
    config = ProtocolConfig(
        merge_rounds=np.int64(3),  # type: ignore[arg-type]
        stall_s=np.float32(2),  # type: ignore[arg-type]
        exact=np.bool_(True),  # type: ignore[arg-type]
    )
    kept = config.merge_rounds, config.stall_s, config.exact
    assert kept == (3, 2.0, True) and [*map(type, kept)] == [int, float, bool]
