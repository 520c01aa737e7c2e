"""Docstring examples are correct. (pytest --doctest-modules cannot name mapped modules.)"""

import doctest
from importlib import import_module

import pytest

from .layout import modules

# Importing a package's __main__ would run it.
WITH_EXAMPLES = [
    name
    for name, path in modules().items()
    if ">>>" in path.read_text() and path.name != "__main__.py"
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_docstring_examples_are_correct(name: str) -> None:
    assert doctest.testmod(import_module(name)).failed == 0
