"""Find a task by what a user typed: a built-in name, or ``module:function``."""

import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType

from ..gossip.errors import ConfigError
from .chars import chars
from .digits import digits
from .mnist import mnist
from .quadratic import quadratic
from .task import Evaluation, Task

__all__ = ["BUILT_IN", "Evaluation", "Task", "load_task"]

BUILT_IN: Mapping[str, Callable[..., Task]] = MappingProxyType(
    {"chars": chars, "digits": digits, "mnist": mnist, "quadratic": quadratic}
)
"""The functions behind the built-in names."""


def load_task(spec: str, *, seed: int) -> Task:
    """Find and build a task.

    For ``module:function`` the working directory is put first on ``sys.path`` and stays
    there, as it would for a script. The function is called with ``seed=`` if it has such a
    parameter, otherwise with nothing, and returns a ``Task``.

    Args:
        spec: A key of ``BUILT_IN``, or ``module:function``.
        seed: The run's seed; a task that draws its data draws it from this.

    Returns:
        The task.

    Raises:
        ConfigError: There is no such task, or the user's code raised (the message says where).
    """
    if spec in BUILT_IN:
        return _call(BUILT_IN[spec], seed)
    name, colon, attribute = spec.partition(":")
    if not (colon and attribute.isidentifier() and name):
        raise ConfigError(
            f"task {spec!r} is not known: it must be one of {', '.join(sorted(BUILT_IN))}, "
            "or module:function, a function of yours that returns a Task"
        )
    function = _function(_module(name, spec), attribute, spec)
    try:
        task = _call(function, seed)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"task {spec} raised {_what(error)}\nat {_where(error)}") from error
    if not isinstance(task, Task):
        raise ConfigError(f"task {spec} returned a {type(task).__name__}: it must return a Task")
    return task


def _module(name: str, spec: str) -> ModuleType:
    if name.endswith(".py") or not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(
            f"task {spec}: {name!r} is not a module's name: "
            "write it as in an import, without folders or .py"
        )
    folder = str(Path.cwd())
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"task {spec}: there is no module {error.name!r} in {folder} "
                "or among the installed packages"
            ) from error
        raise ConfigError(
            f"task {spec}: importing {name} raised {_what(error)}\nat {_where(error)}"
        ) from error


def _function(module: ModuleType, attribute: str, spec: str) -> Callable[..., Task]:
    function = getattr(module, attribute, None)
    if not callable(function):
        own = [n for n, f in inspect.getmembers(module, inspect.isfunction) if n[0] != "_"]
        raise ConfigError(
            f"task {spec}: {module.__name__} ({getattr(module, '__file__', 'built in')}) "
            f"has no function {attribute!r}; it has {', '.join(own) or 'none'}"
        )
    # bind() finds a wrong signature before the call, so that it is not taken for an error inside.
    try:
        inspect.signature(function).bind(**_arguments(function, seed=0))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"task {spec} cannot be called: it must take no argument, or only seed ({error})"
        ) from error
    return function  # type: ignore[no-any-return]


def _arguments(function: Callable[..., Task], seed: int) -> dict[str, int]:
    return {"seed": seed} if "seed" in inspect.signature(function).parameters else {}


def _call(function: Callable[..., Task], seed: int) -> Task:
    return function(**_arguments(function, seed))


def _what(error: BaseException) -> str:
    # One line: some exceptions of torch carry a page.
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _where(error: BaseException) -> str:
    """Say ``file:line``, innermost of the user's own code, for "inside torch" helps nobody."""
    if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith("<"):
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    frame = ([f for f in frames if _is_users(f.filename)] or frames)[-1]
    return f"{frame.filename}:{frame.lineno}"


def _is_users(filename: str) -> bool:
    path = Path(filename)
    not_theirs = (Path(__file__).parent, Path(sysconfig.get_path("stdlib")))
    return (
        not filename.startswith("<")
        and not {"site-packages", "dist-packages"} & set(path.parts)
        and not any(path.is_relative_to(folder) for folder in not_theirs)
    )
