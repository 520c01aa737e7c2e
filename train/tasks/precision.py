"""Automatic mixed precision: which numbers a step computes with."""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from ...gossip.errors import ConfigError

# Settings are read without torch, which takes a second to import.
if TYPE_CHECKING:
    import torch

__all__ = ["PRECISIONS", "autocast", "check_precision"]

PRECISIONS: Final = ("float32", "bfloat16", "auto")
"""What ``Task.precision`` may be."""


def check_precision(precision: str) -> None:
    """See that there is such a precision.

    Raises:
        ConfigError: It is unknown.
    """
    if precision not in PRECISIONS:
        raise ConfigError(f"precision is {precision!r}: it must be one of {', '.join(PRECISIONS)}")


def autocast(precision: str, device: "torch.device") -> AbstractContextManager[object]:
    """Let matrix products inside use *precision*; with ``float32`` nothing changes.

    ``auto`` is ``bfloat16`` on a GPU that computes with it, and ``float32`` elsewhere.
    """
    import torch

    if precision == "auto":
        # A CPU has it too, but most are slower with it.
        is_fast = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        precision = "bfloat16" if is_fast else "float32"
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)
