"""Settings of the test suite as a whole."""

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from .sharing import part_of

# Some virtual machines announce AMX but do not allow it: computing in bfloat16 ends a process with
# SIGILL. PyTorch reads this when its kernels are first used, here and in processes of the tests.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# On some processors, a product on two threads rounds differently; runs are compared bit for bit.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A process that a script starts in the background ignores SIGINT, which tests send to programs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Shared machines stall, and a timing is never asserted; the same source must give the same verdict.
settings.register_profile("rumor", deadline=None, derandomize=True, max_examples=20)
settings.register_profile("campaign", settings.get_profile("rumor"), max_examples=500)
settings.load_profile("rumor")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options that rewrite transcripts and that run one part of the tests."""
    parser.addoption("--rewrite", action="store_true", help="rewrite the transcripts")
    parser.addoption("--share", metavar="K/N", help="run the K-th of N parts of the selected tests")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked ``cuda`` on machines without a CUDA device."""
    if item.get_closest_marker("cuda") is None:
        return
    import torch  # takes a second, and the core's tests do not need it

    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture(autouse=True)
def logger_level() -> Iterator[None]:
    """Restore the logger's level: benchmarks quieten the logger for their whole process."""
    logger = logging.getLogger("rumor")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder that belongs to the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect all tests outside of the part named by ``--share``."""
    share: str | None = config.getoption("--share")
    if share is None:
        return
    try:
        kept = part_of([item.nodeid for item in items], share)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]
