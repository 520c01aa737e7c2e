"""What a peer can be told, and what is refused before anything starts."""

import logging
from pathlib import Path

import pytest

from rumor.gossip import ConfigError
from rumor.train import PeerConfig, RunConfig
from rumor.train.reach import advertised
from rumor.train.rendezvous import Rendezvous


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("id", "a b", "letters, digits"),
        ("bind", "nonsense", "HOST:PORT"),
        ("join", ("host:99999",), "port"),
        ("advertise", "host:*", "port"),
        ("founders", 0, "at least 1"),
        ("topology", "rng", "ring"),
        ("rule", "gossip", "gosgd"),
        ("linger_s", -1.0, "negative"),
        ("leave_s", -1.0, "negative"),
    ],
)
def test_a_peer_setting_out_of_range_is_named(field: str, value: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        PeerConfig(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", 0),
        ("batch_size", 0),
        ("log_every", 0),
        ("eval_every", -1),
        ("count", 0),
        ("lr", 0.0),
        ("lr", float("nan")),
        ("index", 1),
        ("step_s_min", -0.1),
        ("prefetch", -1),
    ],
)
def test_a_run_setting_out_of_range_is_named(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{field} is"):
        RunConfig(**{field: value})  # type: ignore[arg-type]


def test_an_id_is_drawn_where_none_is_given() -> None:
    config = PeerConfig()
    assert config.named() != config.named()
    assert PeerConfig(id="anna").named() == "anna"


def test_loopback_is_advertised_as_it_is() -> None:
    assert advertised(PeerConfig(), "tcp://127.0.0.1:5") == ("tcp://127.0.0.1:5",)


def test_an_advertised_address_stands_for_the_bound_one() -> None:
    config = PeerConfig(advertise="node-a:9")
    assert advertised(config, "tcp://127.0.0.1:5") == ("tcp://node-a:9",)


def test_a_loopback_peer_of_a_remote_swarm_only_dials_out() -> None:
    assert advertised(PeerConfig(join=("node-a:9",)), "tcp://127.0.0.1:5") == ()
    assert advertised(PeerConfig(bind=None), None) == ()


def test_listening_to_all_without_keys_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rumor"):
        (address,) = advertised(PeerConfig(bind="0.0.0.0:7700"), "tcp://0.0.0.0:7700")
    assert address.endswith(":7700") and "0.0.0.0" not in address
    assert "without keys" in caplog.text


def test_peers_find_one_another_through_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "meeting"
    one, two = Rendezvous(folder, "one"), Rendezvous(folder, "two")
    one.announce("tcp://127.0.0.1:1")
    two.announce("tcp://127.0.0.1:2")
    assert one.others() == ("tcp://127.0.0.1:2",)
    assert two.others() == ("tcp://127.0.0.1:1",)
