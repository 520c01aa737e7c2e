"""``__all__`` is what is public: in every module, and in a package nothing more."""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import FunctionType, ModuleType

import pytest

from rumor.train.loggers.logger import LOGGERS

from .layout import modules

# They import what an extra brings; with the extra `test`, it is there.
NEEDS = {
    "rumor.train.integrations.lightning": "lightning",
    "rumor.train.integrations.transformers": "transformers",
    **{f"rumor.train.loggers.{name}": name for name in LOGGERS},
}

# Importing a package's __main__ is running it.
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
# One that has only data besides itself is a module like others.
PACKAGES = [
    name
    for name, path in modules().items()
    if path.name == "__init__.py" and any(other.startswith(f"{name}.") for other in modules())
]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_lists_what_is_public_and_says_what_it_is(name: str) -> None:
    module = import_module(name)
    assert module.__doc__
    assert hasattr(module, "__all__"), f"{name} has no __all__"
    assert [listed for listed in module.__all__ if not hasattr(module, listed)] == []
    assert len(set(module.__all__)) == len(module.__all__)
    assert defined(module) <= set(module.__all__)
    assert [listed for listed in defined(module) if is_silent(getattr(module, listed))] == []


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_exports_all_that_it_imports(name: str) -> None:
    package = import_module(name)
    for listed in package.__all__:
        getattr(package, listed)  # some are imported when they are first asked for
    assert set(public(package)) == set(package.__all__)


def public(module: ModuleType) -> Iterator[str]:
    for name, value in vars(module).items():
        if not name.startswith("_") and not isinstance(value, ModuleType):
            yield name


def defined(module: ModuleType) -> set[str]:
    """Public functions and classes that *module* does not merely import."""
    own = module.__name__
    return {n for n in public(module) if getattr(vars(module)[n], "__module__", None) == own}


def is_silent(value: object) -> bool:
    """Whether a function or a class has no docstring but what dataclass makes up."""
    if not isinstance(value, type | FunctionType):
        return False
    return not value.__doc__ or value.__doc__.startswith(f"{value.__name__}(")
