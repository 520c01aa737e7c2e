"""A package imports a module of its own when a name out of it is first asked for."""

import subprocess
import sys

import pytest

import rumor.sim
import rumor.train


def test_a_name_that_is_not_there_is_refused() -> None:
    with pytest.raises(AttributeError, match=r"module 'rumor.train' has no attribute 'Pear'"):
        getattr(rumor.train, "Pear")  # noqa: B009


@pytest.mark.extended
def test_what_needs_no_torch_imports_none() -> None:
    program = "import rumor.train.faults.schedule, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
