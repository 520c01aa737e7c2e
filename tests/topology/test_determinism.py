"""Peers agree on every graph without talking: in any process, under any hash seed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .samples import digest


@pytest.mark.extended
def test_all_families_are_the_same_in_another_process_with_another_hash_seed() -> None:
    program = f"from {__package__}.samples import digest; print(digest())"
    other = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[len(__package__.split("."))],
        env=os.environ | {"PYTHONHASHSEED": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == digest()
