"""`decisions`, compiled by numba where that is installed."""

import importlib.util
from collections.abc import Callable
from functools import cache
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from . import decisions

__all__ = ["Decider", "can_compile", "compiled", "interpreted"]


class Decider(NamedTuple):
    """One way to run `decisions`."""

    name: str
    begin: Callable[[decisions.Tables], None]
    advance: Callable[[decisions.Tables, float, int], int]
    queue: Callable[[], Any]
    """Makes an empty queue of events."""
    is_compiled: bool


def interpreted() -> Decider:
    """Python itself, on lists."""
    return Decider("interpreted", decisions.begin, decisions.advance, list, is_compiled=False)


@cache
def can_compile() -> bool:
    """Whether numba is installed (the extra ``compiled``)."""
    return importlib.util.find_spec("numba") is not None


@cache
def compiled() -> Decider:
    """Machine code of the very same text, on arrays; kept on disk for the next process."""
    import numba

    module: Any = _second_copy()
    for name, function in list(vars(module).items()):
        if isinstance(function, FunctionType) and function.__module__ == module.__name__:
            setattr(module, name, numba.njit(function, cache=True, error_model="python"))
    event = numba.types.Tuple([numba.float64, *[numba.int64] * 8])

    def queue() -> Any:
        return numba.typed.List.empty_list(event)

    return Decider("compiled", module.begin, module.advance, queue, is_compiled=True)


def _second_copy() -> ModuleType:
    """The module once more, so that its functions call compiled ones in one of the two only."""
    spec = importlib.util.spec_from_file_location(f"{decisions.__name__}_compiled", decisions.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
