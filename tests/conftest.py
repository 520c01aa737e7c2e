"""Settings of the test suite as a whole."""

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from .sharing import part_of

# Some virtual machines announce AMX and do not allow it: whoever computes in bfloat16 ends there
# with SIGILL. Read when PyTorch's kernels are first used, here and in processes that tests start.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# On some processors a product rounds otherwise on two threads, and runs are compared bit for bit.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What a script starts in the background ignores SIGINT, and tests interrupt programs by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Shared machines stall, and a timing is never asserted; the same source must give the same verdict.
settings.register_profile("rumor", deadline=None, derandomize=True, max_examples=20)
settings.register_profile("campaign", settings.get_profile("rumor"), max_examples=500)
settings.load_profile("rumor")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let transcripts be written anew, and a part of the tests be run alone."""
    parser.addoption("--rewrite", action="store_true", help="write the transcripts anew")
    parser.addoption("--share", metavar="K/N", help="run the K-th of N parts of what is selected")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a CUDA device where there is none."""
    if item.get_closest_marker("cuda") is None:
        return
    import torch  # which takes a second, and the core's tests do without

    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture(autouse=True)
def logger_level() -> Iterator[None]:
    """Give the next test the logger as it was: benchmarks quieten it for their whole process."""
    logger = logging.getLogger("rumor")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out all that is not in the part that was asked for."""
    share: str | None = config.getoption("--share")
    if share is None:
        return
    try:
        kept = part_of([item.nodeid for item in items], share)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]
