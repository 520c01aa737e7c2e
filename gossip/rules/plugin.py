"""Import user-defined functions and classes by name: ``module:name``."""

import sys
import sysconfig
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import ConfigError

__all__ = ["function_of", "name_of", "what_was_raised", "where_it_was_raised"]

_LAYERS = ("gossip", "topology", "train", "sim", "cli")


def _module_of(name: str, what: str) -> ModuleType:
    """Import a user's module.

    The working directory is put first on ``sys.path`` and stays there, as it would for a script.

    Args:
        what: Purpose of the import, such as ``task mine:rings``; errors begin with it.

    Raises:
        ConfigError: The module does not exist, or importing it raised an exception (the message
            says where).
    """
    if name.endswith(".py") or not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(
            f"{what}: {name!r} is not a module's name: "
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
                f"{what}: there is no module {error.name!r} in {folder} "
                "or among the installed packages"
            ) from error
        raise ConfigError(
            f"{what}: importing {name} raised {what_was_raised(error)}\n"
            f"at {where_it_was_raised(error)}"
        ) from error


def function_of(spec: str, what: str) -> Callable[..., Any]:
    """Import a user's function or class, given as ``module:name``."""
    name, _, attribute = spec.partition(":")
    module = _module_of(name, f"{what} {spec}")
    function = getattr(module, attribute, None)
    if callable(function):
        return function  # type: ignore[no-any-return]
    own = [
        n
        for n, each in sorted(vars(module).items())
        if callable(each) and n[0] != "_" and getattr(each, "__module__", "") == name
    ]
    raise ConfigError(
        f"{what} {spec}: {module.__name__} ({getattr(module, '__file__', 'built in')}) "
        f"has no function or class {attribute!r}; it has {', '.join(own) or 'none'}"
    )


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's name as a user would type it: ``module:function``.

    >>> name_of(name_of)
    'rumor.gossip.rules.plugin:name_of'
    """
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{getattr(function, '__module__', '')}:{name}"


def what_was_raised(error: BaseException) -> str:
    """Return an exception in one line, since some of torch's fill a page."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def where_it_was_raised(error: BaseException) -> str:
    """Return the ``file:line`` of the innermost frame in the user's own code.

    A line inside torch would not help the user.
    """
    if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith("<"):
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    frame = ([f for f in frames if _is_users(f.filename)] or frames)[-1]
    return f"{frame.filename}:{frame.lineno}"


def _is_users(filename: str) -> bool:
    path = Path(filename)
    root = Path(__file__).parents[2]
    not_theirs = (*(root / layer for layer in _LAYERS), Path(sysconfig.get_path("stdlib")))
    return (
        not filename.startswith("<")
        and not {"site-packages", "dist-packages"} & set(path.parts)
        and not any(path.is_relative_to(folder) for folder in not_theirs)
    )
