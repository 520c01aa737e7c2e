"""A package imports its modules when one of their names is first used."""

import subprocess
import sys

import pytest

import rumor.sim
import rumor.train


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match=r"module 'rumor.train' has no attribute 'Pear'"):
        getattr(rumor.train, "Pear")  # noqa: B009


@pytest.mark.extended
def test_packages_that_do_not_need_torch_do_not_import_it() -> None:
    program = "import rumor.train.faults.schedule, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
