"""``__all__`` lists the public names of every module, and a package exports nothing else."""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import FunctionType, ModuleType

import pytest

from rumor.train.loggers.logger import LOGGERS

from .layout import modules

# Modules that import an optional library; the extra `test` installs all of them.
NEEDS = {
    "rumor.train.integrations.lightning": "lightning",
    "rumor.train.integrations.transformers": "transformers",
    **{f"rumor.train.loggers.{name}": name for name in LOGGERS},
}

# Importing a package's __main__ would run it.
MODULES = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            name in NEEDS and find_spec(NEEDS[name]) is None,
            reason=f"{NEEDS.get(name)} is not installed",
        ),
    )
    for name in modules()
    if not name.endswith(".__main__")
]
# A package without submodules counts as a module.
PACKAGES = [
    name
    for name, path in modules().items()
    if path.name == "__init__.py" and any(other.startswith(f"{name}.") for other in modules())
]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_lists_and_documents_its_public_names(name: str) -> None:
    module = import_module(name)
    assert module.__doc__
    assert hasattr(module, "__all__"), f"{name} has no __all__"
    assert [listed for listed in module.__all__ if not hasattr(module, listed)] == []
    assert len(set(module.__all__)) == len(module.__all__)
    assert defined(module) <= set(module.__all__)
    assert [listed for listed in defined(module) if lacks_docstring(getattr(module, listed))] == []


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_exports_all_its_public_names(name: str) -> None:
    package = import_module(name)
    for listed in package.__all__:
        getattr(package, listed)  # some are imported lazily, on first access
    assert set(public(package)) == set(package.__all__)


def public(module: ModuleType) -> Iterator[str]:
    for name, value in vars(module).items():
        if not name.startswith("_") and not isinstance(value, ModuleType):
            yield name


def defined(module: ModuleType) -> set[str]:
    """Return the public functions and classes that *module* defines."""
    own = module.__name__
    return {n for n in public(module) if getattr(vars(module)[n], "__module__", None) == own}


def lacks_docstring(value: object) -> bool:
    """Return whether a function or class lacks a docstring, apart from one made by dataclass."""
    if not isinstance(value, type | FunctionType):
        return False
    return not value.__doc__ or value.__doc__.startswith(f"{value.__name__}(")
