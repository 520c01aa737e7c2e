"""`decisions`, compiled by numba where that is installed."""

import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from . import decisions, event_queue
from .tables import Tables

__all__ = ["INTERPRETED", "Decider", "can_compile", "compiled"]


class Decider(NamedTuple):
    """One way to run `decisions`."""

    name: str
    is_compiled: bool
    """Whether its arrays are numpy's, and no lists."""
    queues: Any
    """Has ``made`` and ``longer`` for queues of events; see `event_queue`."""
    module: Callable[[Tables], Any]
    """Has ``begin`` and ``advance`` for such tables."""


INTERPRETED = Decider("interpreted", False, event_queue, lambda _: decisions)
"""Python itself."""


@cache
def can_compile() -> bool:
    """Whether numba is installed (the extra ``compiled``)."""
    return importlib.util.find_spec("numba") is not None


@cache
def compiled() -> Decider:
    """Machine code of the very same text; kept on disk for the next process."""
    from . import event_heap

    typeof = _numba().typeof
    return Decider("compiled", True, event_heap, lambda tables: _compile(typeof(tables)))


@cache
def _compile(tables: Any) -> ModuleType:
    """All functions of `decisions`, compiled for one type of tables."""
    numba = _numba()

    types = {
        "int": numba.int64,
        "float": numba.float64,
        "bool": numba.boolean,
        "Tables": tables,
        "None": numba.void,
    }
    from . import event_heap

    module = _second_copy()
    for name in ("drop", "is_full", "peek", "push", "size"):
        setattr(module, name, getattr(event_heap, name))
    functions = [f for f in vars(module).values() if isinstance(f, FunctionType)]
    # From the last to the first: who is called stands below who calls.
    for function in reversed(functions):
        if function.__module__ == module.__name__:
            names = [_type_name(hint) for hint in function.__annotations__.values()]
            *given, returned = [types[name] for name in names]
            signature = returned(*given)
            made = numba.njit(signature, cache=True, error_model="python")(function)
            setattr(module, function.__name__, made)
    return module


def _numba() -> Any:
    """It ships types, but hardly any for what makes types."""
    import numba

    return numba


def _type_name(hint: Any) -> str:
    return str(getattr(hint, "__name__", hint))


def _second_copy() -> ModuleType:
    """The module once more, so that its functions call compiled ones in one of the two only."""
    name = f"{decisions.__name__}_compiled"
    spec = importlib.util.spec_from_file_location(name, decisions.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # What numba keeps on disk names it.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
