"""Settings of the exchange: options, variables of peers, and values that a launch passes on."""

from pathlib import Path
from typing import Any

import pytest

from rumor.cli.settings.exchange import ExchangeConfig
from rumor.gossip.specs.parameter import typed
from rumor.train import PeerConfig
from rumor.train.config import RunConfig

from ..called import called
from ..launch.fakes import places_of

GIVEN: dict[str, Any] = {
    "shards": 8,
    "shards_per_push": 2,
    "memory_models": 2.5,
    "shared_memory": False,
    "dead_s": 77.0,
    "frozen_may_differ": True,
    "timing": "wan",
}
TYPED = [f"--set={name}={typed(value)}" for name, value in GIVEN.items()]


def test_options_reach_the_peer(captured_configs: list[tuple[RunConfig, PeerConfig]]) -> None:
    called("peer", *TYPED, "--set=eval_every=3", status=0)
    [(run_config, peer_config)] = captured_configs
    protocol = peer_config.protocol
    assert (peer_config.shards, protocol.shards_per_push) == (8, 2)
    assert peer_config.memory_models == 2.5
    assert not protocol.shared_memory
    # A given value takes precedence over a preset.
    assert (protocol.dead_s, protocol.found_alone_s) == (77, 90)
    assert run_config.eval_every == 3


@pytest.mark.parametrize("changes", [{}, GIVEN, {"wire": "int8"}])
def test_a_peer_reads_the_values_that_a_launch_passes_on(
    captured_configs: list[tuple[RunConfig, PeerConfig]],
    changes: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exchange = ExchangeConfig(**changes)
    place = places_of(tmp_path, peers=2, exchange=exchange, eval_every=3)[1]
    for name, value in place.variables.items():
        monkeypatch.setenv(name, value)
    called(*place.command, status=0)
    [(run_config, peer_config)] = captured_configs
    for name, value in exchange.settings().items():
        assert getattr(peer_config, name) == value
    assert run_config.eval_every == 3


def test_default_values_are_not_passed_on() -> None:
    assert ExchangeConfig().given() == {}
    assert ExchangeConfig(**GIVEN).given() == GIVEN
