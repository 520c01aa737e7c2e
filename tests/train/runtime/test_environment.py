"""What a script's peer takes from the environment, and what it keeps."""

from pathlib import Path

import pytest
from torch import nn

from rumor.gossip import ConfigError, GoSGD
from rumor.train import Peer, PeerConfig, environment

TOLD = {
    "RUMOR_ID": "anna",
    "RUMOR_RULE": "sgp",
    "RUMOR_SEED": "7",
    "RUMOR_OUT": "somewhere",
    "RUMOR_INDEX": "1",
    "RUMOR_COUNT": "3",
    "RUMOR_DEVICE": "cpu",
    "RUMOR_SIGNALS": "1",
    "RUMOR_NO_REMOTE_STOP": "1",
    "RUMOR_KEY": "m1.key",
    "RUMOR_ROSTER": "/etc/roster.json",
    "RUMOR_RECEIPTS": "1",
    "RUMOR_RECEIPTS_CHECK": "audit",
    "RUMOR_FROZEN_MAY_DIFFER": "1",
    "RUMOR_JOIN": "tcp://node-a:7700, tcp://node-b:7700",
    "RUMOR_PROTOCOL": '{"wire": "float16"}',
    "RUMOR_METRICS_PORT": "9101",
}


def test_an_empty_environment_changes_nothing() -> None:
    assert environment({}).fill(PeerConfig()) == PeerConfig()
    assert (environment({}).index, environment({}).count) == (0, 1)


def test_a_peer_finds_its_settings() -> None:
    told = environment(TOLD)
    config = told.fill(PeerConfig())
    assert (config.id, config.rule, config.seed, config.signals) == ("anna", "sgp", 7, True)
    assert config.no_remote_stop
    assert config.receipts and config.receipts_check == "audit"
    assert config.key == Path("m1.key").absolute()
    assert config.roster == Path("/etc/roster.json")
    assert config.join == ("tcp://node-a:7700", "tcp://node-b:7700")
    assert config.protocol.wire == "float16"
    assert config.metrics_port == 9101 and config.frozen_may_differ
    assert config.out == Path("somewhere").absolute() == told.out
    assert (told.index, told.count, str(told.device)) == (1, 3, "cpu")


def test_what_the_script_says_counts_and_that_is_told(caplog: pytest.LogCaptureFixture) -> None:
    config = environment(TOLD).fill(PeerConfig(rule=GoSGD(p=0.5), id="berta"))
    assert config.id == "berta" and isinstance(config.rule, GoSGD)
    assert "RUMOR_RULE=sgp is not used" in caplog.text


def test_arguments_of_the_peer_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TOLD.items():
        monkeypatch.setenv(name, value)
    peer = Peer(nn.Linear(2, 1), rule="dpsgd", seed=3, signals=False)
    assert (peer.config.rule, peer.config.seed, peer.config.signals) == ("dpsgd", 3, False)
    assert peer.id == "anna"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("RUMOR_SEED", "many", "RUMOR_SEED is 'many'"),
        ("RUMOR_SIGNALS", "yes", "RUMOR_SIGNALS is 'yes'"),
        ("RUMOR_FROZEN_MAY_DIFFER", "lora", "RUMOR_FROZEN_MAY_DIFFER is 'lora'"),
        ("RUMOR_PROTOCOL", '{"wyre": 1}', "RUMOR_PROTOCOL: ProtocolConfig has no field wyre"),
        ("RUMOR_PROTOCOL", "[", "RUMOR_PROTOCOL is"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("[", r"\[")):
        environment({name: value})
