"""Settings of a peer, which are checked before it starts."""

import logging
from pathlib import Path
from typing import Any

import pytest

from rumor.gossip import ConfigError
from rumor.train import CheckpointConfig, PeerConfig
from rumor.train.config import RunConfig
from rumor.train.runtime.search import advertised

HERE = {"folder": Path("x")}


@pytest.mark.parametrize(
    ("config", "settings", "says"),
    [
        (PeerConfig, {"id": "a b"}, "letters, digits"),
        (PeerConfig, {"bind": "a/b"}, "HOST:PORT"),
        (PeerConfig, {"join": ("host:99999",)}, "port"),
        (PeerConfig, {"bind": ("127.0.0.1:*", "a/b")}, "HOST:PORT"),
        (PeerConfig, {"advertise": ("host:*",)}, "port"),
        (PeerConfig, {"bind": 7700}, "bind is 7700: it must be an address, such as"),
        (PeerConfig, {"join": 7700}, "join is 7700: it must be an address"),
        (PeerConfig, {"advertise": ["a", 5]}, "it must be an address"),
        (PeerConfig, {"founders": 0}, "at least 1"),
        (PeerConfig, {"topology": "rng"}, "ring"),
        (PeerConfig, {"rule": "gossip"}, "gosgd"),
        (PeerConfig, {"linger_s": -1.0}, "at least 0"),
        (PeerConfig, {"leave_s": -1.0}, "at least 0"),
        (CheckpointConfig, {**HERE, "kept": 0}, "kept is 0"),
        (CheckpointConfig, {**HERE, "every": "0s"}, "interval '0s' is malformed"),
        (RunConfig, {"steps": 0}, "steps is"),
        (RunConfig, {"total_steps": 0}, "total_steps is"),
        (RunConfig, {"batch_size": 0}, "batch_size is"),
        (RunConfig, {"count": 0}, "count is"),
        (RunConfig, {"lr": 0}, "lr is"),
        (RunConfig, {"eval_every": -1}, "eval_every is"),
        (RunConfig, {"lr": float("nan")}, "lr is"),
        (RunConfig, {"index": 1}, "index is"),
        (RunConfig, {"step_s_min": -0.1}, "step_s_min is"),
    ],
)
def test_a_setting_out_of_range_is_named(config: Any, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        config(**settings)


def test_a_topology_that_the_rule_cannot_use_is_refused() -> None:
    PeerConfig(rule="relaysgd", topology="ring", founders=2)
    PeerConfig(rule="relaysgd", topology="star", founders=9)
    with pytest.raises(ConfigError, match="topology is 'ring': rule 'relaysgd' needs a tree"):
        PeerConfig(rule="relaysgd", topology="ring", founders=3)


def test_the_incarnation_folder_defaults_to_the_checkpoint_folder() -> None:
    checkpoint = CheckpointConfig(folder="a text")  # type: ignore[arg-type]
    assert PeerConfig().incarnation_folder is None
    assert PeerConfig(checkpoint=checkpoint).incarnation_folder == Path("a text")
    assert PeerConfig(checkpoint=checkpoint, out=Path("out")).incarnation_folder == Path("out")


def test_a_random_id_is_drawn_by_default() -> None:
    config = PeerConfig()
    assert config.named() != config.named()
    assert PeerConfig(id="anna").named() == "anna"
    assert PeerConfig(advertise="node-a:9").advertise == ("tcp://node-a:9",)


LOOPBACK = "tcp://127.0.0.1:5"
SEVERAL = (LOOPBACK, "tcp://10.0.0.5:6", "tcp://[2001:db8::7]:7")
GIVEN = ("tcp://node-a.example:9", "tcp://[2001:db8::7]:9")


@pytest.mark.parametrize(
    ("settings", "bound", "expected"),
    [
        ({}, (LOOPBACK,), (LOOPBACK,)),
        ({"advertise": ("node-a.example:9", "[2001:db8::7]:9")}, (LOOPBACK,), GIVEN),
        # Of several addresses, only those that other machines can reach.
        ({}, SEVERAL, SEVERAL[1:]),
        # A loopback peer of a remote swarm only dials out.
        ({"join": ("node-a:9",)}, (LOOPBACK,), ()),
        ({"bind": None}, (), ()),
    ],
)
def test_only_addresses_that_others_can_dial_are_advertised(
    settings: dict[str, Any], bound: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert advertised(PeerConfig(**settings), bound) == expected


def test_listening_on_all_interfaces_without_keys_warns(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rumor"):
        (address,) = advertised(PeerConfig(bind="0.0.0.0:7700"), ("tcp://0.0.0.0:7700",))
    assert address.endswith(":7700") and "0.0.0.0" not in address
    assert "without keys" in caplog.text
