"""The other process of a benchmark, told over a pipe what to do."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import nn

from ..train import Peer

__all__ = ["Flat", "admit", "partner"]

_EXIT_S = 20.0


class Flat(nn.Module):
    """Nothing but so many parameters.

    Args:
        n_params: How many float32 numbers.
    """

    def __init__(self, n_params: int) -> None:
        super().__init__()
        self.flat = nn.Parameter(torch.ones(n_params))


@contextmanager
def partner(serve: Callable[..., None], *arguments: Any) -> Iterator["Connection[Any, Any]"]:
    """Run ``serve(pipe, *arguments)`` in a process of its own.

    Args:
        serve: A function of a module; it ends when it reads None from its pipe.
        arguments: What it is given beside the pipe.

    Yields:
        Our end of the pipe.
    """
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=serve, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
        ours.send(None)
        process.join(_EXIT_S)
    finally:
        process.kill()
        process.join()
        ours.close()


def admit(peer: Peer, pipe: "Connection[Any, Any]") -> Any:
    """Step until a newcomer has had its copy and says something over the pipe; return that."""
    while not pipe.poll(0.002):
        peer.step()
    return pipe.recv()
