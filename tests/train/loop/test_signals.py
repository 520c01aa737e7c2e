"""A peer in a user's own loop, whose process receives a signal."""

import os
import signal
import threading
from pathlib import Path
from typing import Any, NoReturn

import pytest
from torch import nn

from rumor.gossip import TrainingError, audit
from rumor.gossip.transport.zmq_transport import Transport
from rumor.gossip.weight import ONE
from rumor.train import CheckpointConfig, Peer, PeerConfig
from rumor.train.loop.signals import SignalHandling
from rumor.train.storage.jsonl import read_metrics
from rumor.train.storage.ledger_file import read_ledgers

from ...forked import Forked, forked
from ...waiting import LIMIT_S, until


def handle(number: int, frame: object) -> NoReturn:
    raise TrainingError(f"signal {number}")


@pytest.mark.parametrize(
    ("number", "before", "error"),
    [
        # Without an earlier handler, the exit status is that of a killed process, as in shells.
        (signal.SIGTERM, signal.SIG_DFL, (SystemExit, "143")),
        (signal.SIGINT, signal.default_int_handler, (KeyboardInterrupt, "^$")),
        (signal.SIGUSR1, handle, (TrainingError, f"signal {signal.SIGUSR1}")),
    ],
)
def test_a_signal_saves_a_checkpoint_and_reaches_the_earlier_handler_once(
    number: int, before: Any, error: tuple[type[BaseException], str], tmp_path: Path
) -> None:
    earlier = signal.signal(number, before)
    kept = CheckpointConfig(folder=tmp_path, every="never")
    try:
        config = PeerConfig(linger_s=0, signals=True, checkpoint=kept)
        with Peer(nn.Linear(2, 1), config) as peer:
            peer.step()
            os.kill(os.getpid(), number)
            with pytest.raises(error[0], match=error[1]):
                peer.step()
            assert peer.stats().has_left
        assert list(tmp_path.glob("*.safetensors"))
        assert signal.getsignal(number) is before
    finally:
        signal.signal(number, earlier)


@pytest.mark.parametrize("enabled", [True, False])
def test_signal_handlers_are_optional_and_restored_after_the_block(enabled: bool) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with Peer(nn.Linear(2, 1), PeerConfig(linger_s=0, signals=enabled)):
        assert (signal.getsignal(signal.SIGTERM) != before[signal.SIGTERM]) is enabled
    assert {number: signal.getsignal(number) for number in before} == before


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    handling = SignalHandling(threading.Event())
    try:
        handling.install()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert handling.caught is None
    finally:
        handling.remove()
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_ends_the_search_for_a_swarm() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    config = PeerConfig(join=("tcp://127.0.0.1:9",), signals=True)
    peer = Peer(nn.Linear(2, 1), config)
    open_transport = peer._opens

    def open_after_signal(given: PeerConfig) -> Transport:
        # The signal handler is installed by now.
        os.kill(os.getpid(), signal.SIGTERM)
        return open_transport(given)

    peer._opens = open_after_signal
    try:
        with pytest.raises(SystemExit) as ended, peer:
            pass
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 128 + signal.SIGTERM


def test_signals_off_the_main_thread_are_unhandled_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    handling = SignalHandling(threading.Event())
    thread = threading.Thread(target=handling.install)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) == before
    assert "signals are not handled" in caplog.text


def test_a_repeated_signal_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    stop = threading.Event()
    handling = SignalHandling(stop)
    handling.install()
    try:
        signal.raise_signal(signal.SIGUSR1)
        assert stop.wait(LIMIT_S)
        # A launcher may forward what the system has sent to the whole group.
        signal.raise_signal(signal.SIGUSR1)
        assert sent == []
        monkeypatch.setattr("rumor.train.loop.signals._SAME_S", 0.0)
        signal.raise_signal(signal.SIGUSR1)
        assert sent == [(os.getpid(), signal.SIGUSR1)]
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    finally:
        handling.remove()


SCRIPT = """
import os, signal, sys, time
from pathlib import Path
from torch import nn
from rumor.train import CheckpointConfig, Peer, PeerConfig

def record(number, frame):
    received.append(number)

received, out = [], Path(os.environ["RUMOR_OUT"])
# Background jobs of a shell and their children ignore this signal.
signal.signal(signal.SIGINT, signal.default_int_handler)
if os.environ["EARLIER"]:
    signal.signal(signal.SIGUSR1, record)
kept = CheckpointConfig(folder=out / "kept", every="never")
try:
    with Peer(nn.Linear(8, 8), PeerConfig(checkpoint=kept, signals=True)) as peer:
        while not (out.parent / "over").exists() and not received:
            time.sleep(0.005)
            peer.step(loss=1.0)
except KeyboardInterrupt:
    sys.exit(77)
sys.exit(len(received))
"""


def start(folder: Path, id: str, earlier: str) -> Forked:
    (folder / "script.py").write_text(SCRIPT)
    variables = {"ID": id, "OUT": folder / id, "RENDEZVOUS": folder / "meet", "FOUNDERS": 2}
    variables |= {"RULE": "gosgd:p=0.5", "LOG_EVERY": 1, "LEAVE_S": LIMIT_S}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(f"RUMOR_{name}", str(value))
        patch.setenv("EARLIER", earlier)
        return forked(folder / f"{id}.log", str(folder / "script.py"))


def step_of(folder: Path) -> int:
    rows = read_metrics(folder / "metrics.jsonl")
    return rows[-1]["step"] if rows else 0


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.parametrize(
    ("number", "earlier", "status"),
    [
        # Without an earlier handler, the exit status is that of a killed process, as in shells.
        (signal.SIGTERM, "", 128 + signal.SIGTERM),
        # Python's own handler raises KeyboardInterrupt, which the script catches.
        (signal.SIGINT, "", 77),
        # The script's handler is called, and ends the loop.
        (signal.SIGUSR1, "yes", 1),
    ],
)
def test_a_signal_makes_a_peer_leave_and_other_peers_continue(
    tmp_path: Path, number: signal.Signals, earlier: str, status: int
) -> None:
    leaver, stayer = (start(tmp_path, id, earlier) for id in ("leaver", "stayer"))
    folders = tmp_path / "leaver", tmp_path / "stayer"
    try:
        until(lambda: min(map(step_of, folders)) >= 5, "5 steps of both")
        leaver.send_signal(number)
        assert leaver.wait(LIMIT_S) == status, (tmp_path / "leaver.log").read_text()
        steps = step_of(folders[1])
        until(lambda: step_of(folders[1]) > steps + 5, "more steps of the other peer")
        (tmp_path / "over").touch()
        assert stayer.wait(LIMIT_S) == 0, (tmp_path / "stayer.log").read_text()
    finally:
        leaver.kill()
        stayer.kill()
    gone, here = map(read_ledgers, folders)
    total = audit([*gone, *here])
    assert total.held == total.founded == 2 * ONE
    assert sum(account.weight for account in gone) == 0
    assert list((folders[0] / "kept").glob("*.safetensors"))
    line = f"{number.name}: this peer ends its step and leaves"
    assert line in (tmp_path / "leaver.log").read_text()
