"""Automatic mixed precision: the number format in which a step computes."""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

# Settings are read without importing torch, which takes a second.
if TYPE_CHECKING:
    import torch

__all__ = ["PRECISIONS", "autocast"]

PRECISIONS: Final = ("float32", "bfloat16", "auto")
"""Values of ``Task.precision``."""


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
