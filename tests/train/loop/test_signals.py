"""A peer in a loop of somebody's own, whose process gets a signal."""

import os
import signal
import threading
from pathlib import Path
from typing import Any, NoReturn

import pytest
from torch import nn

from rumor.gossip import TrainingError
from rumor.gossip.transport.zmq_transport import Transport
from rumor.train import CheckpointConfig, Peer, PeerConfig
from rumor.train.loop.signals import SignalHandling


def handle(number: int, frame: object) -> NoReturn:
    raise TrainingError(f"signal {number}")


@pytest.mark.parametrize(
    ("number", "before", "error"),
    [
        # Nobody handled it before: as shells tell of a process that a signal has ended.
        (signal.SIGTERM, signal.SIG_DFL, (SystemExit, "143")),
        (signal.SIGINT, signal.default_int_handler, (KeyboardInterrupt, "^$")),
        (signal.SIGUSR1, handle, (TrainingError, f"signal {signal.SIGUSR1}")),
    ],
)
def test_a_peer_that_leaves_by_a_signal_keeps_a_checkpoint_and_passes_it_on_once(
    number: int,
    before: Any,
    error: tuple[type[BaseException], str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
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
        told = f"{signal.Signals(number).name}: this peer ends its step and leaves"
        assert told in caplog.text
        assert signal.getsignal(number) is before
    finally:
        signal.signal(number, earlier)


@pytest.mark.parametrize("asked", [True, False])
def test_handlers_are_those_of_the_block_if_it_asks_and_put_back_after_it(asked: bool) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with Peer(nn.Linear(2, 1), PeerConfig(linger_s=0, signals=asked)):
        assert (signal.getsignal(signal.SIGTERM) != before[signal.SIGTERM]) is asked
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


def test_a_signal_while_a_peer_looks_for_its_swarm_ends_the_search() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    config = PeerConfig(join=("tcp://127.0.0.1:9",), signals=True)
    peer = Peer(nn.Linear(2, 1), config)
    opens = peer._opens

    def opens_and_is_called(given: PeerConfig) -> Transport:
        # By now the signal is handled.
        os.kill(os.getpid(), signal.SIGTERM)
        return opens(given)

    peer._opens = opens_and_is_called
    try:
        with pytest.raises(SystemExit) as ended, peer:
            pass
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 128 + signal.SIGTERM


def test_off_the_main_thread_signals_are_not_handled_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    handling = SignalHandling(threading.Event())
    thread = threading.Thread(target=handling.install)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) == before
    assert "signals are not handled" in caplog.text
