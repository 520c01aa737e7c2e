"""The soak on a few peers for a few seconds; nothing that a longer one would show is asserted."""

import os
import sys
from mmap import mmap
from pathlib import Path

import pytest

from rumor.benchmarks.results import vitals
from rumor.benchmarks.swarm.soak import measure_soak

from .checked import checked

__all__: list[str] = []

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")


@needs_proc
def test_vitals_see_a_file_that_is_opened_and_memory_that_is_used(tmp_path: Path) -> None:
    before = vitals(os.getpid())
    # Pages of its own: what the process has freed before would serve any other block.
    with mmap(-1, 64 << 20) as block, open(tmp_path / "file", "wb"):
        block.write(os.urandom(len(block)))
        during = vitals(os.getpid())
        size_bytes = len(block)
    assert during.files == before.files + 1 and during.threads == before.threads >= 1
    assert during.rss_bytes - before.rss_bytes > size_bytes // 2
    assert 0 < during.pss_bytes <= during.rss_bytes


@needs_proc
@pytest.mark.live
@pytest.mark.slow
def test_a_soak_looks_at_those_that_stay_and_counts_every_unit(tmp_path: Path) -> None:
    picture = tmp_path / "soak.png"
    result = checked(measure_soak(0.2, 4, every_s=0.5, look_s=1.0, picture=picture))
    *vital, weight = result.rows
    assert [row.unit for row in vital] == ["MB"] * 4 + [""] * 4
    assert weight.ours == weight.reference == 2.0 and "units: 0;" in weight.note
    assert picture.read_bytes().startswith(b"\x89PNG")
