"""Forked children of a peer's process neither end the peer nor are kept alive by it."""

import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from torch import nn

from rumor.gossip.errors import LocalProtocolError
from rumor.train import Peer, PeerConfig

from ..waiting import until

pytestmark = pytest.mark.live

SCRIPT = """
import multiprocessing, os, pickle, signal, sys, time
from pathlib import Path
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from rumor.gossip import RumorError
from rumor.train import Peer

def mine(number, frame):
    os._exit(7)

def sleep():
    time.sleep(1000)

def square(x):
    return x * x

def start_again():
    try:
        peer.step()
    except RumorError as error:
        return str(error)

def files():
    root = Path(os.environ["RUMOR_OUT"])
    return {str(p): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}

if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, mine)
    model = nn.Linear(4, 2)
    peer = Peer(model)
    with peer:
        peer.step()
        fork = multiprocessing.get_context("fork")
        with fork.Pool(2) as pool:
            assert pool.map(square, range(4)) == [0, 1, 4, 9]
            said = pool.apply(start_again)
            assert "was forked from that of peer anna" in said, said
        pool.join()
        for method in ("fork", "spawn", "forkserver"):
            child = multiprocessing.get_context(method).Process(target=sleep)
            child.start()
            child.terminate()
            child.join()
            assert child.exitcode == -signal.SIGTERM, child.exitcode
        child = fork.Process(target=sleep)
        child.start()
        os.kill(child.pid, signal.SIGUSR1)
        child.join()
        assert child.exitcode in (7, -signal.SIGUSR1), child.exitcode
        before = files()
        with peer._runtime.lock:  # as if the network thread had it
            pid = os.fork()
            if pid == 0:
                try:
                    peer.weight
                except RumorError:
                    sys.exit(3)
                sys.exit(4)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
            assert files() == before
        loader = DataLoader(
            TensorDataset(torch.ones(8, 4)), num_workers=2, persistent_workers=True
        )
        assert len(list(loader)) == 8
        try:
            pickle.dumps(peer)
        except RumorError as error:
            assert "cannot be pickled" in str(error)
        fork.Process(target=sleep, daemon=True).start()
        peer.step()
    print("steps", peer.steps, "state", peer.stats().has_left, flush=True)
"""


@pytest.mark.extended
def test_forked_children_end_without_affecting_the_peer(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    variables = {"ID": "anna", "OUT": str(tmp_path / "out"), "SIGNALS": "1", "LINGER_S": "0"}
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=os.environ | {f"RUMOR_{name}": value for name, value in variables.items()},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "steps 2" in done.stdout
    assert (tmp_path / "out" / "model.safetensors").exists()


def test_a_child_that_outlives_the_peer_holds_no_folder_and_no_port(
    tmp_path: Path,
) -> None:
    config = PeerConfig(id="anna", out=tmp_path, linger_s=0)
    reading, writing = os.pipe()
    with Peer(nn.Linear(2, 1), config) as peer:
        assert peer.address is not None
        port = int(peer.address.rpartition(":")[2])
        if (child := os.fork()) == 0:
            try:
                os.close(writing)
                with pytest.raises(LocalProtocolError, match="was forked from that of peer anna"):
                    peer.step()
                os.read(reading, 1)
                os._exit(0)
            finally:
                os._exit(1)

    def is_free() -> bool:
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return True
        return False

    try:
        until(is_free)  # another program may have it for a while
        again = Peer(nn.Linear(2, 1), config)
        assert again.resume()
        with again:
            pass
    finally:
        os.close(writing)
        _, status = os.waitpid(child, 0)
        os.close(reading)
    assert status == 0


UNCLOSED = """
import sys
from torch import nn
from rumor.train import Peer

peer = Peer(nn.Linear(2, 1)).start()
peer.step()
if sys.argv[1] == "fails":
    raise ValueError("out of ideas")
"""


@pytest.mark.extended
@pytest.mark.parametrize(("how", "state"), [("ends", "finished"), ("fails", "failed")])
def test_an_unclosed_peer_ends_with_the_interpreter(tmp_path: Path, how: str, state: str) -> None:
    (tmp_path / "script.py").write_text(UNCLOSED)
    variables = {"RUMOR_ID": "anna", "RUMOR_OUT": str(tmp_path / "out"), "RUMOR_LINGER_S": "0"}
    done = subprocess.run(
        [sys.executable, "script.py", how], cwd=tmp_path, env=os.environ | variables, timeout=600
    )
    assert done.returncode == (how == "fails")
    assert f'"state": "{state}"' in (tmp_path / "out" / "peer.json").read_text()


def test_start_and_close_are_equivalent_to_the_with_block(tmp_path: Path) -> None:
    peer = Peer(nn.Linear(2, 1), PeerConfig(id="anna", out=tmp_path))
    seen: list[bool] = []
    peer.on_start(lambda: seen.append(peer.weight > 0))
    peer.close()  # not started: nothing to do
    assert peer.start() is peer and seen == [True]
    peer.on_start(lambda: seen.append(False))
    assert seen == [True, False]
    peer.step()
    peer.close()
    peer.close()
    assert peer.merged and '"state": "finished"' in (tmp_path / "peer.json").read_text()
