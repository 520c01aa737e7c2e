"""Automatic mixed precision: which numbers a step computes with."""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from ...gossip.errors import ConfigError

# Settings are read without torch, which takes a second to import.
if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.amp.grad_scaler import GradScaler
    from torch.optim import Optimizer

__all__ = ["PRECISIONS", "autocast", "check_precision", "descend", "make_scaler"]

PRECISIONS: Final = ("float32", "bfloat16", "float16", "auto")
"""What ``Task.precision`` may be."""


def check_precision(precision: str) -> None:
    """See that there is such a precision.

    Raises:
        ConfigError: There is none.
    """
    if precision not in PRECISIONS:
        raise ConfigError(f"precision is {precision!r}: it must be one of {', '.join(PRECISIONS)}")


def autocast(precision: str, device: "torch.device") -> AbstractContextManager[object]:
    """Let matrix products inside use *precision*; with ``float32`` nothing changes.

    ``auto`` is ``bfloat16`` on a GPU that computes with it, and ``float32`` elsewhere.
    """
    import torch

    if precision == "auto":
        precision = "bfloat16" if _has_bfloat16(device) else "float32"
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, getattr(torch, precision))


def _has_bfloat16(device: "torch.device") -> bool:
    import torch

    # A CPU has it too, but most are slower with it.
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def make_scaler(precision: str, device: "torch.device") -> "GradScaler | None":
    """Make what keeps small gradients from vanishing in ``float16``; None where none do."""
    from torch.amp.grad_scaler import GradScaler

    return GradScaler(device.type) if precision == "float16" else None


def descend(loss: "Tensor", optimizer: "Optimizer", scaler: "GradScaler | None") -> None:
    """Take an optimizer step along the gradients of *loss*, which are zero or None before.

    Args:
        loss: A scalar.
        optimizer: Whose parameters it depends on.
        scaler: Of this optimizer alone. It leaves a step out whose gradients are not finite, and
            scales the next ones down.
    """
    if scaler is None:
        loss.backward()
        optimizer.step()
        return
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
