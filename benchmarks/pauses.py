"""What peers that survive another's sudden end see of it in their training threads."""

import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import torch

from ..gossip import GoSGD, ProtocolConfig
from ..train import Peer, PeerConfig
from .partner import Flat, Pipe, partners
from .stepping import Burst

__all__ = ["Pauses", "pauses"]

_PATIENCE_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Pauses:
    """What `Peer.step` took of all survivors, seconds."""

    before_s: list[float]
    """In the time before the kill."""
    after_s: list[float]
    """In as long a time after it."""


def pauses(peers: int, n_params: int, p: float, step_s: float, watch_s: float) -> Pauses:
    """Let peers train, and kill the last.

    Args:
        peers: How many, at first.
        n_params: Parameters of the model.
        p: Probability of a push at a step.
        step_s: How long a step of the optimizer sleeps, seconds.
        watch_s: How long to watch before the kill, and again after it; the dead one is held for
            dead after half of it.
    """
    with TemporaryDirectory() as folder:
        given = [(folder, peers, n_params, p, step_s, watch_s / 2) for _ in range(peers)]
        with partners(_serve, given) as all_of_them:
            for one in all_of_them:
                one.hear()
            start_s = time.monotonic()
            for one in all_of_them:
                one.say(start_s + 2 * watch_s)
            time.sleep(watch_s)
            killed_s = time.monotonic()
            all_of_them[-1].kill()
            found = Pauses([], [])
            for survivor in all_of_them[:-1]:
                for ended_s, stall_s in survivor.hear(2 * watch_s + _PATIENCE_S):
                    (found.before_s if ended_s < killed_s else found.after_s).append(stall_s)
    return found


def _serve(
    pipe: Pipe, folder: str, peers: int, n_params: int, p: float, step_s: float, dead_s: float
) -> None:
    torch.set_num_threads(1)
    config = PeerConfig(
        rendezvous=Path(folder),
        founders=peers,
        rule=GoSGD(p),
        linger_s=0,
        leave_s=1,
        protocol=ProtocolConfig(dead_s=dead_s),
    )
    with Peer(Flat(n_params), config) as peer:
        pipe.send("founded")
        end_s = pipe.recv()
        burst, ended_s = Burst(), []
        while time.monotonic() < end_s:
            burst.step(peer.step, step_s)
            ended_s.append(time.monotonic())
        pipe.send(list(zip(ended_s, burst.stalls_s, strict=True)))
        pipe.recv()
