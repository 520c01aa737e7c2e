"""A package imports a module of its own when a name out of it is first asked for."""

import pytest

import rumor.sim
import rumor.train


def test_a_name_that_is_not_there_is_refused() -> None:
    with pytest.raises(AttributeError, match=r"module 'rumor.train' has no attribute 'Pear'"):
        getattr(rumor.train, "Pear")  # noqa: B009
