"""Import user-defined functions and classes by name: ``module:name`` or ``file.py:name``."""

import sys
import sysconfig
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import ConfigError

__all__ = ["as_raised", "function_of", "module_of", "name_of"]

_LAYERS = ("gossip", "topology", "train", "sim", "cli")


def module_of(spec: str, what: str) -> ModuleType:
    """Import the module of a spec: ``module:name``, or ``folder/file.py:name``.

    Args:
        what: Kind of what the spec names, such as ``task``; errors begin with it and the spec.

    Raises:
        ConfigError: The module does not exist, or importing it raised an exception (the message
            says where).
    """
    name, what = spec.partition(":")[0], f"{what} {spec}"
    path = Path(name).expanduser().resolve() if name.endswith(".py") else None
    if path is not None:
        folder, name = path.parent, path.stem
    elif all(part.isidentifier() for part in name.split(".")):
        folder = Path.cwd()
    else:
        raise ConfigError(
            f"{what}: {name!r} is not a module's name: write it as in an import, or the path of a "
            ".py file"
        )
    # It stays there, as it would for a script.
    if sys.path[:1] != [str(folder)]:
        sys.path.insert(0, str(folder))
    try:
        module = import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"{what}: there is no module {error.name!r} in {folder} "
                "or among the installed packages"
            ) from error
        raise ConfigError(f"{what}: importing {name} raised {as_raised(error)}") from error
    found = getattr(module, "__file__", None) or "built in"
    if path is not None and Path(found).resolve() != path:
        why = "the file does not exist" if not path.exists() else f"{name} is already {found}"
        raise ConfigError(f"{what}: {path} cannot be imported: {why}; use another name")
    return module


def function_of(spec: str, what: str) -> Callable[..., Any]:
    """Import a user's function or class, given as in `module_of`."""
    module, attribute = module_of(spec, what), spec.partition(":")[2]
    function = getattr(module, attribute, None)
    if callable(function):
        return function  # type: ignore[no-any-return]
    own = [
        n
        for n, each in sorted(vars(module).items())
        if callable(each) and n[0] != "_" and getattr(each, "__module__", "") == module.__name__
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


def as_raised(error: BaseException) -> str:
    """Return an exception in one line, and where in the user's code it was, if there."""
    text = str(error).strip().partition("\n")[0]
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith("<"):
        return f"{what}\nat {error.filename}:{error.lineno}"
    # A line inside torch would not help the user.
    own = [f for f in traceback.extract_tb(error.__traceback__) if _is_users(f.filename)]
    return f"{what}\nat {own[-1].filename}:{own[-1].lineno}" if own else what


def _is_users(filename: str) -> bool:
    path = Path(filename)
    root = Path(__file__).parents[2]
    not_theirs = (*(root / layer for layer in _LAYERS), Path(sysconfig.get_path("stdlib")))
    return (
        not filename.startswith("<")
        and not {"site-packages", "dist-packages"} & set(path.parts)
        and not any(path.is_relative_to(folder) for folder in not_theirs)
    )
