"""Random states of torch, numpy and Python: seed them, temporarily or for good."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final

import numpy as np
import torch

__all__ = ["kept_random_state", "seed_all", "seed_of", "seeded"]

_CPU: Final = torch.device("cpu")


def seed_of(seed: int, peer: str, purpose: str) -> int:
    """Return a separate seed, from 0 to 2^63 - 1, for a peer's *purpose*, such as ``"step:3"``."""
    digest = blake2b(f"{seed}\0{peer}\0{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@contextmanager
def kept_random_state(device: torch.device = _CPU) -> Iterator[None]:
    """Restore the states of torch, on the CPU and on *device*, numpy and Python after a block."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])
        if on_device is not None:
            torch.cuda.set_rng_state(on_device, device)


@contextmanager
def seeded(seed: int, device: torch.device = _CPU) -> Iterator[None]:
    """Make random numbers inside a block depend on *seed* alone, without changing those outside.

    The generators belong to the process: other threads must not draw meanwhile.
    """
    with kept_random_state(device):
        seed_all(seed, device)
        yield


def seed_all(seed: int, device: torch.device = _CPU) -> None:
    """Seed torch, on the CPU and on *device*, numpy and Python."""
    # Not torch.manual_seed, which takes longer than many a step, because it seeds all devices.
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
