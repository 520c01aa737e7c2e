"""What Python hands to machine code: functions of torch's library, updates, networks, places."""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    *("BY_ADAM", "BY_ADAMW", "BY_INPUT", "BY_SGD", "BY_WEIGHT", "CALL_BYTES", "FACTORS"),
    *("FORWARD", "N_RATES", "ROOT", "SGEMM", "SIZES", "STRIDES", "TRANSPOSED"),
    *("Network", "RowUpdate", "address"),
]

Floats = NDArray[Any]

SGEMM: Final = "sgemm_"
"""Products of matrices, of BLAS."""

ROOT: Final = "vmsSqrt"
"""Square roots, of MKL, which may round otherwise than the processor does."""


@cache
def address(name: str) -> int:
    """Where a function of that name lies; 0 where none shows."""
    for path in (Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*"):
        try:
            function = getattr(ctypes.CDLL(str(path)), name)
        except (OSError, AttributeError):
            continue
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    return 0


# Optimizers, and how many numbers each wants to know of a step.
BY_SGD: Final = 0
BY_ADAM: Final = 1
BY_ADAMW: Final = 2
N_RATES: Final = 8


class RowUpdate(NamedTuple):
    """How an optimizer updates the rows of some workers in one step of each."""

    optimizer: int
    """``BY_SGD``, ``BY_ADAM`` or ``BY_ADAMW``."""
    first: Floats
    """What it keeps of each number, float32, axes ``(worker, number)``; updated."""
    second: Floats
    """What else it keeps, likewise."""
    rates: Floats
    """Numbers of each step, float32, axes ``(step, N_RATES)``; see `machine_code`."""
    root: int
    """Where the library's function lies by which torch takes square roots; 0 where it takes the
    processor's."""

    @classmethod
    def of(cls, optimizer: int, first: Tensor, second: Tensor, rates: Floats) -> "RowUpdate":
        """Such an update on this machine, of tensors."""
        return cls(optimizer, first.numpy(), second.numpy(), rates, address(ROOT))


# Where the numbers that `sgemm` wants to be pointed to lie in a call's block, in bytes.
TRANSPOSED: Final = 0, 8
SIZES: Final = 16, 24, 32
STRIDES: Final = 40, 48, 56
FACTORS: Final = 64, 72
CALL_BYTES: Final = 80

# The products of a layer: what comes out, and slopes by what goes in and by the weight.
FORWARD: Final = 0
BY_INPUT: Final = 1
BY_WEIGHT: Final = 2


class Network(NamedTuple):
    """A network, and room for one worker's step on batches of one size."""

    layers: NDArray[np.int64]
    """Axes ``(layer, 6)``: the numbers of a `dense.DenseLayer`, then where in `scratch` that lies
    which goes in, and that which comes out."""
    calls: NDArray[np.uint8]
    """Blocks for `sgemm`, axes ``(layer, 3, CALL_BYTES)``."""
    sgemm: int
    """Where that function lies."""
    scratch: NDArray[np.float32]
    """The batch, what each layer makes of it, and slopes."""
    slopes: tuple[int, int]
    """Two places in it, which take turns."""
    gradient: NDArray[np.float32]
    """As long as a worker's vector; zero where no parameter lies."""
    squared: bool
    """Whether the loss is the mean squared error; else it is the mean cross-entropy."""
    part: np.float32
    """1 over the size of a batch; of squared errors, 2 over the outputs of a batch."""
    lanes: int
    """Numbers in one of torch's registers, where it takes a softmax."""
    sum_lanes: int
    """Likewise, where it adds up a single column."""
