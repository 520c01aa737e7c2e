"""Docstring examples hold. (pytest --doctest-modules cannot name modules that are mapped.)"""

import doctest
from importlib import import_module

import pytest

from .test_exports import MODULES


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_hold(name: str) -> None:
    assert doctest.testmod(import_module(name)).failed == 0
