"""Packages that import their modules lazily."""

import importlib
import sys
import types
from collections.abc import Mapping, Sequence

__all__ = ["be_lazy"]


def be_lazy(package: str, modules: Mapping[str, Sequence[str]]) -> None:
    """Make a package, while it is imported, import modules when one of their names is first
    accessed.

    Args:
        modules: The public names of each module.
    """
    homes = {name: module for module, names in modules.items() for name in names}

    class Lazy(types.ModuleType):
        def __getattr__(self, name: str) -> object:
            if name not in homes:
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            value: object = getattr(importlib.import_module(f".{homes[name]}", package), name)
            setattr(self, name, value)
            return value

        def __setattr__(self, name: str, value: object) -> None:
            # Importing rumor.sim.replay.replay, the module, must not hide replay, the function.
            if not (name in homes and isinstance(value, types.ModuleType)):
                super().__setattr__(name, value)

    sys.modules[package].__class__ = Lazy
