"""Fake machines, which are folders on this one, and a fake ssh that reaches them."""

import os
import signal
import socket as sockets
import sys
from collections.abc import Sequence
from pathlib import Path

from rumor.train.storage.jsonl import read_metrics

from ...waiting import until

__all__ = ["SCRIPT", "Machines", "free_port"]

SCRIPT = """
import argparse, os, time
import torch
from torch import nn
from rumor.train import Peer, environment

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)
parser.add_argument("--pause", type=float, default=0.01)
parser.add_argument("--fails", type=int, default=-1)  # the peer that raises after 30 steps
parser.add_argument("--until", default=os.devnull)  # training ends only after this file exists
arguments = parser.parse_args()
torch.manual_seed(environment().index)  # each peer draws its own model
model = nn.Linear(4, 1).to(environment().device)
with Peer(model) as peer:
    print("taking part as", peer.id, "of", environment().count)
    while peer.steps < arguments.steps or not os.path.exists(arguments.until):
        with torch.no_grad():
            model.weight.add_(0.01)
        time.sleep(arguments.pause)
        peer.step(loss=1.0 / (peer.steps + 1))
        if peer.steps == 30 and environment().index == arguments.fails:
            raise RuntimeError("out of ideas")
"""

# As with the real ssh, the command keeps running when ssh ends, with its pipes closed.
_SSH = """\
#!{python}
import os, subprocess, sys, threading
from contextlib import suppress
from pathlib import Path

machine, command = sys.argv[-2:]
here = Path({folder!r})
if (here / "cut").exists():
    sys.exit("ssh: connect to host " + machine + ": No route to host")
(here / (machine + ".pid")).write_text(str(os.getpid()))
run = subprocess.Popen(["sh", "-c", command], stdin=-1, stdout=-1, cwd=here)

def pump(source, sink):
    with suppress(BrokenPipeError):  # of a program that has ended
        while data := os.read(source, 65536):
            os.write(sink, data)
    os.close(sink)

for ends in ((0, run.stdin.fileno()), (run.stdout.fileno(), 1)):
    threading.Thread(target=pump, args=ends, daemon=True).start()
sys.exit(run.wait())
"""


def free_port(address: str = "127.0.0.1") -> int:
    """Return a free port at *address*."""
    with sockets.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


class Machines:
    """Folders that stand for machines, each with the script in it, next to the launcher's."""

    def __init__(self, folder: Path, addresses: Sequence[str]) -> None:
        self.folder, self.addresses = folder, tuple(addresses)
        self.ssh = folder / "ssh"
        self.ssh.write_text(_SSH.format(python=sys.executable, folder=str(folder)))
        self.ssh.chmod(0o755)
        for address in addresses:
            (folder / address).mkdir()
            (folder / address / "mine.py").write_text(SCRIPT)

    def file(self, *lines: str) -> str:
        """Write a hosts file; *lines* add to the address and folder of each machine, in order."""
        path = self.folder / "hosts.txt"
        more = (*lines, *[""] * (len(self.addresses) - len(lines)))
        text = ""
        for address, line in zip(self.addresses, more, strict=True):
            # Other launchers on this machine would use the same default port.
            place = f" listen={free_port(address)}" if "listen=" not in line else ""
            text += f"{address} dir={address} {line}{place}\n"
        path.write_text(text)
        return str(path)

    def arguments(self, *more: str, lines: Sequence[str] = ()) -> list[str]:
        """Return arguments of ``rumor run`` with the hosts file and the fake ssh."""
        return ["run", "--hosts", self.file(*lines), "--set", f"ssh={self.ssh}", *more]

    def cut(self, address: str) -> None:
        """Kill the ssh to a machine, as a lost network would."""
        os.kill(int((self.folder / f"{address}.pid").read_text()), signal.SIGKILL)

    def cut_off_all(self, *, over: bool = False) -> None:
        """Make all machines unreachable, or with *over* reachable again."""
        (self.folder / "cut").unlink() if over else (self.folder / "cut").touch()

    def folder_of(self, address: str, run: str, id: str) -> Path:
        """Return the folder of a peer on its machine."""
        return self.folder / address / run / "hosts" / address / id

    def wait_until_training(self, run: str, ids: Sequence[str]) -> None:
        """Wait until the launcher has a row of metrics from each peer."""
        paths = [self.folder / run / "peers" / id / "metrics.jsonl" for id in ids]
        until(lambda: all(path.exists() and read_metrics(path) for path in paths), "all train")
