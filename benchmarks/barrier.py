"""A peer that trains behind a barrier: torch's data parallel training over gloo."""

import time
from datetime import timedelta
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from .partner import Flat, Pipe

__all__ = ["serve_ddp"]

_PATIENCE_S: Final = 60.0


class _First(nn.Module):
    """A loss whose gradient costs next to nothing."""

    def __init__(self, n_params: int) -> None:
        super().__init__()
        self.model = Flat(n_params)

    def forward(self) -> Tensor:
        """The first parameter."""
        return self.model.flat[0]


def serve_ddp(pipe: Pipe, pace_s: float, rank: int, peers: int, folder: str, n_params: int) -> None:
    """Train when told to, in step with the others.

    Args:
        pipe: Brings what to do, when to begin and when to end, monotonic; takes steps per second.
        pace_s: How long a step sleeps, seconds.
        rank: Which of them this is, from 0.
        peers: How many there are.
        folder: Where they find one another.
        n_params: Parameters of the model.
    """
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=(Path(folder) / "meeting").as_uri(),
        rank=rank,
        world_size=peers,
        timeout=timedelta(seconds=_PATIENCE_S),
    )
    model = DistributedDataParallel(_First(n_params))
    pipe.send("ready")
    while (asked := pipe.recv()) is not None:
        _, start_s, end_s = asked
        time.sleep(max(0.0, start_s - time.monotonic()))
        steps = 0
        began_s = time.monotonic()
        go_on = torch.ones(1)
        while go_on.item():
            time.sleep(pace_s)
            model().backward()
            steps += 1
            # All must stop at the same step: the first one's clock decides.
            go_on.fill_(float(time.monotonic() < end_s))
            distributed.broadcast(go_on, 0)
        pipe.send(steps / (time.monotonic() - began_s))
    distributed.destroy_process_group()
