"""Settings that the peer of a script takes from the environment."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from rumor.gossip import DPSGD, ConfigError, GoSGD
from rumor.train import Peer, PeerConfig, environment
from rumor.train.runtime.script.environment import resolve_config

VARIABLES = {
    "RUMOR_ID": "anna",
    "RUMOR_RULE": "sgp",
    "RUMOR_SEED": "7",
    "RUMOR_OUT": "somewhere",
    "RUMOR_INDEX": "1",
    "RUMOR_COUNT": "3",
    "RUMOR_DEVICE": "cpu",
    "RUMOR_SIGNALS": "1",
    "RUMOR_REMOTE_STOP": "0",
    "RUMOR_KEY": "m1.key",
    "RUMOR_ROSTER": "/etc/roster.json",
    "RUMOR_FROZEN_MAY_DIFFER": "1",
    "RUMOR_JOIN": "tcp://node-a:7700, tcp://node-b:7700",
    "RUMOR_WIRE": "float16",
    "RUMOR_DEAD_S": "7",
    "RUMOR_METRICS_PORT": "9101",
}


def test_a_peer_reads_its_settings_from_the_environment() -> None:
    env = environment(VARIABLES)
    config = env.fill(PeerConfig())
    assert (config.id, config.rule, config.seed, config.signals) == ("anna", "sgp", 7, True)
    assert not config.remote_stop
    assert config.key == Path("m1.key").absolute()
    assert config.roster == Path("/etc/roster.json")
    assert config.join == ("tcp://node-a:7700", "tcp://node-b:7700")
    assert (config.protocol.wire, config.protocol.dead_s) == ("float16", 7.0)
    assert config.metrics_port == 9101 and config.frozen_may_differ
    assert config.out == Path("somewhere").absolute() == env.out
    assert (env.index, env.count, str(env.device)) == (1, 3, "cpu")


def test_settings_of_the_script_win_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    config = environment(VARIABLES).fill(PeerConfig(rule=GoSGD(p=0.5), id="berta"))
    assert config.id == "berta" and isinstance(config.rule, GoSGD)
    assert "RUMOR_RULE=sgp is not used" in caplog.text


def test_arguments_of_the_peer_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    rule = DPSGD()
    peer = Peer(nn.Linear(2, 1), PeerConfig(seed=3, signals=False, topology="star"), rule=rule)
    config = peer.config
    assert (config.rule, config.seed, config.signals, config.topology) == (rule, 3, False, "star")
    assert peer.id == "anna" and Peer(nn.Linear(2, 1), name="berta").id == "berta"
    with pytest.raises(ConfigError, match=r"rule is 'dpsgd': .* make_rule\('dpsgd'\)"):
        Peer(nn.Linear(2, 1), rule="dpsgd")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"SEED": "many"}, "RUMOR_SEED: seed=many: it must be an integer"),
        ({"SIGNALS": "yes"}, "signals=yes: it must be true or false"),
        ({"WIRE": "float8"}, "unknown wire 'float8'"),
        ({"DEAD_S": "0"}, "RUMOR_DEAD_S: dead_s=0: it must be above 0"),
        ({"RULE": "gosgd:p=2"}, "RUMOR_RULE: p is 2.0: it must be in [0, 1]"),
        ({"TOPOLGY": "1"}, "there is no such setting, did you mean 'RUMOR_TOPOLOGY'?"),
        ({"PROTOCOL": "1"}, "there is no such setting"),
        ({"JOIN": ""}, "RUMOR_JOIN is empty: unset it"),
        ({"SEED": ""}, "RUMOR_SEED is empty: unset it"),
        ({"RESUME": ""}, "RUMOR_RESUME is empty: unset it"),
        ({"INDEX": "2", "COUNT": "2"}, "RUMOR_INDEX is 2 and RUMOR_COUNT 2: "),
        ({"INDEX": "-1", "COUNT": "2"}, "RUMOR_INDEX is -1 and RUMOR_COUNT 2: "),
        ({"INDEX": "0", "COUNT": "0"}, "RUMOR_INDEX is 0 and RUMOR_COUNT 0: "),
    ],
)
def test_invalid_variables_are_named_in_the_error(variables: dict[str, str], message: str) -> None:
    prefixed = {f"RUMOR_{name}": text for name, text in variables.items()}
    with pytest.raises(ConfigError, match=re.escape(message)):
        environment(prefixed | {"RUMOR_CLUSTER": "none"}).fill(PeerConfig())


@pytest.mark.parametrize(
    ("config", "arguments"),
    [
        (None, {"topology": "exponential", "rule": "gosgd", "seed": 0, "signals": False}),
        (PeerConfig(topology="exponential", rule="gosgd", seed=0, signals=False), {}),
        (
            replace(replace(PeerConfig(), topology="exponential", rule="gosgd", seed=0), shards=2),
            {"signals": False},
        ),
    ],
)
def test_explicit_settings_win_even_if_they_equal_the_default(
    config: PeerConfig | None, arguments: dict[str, object]
) -> None:
    found = resolve_config(config, arguments, environment(VARIABLES | {"RUMOR_TOPOLOGY": "ring"}))
    settings = (found.topology, found.rule, found.seed, found.signals)
    assert settings == ("exponential", "gosgd", 0, False)
    assert (found.id, found.linger_s) == ("anna", 30.0)


def test_each_further_peer_of_a_process_has_its_own_ports_and_folders() -> None:
    places = {"RUMOR_BIND": "tcp://0.0.0.0:7700", "RUMOR_RENDEZVOUS": "/meet", "RUMOR_COUNT": "3"}
    env = environment(VARIABLES | places)
    first, name = env.of_swarm(None, [])
    assert name == "" and first == env
    second, name = env.of_swarm(None, [""])
    assert (name, second.fields["rendezvous"]) == ("swarm-2", Path("/meet/swarm-2"))
    assert second.fields["out"] == Path("somewhere/swarm-2").absolute()
    assert second.fields["join"] == ("tcp://node-a:7703", "tcp://node-b:7703")
    assert (second.fields["bind"], second.fields["metrics_port"]) == ("tcp://0.0.0.0:7703", 9104)
    named, name = env.of_swarm("fold", [])
    assert (name, named.fields["rendezvous"]) == ("fold", Path("/meet/fold"))
    assert named.fields["join"] == env.fields["join"]


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "checkpoints", "taken"])
def test_an_invalid_swarm_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"swarm is {name!r}")):
        environment(VARIABLES).of_swarm(name, ["taken"])


def test_tasks_of_a_scheduler_agree_on_the_ports_of_each_swarm() -> None:
    variables = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "MASTER_ADDR": "node-a"}
    variables |= {"MASTER_PORT": "29500", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1"}
    joined = [
        environment(variables | {"RANK": rank, "LOCAL_RANK": rank}).of_swarm(None, before)[0].placed
        for before in ([], ["", "swarm-2"])
        for rank in ("0", "1")
    ]
    assert joined[0]["join"] == joined[1]["join"] != joined[2]["join"] == joined[3]["join"]
