"""The common part of the callbacks of all trainers, without any trainer."""

import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from rumor.gossip import ConfigError, GoSGD, ProtocolConfig, TransportError
from rumor.train import CheckpointConfig, PeerConfig
from rumor.train.integrations.guest import Guest, require_whole, settings_of

from ...waiting import LIMIT_S

pytestmark = pytest.mark.live

QUICK = ProtocolConfig(seek_s=0.05, found_alone_s=0.3)


def config(**settings: Any) -> PeerConfig:
    return settings_of(None, {"protocol": QUICK, "linger_s": 0.0} | settings)


def test_settings_override_fields_of_the_peer_config() -> None:
    own = {"join": "tcp://node-a:7700", "out": "a", "rule": GoSGD(p=0.25)}
    given = settings_of(PeerConfig(linger_s=3.0), own)
    assert isinstance(given.rule, GoSGD) and given.rule.p == 0.25
    assert (given.join, given.out, given.linger_s) == (("tcp://node-a:7700",), Path("a"), 3.0)
    assert settings_of(None, {"bind": None}).bind is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"joins": "tcp://a:1"}, "takes no 'joins', did you mean 'join'?"),
        ({"topolgy": "ring"}, "did you mean 'topology'?"),
        ({"xyz": 1}, "takes no 'xyz': it takes the fields of PeerConfig"),
        ({"linger_s": -1.0}, "linger_s is -1.0"),
        ({"checkpoint": CheckpointConfig(folder=Path("a"))}, "for loops of your own"),
    ],
)
def test_an_invalid_setting_is_refused_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings_of(None, settings)
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_a_model_must_be_whole_in_one_process() -> None:
    model: Any = nn.Linear(2, 2)
    with pytest.raises(ConfigError, match="start each process as a peer of its own"):
        require_whole(model, 2)
    model.hf_device_map = {"a": 0, "b": 1}
    with pytest.raises(ConfigError, match="load it without device_map"):
        require_whole(model, 1)
    model.hf_device_map = {"": 0}
    require_whole(model, 1)


def test_a_guest_steps_and_merges(tmp_path: Path) -> None:
    guest = Guest(config(out=tmp_path, log_every=1), signals=False)
    guest.end()
    with pytest.raises(ConfigError, match="saw no training begin"):
        guest.stepped()
    peer = guest.begin(nn.Linear(2, 2), 1, None)
    guest.about_to_step([{"lr": 0.1}, {"lr": 0.2}])
    assert not guest.stepped(loss=0.5, samples=32)
    guest.evaluated({"top1": torch.tensor(0.75), "other": 1.0}, "top1", "loss")
    guest.end()
    guest.evaluated({"top1": 0.1}, "top1", "loss")
    assert peer.steps == 1 and peer.merged is not None and not guest.is_inside
    report = json.loads((tmp_path / "peer.json").read_text())
    assert (report["state"], report["accuracy"]) == ("finished", 0.75)


def test_several_learning_rates_are_refused_if_the_rule_uses_the_rate() -> None:
    guest = Guest(config(rule="d2", founders=1), signals=False)
    guest.begin(nn.Linear(2, 2), 1, None)
    guest.about_to_step([{"lr": 0.1}, {"lr": 0.1}])
    assert not guest.stepped()
    with pytest.raises(ConfigError, match=r"'d2' goes by .* have 2, from 0\.1 to 0\.2: give all"):
        guest.about_to_step([{"lr": 0.1}, {"lr": 0.2}])
    guest.end()


@pytest.mark.extended
def test_beginning_again_starts_a_later_incarnation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guest, model = Guest(config(out=tmp_path)), nn.Linear(2, 2)
    first = guest.begin(model, 1, None)
    again = guest.begin(model, 1, {"steps": 7})
    assert first.stats().has_left and again.id == first.id and again.steps == 7
    assert "the peer of the time before leaves" in caplog.text
    assert again.state_dict()["incarnation"] > first.state_dict()["incarnation"]
    guest.end()


@pytest.mark.extended
def test_the_end_of_another_peer_can_end_training(monkeypatch: pytest.MonkeyPatch) -> None:
    guest = Guest(config())
    peer = guest.begin(nn.Linear(2, 2), 1, None)
    monkeypatch.setattr(type(peer), "ended_by", "peer-3")
    assert guest.stepped()
    guest.end()


@pytest.fixture
def received_signals() -> Any:
    """Signals that a handler of the script has received."""
    received: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: received.append(number))
    yield received
    signal.signal(signal.SIGUSR1, before)


def test_a_guest_leaves_after_a_signal_without_a_step(
    tmp_path: Path, received_signals: list[int]
) -> None:
    guest = Guest(config(out=tmp_path), signals=True)
    peer = guest.begin(nn.Linear(2, 2), 1, None)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert guest.was_called and guest.stepped()
    assert peer.steps == 0
    guest.end()
    assert peer.stats().has_left and received_signals == [signal.SIGUSR1]
    assert json.loads((tmp_path / "peer.json").read_text())["state"] == "left"


def test_signal_handling_follows_the_environment_by_default(
    monkeypatch: pytest.MonkeyPatch, received_signals: list[int]
) -> None:
    monkeypatch.setenv("RUMOR_SIGNALS", "1")
    ours = signal.getsignal(signal.SIGUSR1)
    for given, is_ours in ((None, False), (False, True)):
        guest = Guest(config(), signals=given)
        guest.begin(nn.Linear(2, 2), 1, None)
        assert (signal.getsignal(signal.SIGUSR1) is ours) is is_ours
        guest.end()
        assert signal.getsignal(signal.SIGUSR1) is ours


@pytest.mark.extended
def test_signal_handlers_are_restored_if_no_swarm_is_found(received_signals: list[int]) -> None:
    ours = signal.getsignal(signal.SIGUSR1)
    # No peer can listen on port 1.
    unreachable = config(join="tcp://127.0.0.1:1", join_timeout_s=0.2)
    with pytest.raises(TransportError):
        Guest(unreachable, signals=True).begin(nn.Linear(2, 2), 1, None)
    assert signal.getsignal(signal.SIGUSR1) is ours


SCRIPT = """
import sys
from torch import nn
from rumor.gossip import ProtocolConfig
from rumor.train.integrations.guest import Guest, settings_of

protocol = ProtocolConfig(seek_s=0.05, found_alone_s=0.3)
guest = Guest(settings_of(None, {"protocol": protocol, "out": sys.argv[1]}))
guest.begin(nn.Linear(2, 2), 1, None)
guest.stepped()
if sys.argv[2] == "raise":
    raise RuntimeError("out of memory")
"""


@pytest.mark.extended
@pytest.mark.parametrize(
    ("how", "state", "error"),
    [
        ("raise", "failed", "RuntimeError: out of memory"),
        ("return", "failed", "SystemExit: the process ended while training"),
    ],
)
def test_a_process_that_ends_during_training_reports_a_failure(
    tmp_path: Path, how: str, state: str, error: str
) -> None:
    script = [sys.executable, "-c", SCRIPT, str(tmp_path), how]
    done = subprocess.run(script, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == (how == "raise"), done.stderr
    report = json.loads((tmp_path / "peer.json").read_text())
    assert (report["state"], report["error"]) == (state, error), done.stderr


@pytest.mark.parametrize(
    ("module", "absent", "extra"),
    [
        ("transformers", ("transformers",), "transformers"),
        ("lightning", ("lightning.pytorch", "pytorch_lightning"), "lightning"),
    ],
)
def test_a_callback_without_its_library_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, module: str, absent: tuple[str, ...], extra: str
) -> None:
    name = f"rumor.train.integrations.{module}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    for each in absent:
        monkeypatch.setitem(sys.modules, each, None)
    with pytest.raises(ImportError, match=rf"pip install -e '\.\[{extra}\]'"):
        import_module(name)


def test_lightning_may_be_installed_as_pytorch_lightning(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "rumor.train.integrations.lightning"
    other: Any = ModuleType("pytorch_lightning")
    other.Callback = type("Callback", (), {})
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.setitem(sys.modules, "pytorch_lightning", other)
    try:
        assert issubclass(import_module(name).RumorCallback, other.Callback)
    finally:
        sys.modules.pop(name, None)
