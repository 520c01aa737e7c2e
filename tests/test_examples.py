"""Docstring examples hold. (pytest --doctest-modules cannot name modules that are mapped.)"""

import doctest
from importlib import import_module

import pytest

from .layout import modules

MODULES = [name for name in modules() if not name.endswith(".__main__")]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_hold(name: str) -> None:
    assert doctest.testmod(import_module(name)).failed == 0
