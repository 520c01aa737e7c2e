"""Where functions of torch's own library lie, for machine code to call."""

import ctypes
from functools import cache
from pathlib import Path
from typing import Final

import torch

__all__ = ["ROOT", "SGEMM", "address"]

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
