"""`decisions`, compiled by numba where that is installed."""

import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from .decisions import event_queue, exchanges, messages, operations, randoms
from .decisions.tables import Tables
from .specializer import Specialized

__all__ = ["INTERPRETED", "SPECIALIZED", "Decider", "can_compile", "compiled", "version_of"]


class Decider(NamedTuple):
    """One way to run `decisions`."""

    name: str
    is_compiled: bool
    """Whether its arrays are numpy's, and no lists."""
    queues: Any
    """Has ``made`` and ``longer`` for queues of events; see `event_queue`."""
    module: Callable[[Tables], Any]
    """Has ``begin`` and ``advance`` for such tables."""


INTERPRETED = Decider("interpreted", False, event_queue, lambda _: exchanges)
"""Python itself."""

SPECIALIZED = Decider("specialized", False, event_queue, Specialized)
"""Python, too, for long runs: it takes a tenth of a second to make ready."""


@cache
def can_compile() -> bool:
    """Whether numba (the extra ``compiled``) is installed and loads, which takes half a second."""
    try:
        import numba  # noqa: F401
    except Exception:  # whatever it has against the numpy that is installed
        return False
    return True


@cache
def compiled() -> Decider:
    """Machine code of the very same text; kept on disk for the next process."""
    from .decisions import event_heap

    typeof = _numba().typeof
    return Decider("compiled", True, event_heap, lambda made: _compile(typeof(made)))


_CALLED_BY_PYTHON = ("advance", "begin")

# In this order: each is compiled before those that call it.
_SOURCES = (randoms, operations, messages, exchanges)


@cache
def _compile(kind: Any) -> ModuleType:
    """All functions of `decisions` and of what it calls, compiled for one type of tables."""
    numba = _numba()
    from .decisions import event_heap

    types = {
        "int": numba.int64,
        "float": numba.float64,
        "bool": numba.boolean,
        "Tables": kind,
        "None": numba.void,
    }
    made = {
        name: getattr(event_heap, name)
        for name in ("drop", "expect", "is_full", "peek", "push", "size")
    }
    for module in map(_second_copy, _SOURCES):
        vars(module).update({name: made[name] for name in made.keys() & vars(module).keys()})
        own = [f for f in vars(module).values() if isinstance(f, FunctionType)]
        # From the last to the first: who is called stands below who calls.
        for function in reversed([f for f in own if f.__module__ == module.__name__]):
            # So numba calls what it keeps on disk, held against no file but this function's own.
            function.__qualname__ = f"{function.__name__}_{_VERSION}"
            hints = function.__annotations__.values()
            *given, returned = [types[str(getattr(hint, "__name__", hint))] for hint in hints]
            # What only machine code calls needs no way in from Python, which costs more to compile
            # than most of these functions.
            inner = function.__name__ not in _CALLED_BY_PYTHON
            compiled = numba.njit(
                returned(*given), cache=True, nogil=True, error_model="python",
                no_cpython_wrapper=inner, no_cfunc_wrapper=True,
            )(function)  # fmt: skip
            setattr(module, function.__name__, compiled)
            made[function.__name__] = compiled
    return module


def _numba() -> Any:
    """It ships types, but hardly any for what makes types."""
    import numba

    return numba


def _second_copy(source: ModuleType) -> ModuleType:
    """A module once more, so that its functions call compiled ones in one of the two only."""
    name = f"{source.__name__}_compiled_{_VERSION}"
    spec = importlib.util.spec_from_file_location(name, source.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # What numba keeps on disk names it, and is loaded by that name.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@cache
def version_of(folder: Path) -> str:
    """Names all sources of a folder together; another one, once any of them changes."""
    hash = blake2b(digest_size=4)
    for source in sorted(folder.rglob("*.py")):
        hash.update(source.read_bytes())
    return hash.hexdigest()


_VERSION = version_of(Path(__file__).parent)
