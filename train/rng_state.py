"""Where the global random streams of a process stand, so that they can be taken up again."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

__all__ = ["restore_rng", "rng_state"]


def rng_state() -> dict[str, Any]:
    """The streams of torch, on the CPU and on each GPU in use, of numpy and of Python."""
    in_use = torch.cuda.is_available() and torch.cuda.is_initialized()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if in_use else [],
        "numpy": np.random.get_state(),
        "python": random.getstate(),
    }


def restore_rng(state: Mapping[str, Any]) -> None:
    """Let all streams go on where they stood; those of GPUs that are not here are passed over."""
    torch.set_rng_state(state["torch"])
    here = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for index, stream in enumerate(state["cuda"][:here]):
        torch.cuda.set_rng_state(stream, index)
    np.random.set_state(state["numpy"])
    random.setstate(state["python"])
