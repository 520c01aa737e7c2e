"""Presets of times: each is a valid one, and they come in order."""

from dataclasses import replace

import pytest

from rumor.gossip.config import TIMINGS, ProtocolConfig, timing
from rumor.gossip.errors import ConfigError

NAMES = ("local", "lan", "wan")


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_changes_fields_that_there_are_and_makes_a_valid_config(name: str) -> None:
    config = replace(ProtocolConfig(), **timing(name))
    assert timing(name) == {key: getattr(config, key) for key in timing(name)}
    assert config.gossip_s < config.suspect_s < config.dead_s
    assert config.suspect_s >= 3 * config.gossip_s, "a single lost heartbeat is no reason"
    assert config.found_s < config.found_alone_s
    assert name != "lan" or config == ProtocolConfig(), "what peers do unless told otherwise"


def test_the_wider_the_network_the_longer_the_patience() -> None:
    assert tuple(TIMINGS) == NAMES
    local, lan, wan = (replace(ProtocolConfig(), **timing(name)) for name in NAMES)
    for field in TIMINGS["local"].keys() | TIMINGS["wan"].keys():
        times = [getattr(config, field) for config in (local, lan, wan)]
        assert times == sorted(times), field
    assert (wan.suspect_s, wan.dead_s) == (3 * lan.suspect_s, 3 * lan.dead_s)
    with pytest.raises(ConfigError, match=r"unknown timing 'moon'\. Valid names: local, lan, wan"):
        timing("moon")
