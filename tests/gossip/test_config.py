"""A setting out of range is refused with its field, value and range."""

from dataclasses import replace
from typing import Any

import pytest

from rumor.gossip import errors
from rumor.gossip.config import TIMINGS, ProtocolConfig, timing
from rumor.gossip.errors import ConfigError, DecodeError, RemoteProtocolError, RumorError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gossip_s": 0.0}, "gossip_s is 0.0: it must be above 0"),
        (
            {"window_bytes": 10, "frame_bytes": 20, "frame_bytes_min": 20, "frame_bytes_max": 20},
            "window_bytes is 10: it must hold a frame of 20",
        ),
        ({"frame_bytes": 20}, "frame_bytes is 20: it must be from 65536 to 2097152"),
        ({"frame_bytes_max": 70_000}, "frame_bytes is 1048576: it must be from 65536 to 70000"),
        ({"wire": "int4"}, "unknown wire 'int4', did you mean 'int8'"),
        ({"query_s_max": 0.1}, "query_s_max is 0.1: it must be at least 0.25"),
    ],
)
def test_a_setting_out_of_range_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ProtocolConfig(**settings)


NAMES = ("local", "lan", "wan")


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_sets_existing_fields_and_makes_a_valid_config(name: str) -> None:
    config = replace(ProtocolConfig(), **timing(name))
    assert timing(name) == {key: getattr(config, key) for key in timing(name)}
    assert config.gossip_s < config.suspect_s < config.dead_s
    assert config.suspect_s >= 3 * config.gossip_s, "a single lost heartbeat is not enough"
    assert config.found_s < config.found_alone_s
    assert name != "lan" or config == ProtocolConfig(), "the default"


def test_timeouts_grow_from_local_to_lan_to_wan() -> None:
    assert tuple(TIMINGS) == NAMES
    local, lan, wan = (replace(ProtocolConfig(), **timing(name)) for name in NAMES)
    for field in TIMINGS["local"].keys() | TIMINGS["wan"].keys():
        times = [getattr(config, field) for config in (local, lan, wan)]
        assert times == sorted(times), field
    assert (wan.suspect_s, wan.dead_s) == (3 * lan.suspect_s, 3 * lan.dead_s)
    with pytest.raises(ConfigError, match=r"unknown timing 'moon'\. Valid names: local, lan, wan"):
        timing("moon")


def test_every_error_is_a_rumor_error_and_remote_errors_name_the_sender() -> None:
    named = [getattr(errors, name) for name in errors.__all__ if name[0].isupper()]
    assert all(issubclass(error, RumorError) for error in named)
    assert issubclass(ConfigError, ValueError), "a setting out of range is a ValueError, too"
    assert RemoteProtocolError("too long", "a").sender == "a"
    assert DecodeError("not ours").sender is None
