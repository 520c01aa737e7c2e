"""``rumor peer``: its options, and a whole run."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from rumor.train import PeerConfig
from rumor.train.config import RunConfig
from rumor.train.loop.signals import SignalHandling

from ..called import called

Configs = list[tuple[RunConfig, PeerConfig]]


def run_peer(*arguments: str) -> None:
    called("peer", *arguments, status=0)


FIRST = (
    "--task=quadratic",
    "--steps=70",
    "--set=seed=5",
    "--id=a",
    "--join=node-a:7700",
    "--rule=gosgd:p=0.3",
    "--set=shards=2",
    "--set=wire=int8",
    "--set=timing=wan",
    "--set=checkpoint_every=5min",
    "--bind=[::]:7700",
    "--bind=10.0.0.5:7701",
    "--set=advertise=a.example:1",
    "--set=advertise=b.example:2",
    "--set=total_steps=9000",
    "--set=lr_schedule=linear",
    "--set=journal",
)


def test_one_command_line_starts_and_resumes_a_peer(
    captured_configs: Configs, tmp_path: Path
) -> None:
    out = tmp_path / "a"
    again = (*FIRST, f"--set=rendezvous={tmp_path / 'r'}", f"--out={out}", "--resume")
    run_peer(*again)
    (out / "life.json").touch()
    run_peer(*again)
    (first, first_peer), (second, second_peer) = captured_configs
    rule = first_peer.make_rule()
    assert replace(second_peer, rule=rule) == replace(first_peer, rule=rule)
    assert second_peer.make_rule().p == 0.3  # type: ignore[attr-defined]
    assert (first.resume, first.journal) == (False, True)
    assert replace(first, resume=True, journal=False, options=None) == replace(second, options=None)
    assert second_peer.bind == ("tcp://[::]:7700", "tcp://10.0.0.5:7701")
    assert second_peer.advertise == ("tcp://a.example:1", "tcp://b.example:2")
    assert second_peer.protocol.dead_s == 90
    assert (second.total_steps, second.lr_schedule) == (9000, "linear")


def test_a_peer_that_only_dials_out_does_not_listen(captured_configs: Configs) -> None:
    run_peer("--bind=none")
    assert [peer.bind for _, peer in captured_configs] == [None]


@pytest.mark.live
def test_a_peer_finishes_and_resumes_with_more_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The command may change its own process, but a test must not change pytest's.
    monkeypatch.setattr(SignalHandling, "install", lambda self: None)
    monkeypatch.setattr(logging, "basicConfig", lambda **settings: None)
    monkeypatch.setattr("rumor.train.tensors.buffers.keep_pages", lambda **_: False)
    command = ["peer", "--task=quadratic", "--json", f"--out={tmp_path / 'a'}", "--resume"]
    for steps in (20, 30):
        report = json.loads(called(*command, f"--steps={steps}", status=0).stdout.splitlines()[-1])
        found = [report[name] for name in ("steps", "swarm_steps", "state")]
        assert found == [steps, steps, "finished"]
