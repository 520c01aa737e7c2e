"""Peers agree on every graph without talking: in any process, under any hash seed."""

import os
import subprocess
import sys
from pathlib import Path

from .samples import digest


def test_all_families_are_the_same_in_other_processes_with_other_hash_seeds() -> None:
    program = f"from {__package__}.samples import digest; print(digest())"
    others = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parents[len(__package__.split("."))],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("1", "2")
    ]
    digests = {other.communicate()[0].strip() for other in others}
    assert digests == {digest()}
