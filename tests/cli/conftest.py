"""Fixtures shared by tests of several commands."""

import json
from typing import Any

import pytest

from rumor.cli.commands import peer as peer_command
from rumor.train import PeerConfig
from rumor.train.config import RunConfig


@pytest.fixture
def captured_configs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[RunConfig, PeerConfig]]:
    """Settings with which ``rumor peer`` would run; its options are saved as by a real peer."""
    captured: list[tuple[RunConfig, PeerConfig]] = []

    def capture(run_config: RunConfig, peer_config: PeerConfig, *_: object) -> dict[str, Any]:
        captured.append((run_config, peer_config))
        if peer_config.out is not None:
            peer_config.out.mkdir(exist_ok=True)
            (peer_config.out / "options.json").write_text(json.dumps(run_config.options))
        return {}

    monkeypatch.setattr(peer_command, "_run", capture)
    return captured
