"""What a peer can be told, and what is refused before anything starts."""

import logging
from pathlib import Path
from typing import Any

import pytest

from rumor.gossip import ConfigError
from rumor.train import CheckpointConfig, PeerConfig
from rumor.train.config import RunConfig
from rumor.train.runtime.search import advertised


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("id", "a b", "letters, digits"),
        ("bind", "a/b", "HOST:PORT"),
        ("join", ("host:99999",), "port"),
        ("bind", ("127.0.0.1:*", "a/b"), "HOST:PORT"),
        ("advertise", ("host:*",), "port"),
        ("founders", 0, "at least 1"),
        ("topology", "rng", "ring"),
        ("rule", "gossip", "gosgd"),
        ("linger_s", -1.0, "at least 0"),
        ("leave_s", -1.0, "at least 0"),
    ],
)
def test_a_peer_setting_out_of_range_is_named(field: str, value: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        PeerConfig(**{field: value})  # type: ignore[arg-type]


def test_a_graph_that_the_rule_cannot_use_is_named() -> None:
    PeerConfig(rule="relaysgd", topology="ring", founders=2)
    PeerConfig(rule="relaysgd", topology="star", founders=9)
    with pytest.raises(ConfigError, match="topology is 'ring': rule 'relaysgd' needs a tree"):
        PeerConfig(rule="relaysgd", topology="ring", founders=3)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", 0),
        ("total_steps", 0),
        ("batch_size", 0),
        ("eval_every", -1),
        ("count", 0),
        ("lr", 0.0),
        ("lr", float("nan")),
        ("index", 1),
        ("step_s_min", -0.1),
    ],
)
def test_a_run_setting_out_of_range_is_named(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{field} is"):
        RunConfig(**{field: value})  # type: ignore[arg-type]


def test_a_checkpoint_setting_out_of_range_is_named() -> None:
    with pytest.raises(ConfigError, match="kept is 0"):
        CheckpointConfig(folder=Path("x"), kept=0)
    with pytest.raises(ConfigError, match="interval '0s' is malformed"):
        CheckpointConfig(folder=Path("x"), every="0s")


def test_where_lives_are_counted() -> None:
    checkpoint = CheckpointConfig(folder="a text")  # type: ignore[arg-type]
    assert PeerConfig().incarnation_folder is None
    assert PeerConfig(checkpoint=checkpoint).incarnation_folder == Path("a text")
    assert PeerConfig(checkpoint=checkpoint, out=Path("out")).incarnation_folder == Path("out")


def test_an_id_is_drawn_where_none_is_given() -> None:
    config = PeerConfig()
    assert config.named() != config.named()
    assert PeerConfig(id="anna").named() == "anna"


LOOPBACK = "tcp://127.0.0.1:5"
SEVERAL = (LOOPBACK, "tcp://10.0.0.5:6", "tcp://[2001:db8::7]:7")
GIVEN = ("tcp://node-a.example:9", "tcp://[2001:db8::7]:9")


@pytest.mark.parametrize(
    ("settings", "bound", "told"),
    [
        ({}, (LOOPBACK,), (LOOPBACK,)),
        ({"advertise": ("node-a.example:9", "[2001:db8::7]:9")}, (LOOPBACK,), GIVEN),
        # Of several addresses, those that others can reach.
        ({}, SEVERAL, SEVERAL[1:]),
        # A loopback peer of a remote swarm only dials out.
        ({"join": ("node-a:9",)}, (LOOPBACK,), ()),
        ({"bind": None}, (), ()),
    ],
)
def test_others_are_told_the_addresses_that_they_can_dial(
    settings: dict[str, Any], bound: tuple[str, ...], told: tuple[str, ...]
) -> None:
    assert advertised(PeerConfig(**settings), bound) == told


def test_one_address_may_be_given_as_a_text() -> None:
    assert PeerConfig(advertise="node-a:9").advertise == ("tcp://node-a:9",)


def test_listening_to_all_without_keys_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rumor"):
        (address,) = advertised(PeerConfig(bind="0.0.0.0:7700"), ("tcp://0.0.0.0:7700",))
    assert address.endswith(":7700") and "0.0.0.0" not in address
    assert "without keys" in caplog.text
