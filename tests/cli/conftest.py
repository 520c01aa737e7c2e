"""Fixtures shared by tests of several commands."""

import json
from typing import Any

import pytest

from rumor.cli.commands import peer as peer_command
from rumor.train import PeerConfig
from rumor.train.config import RunConfig


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[RunConfig, PeerConfig]]:
    """Settings that ``rumor peer`` would run with; its options are saved as a peer saves them."""
    taken: list[tuple[RunConfig, PeerConfig]] = []

    def note(run_config: RunConfig, peer_config: PeerConfig, *_: object) -> dict[str, Any]:
        taken.append((run_config, peer_config))
        if peer_config.out is not None:
            peer_config.out.mkdir(exist_ok=True)
            (peer_config.out / "options.json").write_text(json.dumps(run_config.options))
        return {}

    monkeypatch.setattr(peer_command, "_run", note)
    return taken
