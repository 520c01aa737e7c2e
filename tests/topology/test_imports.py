"""The topology layer in separate processes: its imports, and equal results."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .samples import digest

HEAVY = ("scipy", "networkx", "matplotlib", "torch")


def loaded_after(*programs: str) -> list[list[str]]:
    """Return the heavy libraries loaded in a new interpreter after each of *programs*."""
    report = f"import json, sys; print(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    program = "\n".join(line for each in programs for line in (each, report))
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return [*map(json.loads, run.stdout.splitlines())]


NAMES_AND_NEIGHBORS = "\n".join(
    [
        "import rumor.topology",
        "from rumor.topology.families import FAMILIES; [f.summary for f in FAMILIES.values()]",
        "from rumor.topology.spec import read; read('spanning-tree:of=torus:rows=4')",
        "from rumor.topology import over; over('exponential', 0, 'abcd').neighbors(0)",
        "from rumor.topology.live import LiveTopology as T; T('torus', 0)('abcdefgh', 'a', 1)",
        "from rumor.topology import parse; parse('one-peer-exponential', 8).neighbors(3, 2)",
        "from rumor.topology import over; over('random-matching', 0, 'a').neighbors(0)",
    ]
)


def test_scipy_is_loaded_only_for_a_matrix_and_networkx_never() -> None:
    assert loaded_after(NAMES_AND_NEIGHBORS, "parse('star', 8).matrix()") == [[], ["scipy"]]


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
