"""Automatic mixed precision: the number format in which a step computes."""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from ...gossip.errors import ConfigError

# Settings are read without importing torch, which takes a second.
if TYPE_CHECKING:
    import torch

__all__ = ["PRECISIONS", "autocast", "check_precision"]

PRECISIONS: Final = ("float32", "bfloat16", "auto")
"""Values of ``Task.precision``."""


def check_precision(precision: str) -> None:
    """Raise ConfigError if there is no such precision."""
    if precision not in PRECISIONS:
        raise ConfigError(f"precision is {precision!r}: it must be one of {', '.join(PRECISIONS)}")


def autocast(precision: str, device: "torch.device") -> AbstractContextManager[object]:
    """Compute matrix products inside a block in *precision*; with ``float32`` nothing changes."""
    import torch

    if precision == "auto":
        # CPUs support it too, but most are slower with it.
        is_fast = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        precision = "bfloat16" if is_fast else "float32"
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)
