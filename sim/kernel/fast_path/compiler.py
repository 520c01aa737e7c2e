"""Compiles functions of the simulator to machine code; imported only when some is to run."""

from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import numba

__all__ = ["compiled", "compiled_once", "is_kept"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Arrays are owned by the calling Python code: counting references to them would take longer than
# everything else. Nothing divides by zero: code for that would take a tenth longer to compile.
_OPTIONS: Any = {"nogil": True, "_nrt": False, "error_model": "numpy"}
_WITHOUT_ENTRY: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def compiled(function: _Function) -> _Function:
    """Compile a function that only compiled functions call."""
    # An entry from Python would take longer to compile than most of these functions.
    made: _Function = numba.njit(**_OPTIONS | _WITHOUT_ENTRY)(function)
    return made


def compiled_once(sources: Iterable[Path]) -> Callable[[_Function], _Function]:
    """Compile a function that Python calls, and cache it on disk until one of *sources* changes."""
    # Numba itself would only check the function's own file, though its machine code includes that
    # of all functions that it calls.
    version = blake2b(digest_size=4)
    for source in sorted(sources):
        version.update(source.read_bytes())

    def compile(function: _Function) -> _Function:
        function.__qualname__ += f"_{version.hexdigest()}"
        try:
            made: _Function = numba.njit(**_OPTIONS, cache=True)(function)
        except RuntimeError:  # no cache folder is writable
            made = numba.njit(**_OPTIONS)(function)
        return made

    return compile


def is_kept(function: Any) -> bool:
    """Return True if a function of `compiled_once` need not be compiled in this process."""
    if function.signatures:
        return True
    folder = function.stats.cache_path
    return folder is not None and any(Path(folder).glob(f"*{function.py_func.__qualname__}*.nbi"))
