"""Settings out of range are refused with the field, the value and what is allowed."""

import pytest

from rumor.gossip import ConfigError, ProtocolConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gossip_s": 0.0}, "gossip_s is 0.0: it must be above 0"),
        ({"staged_max": -1}, "staged_max is -1: it must be above 0"),
        ({"dead_s": float("nan")}, "dead_s is nan: it must be above 0"),
        ({"window_bytes": 10, "frame_bytes": 20}, "window_bytes is 10: it must hold a frame of 20"),
        ({"query_s_max": 0.1}, "query_s_max is 0.1: it must be at least 0.25"),
    ],
)
def test_a_setting_out_of_range_is_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ProtocolConfig(**settings)  # type: ignore[arg-type]


def test_the_defaults_are_in_range() -> None:
    assert ProtocolConfig().window_bytes >= ProtocolConfig().frame_bytes
