"""A pytest plugin that records which test ran which lines, and how long each test took.

Under ``coverage run``, each test is a context of its own. Load it with
``-p rumor.tests.mutation.covering --times FILE``.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

__all__ = ["pytest_addoption", "pytest_runtest_protocol"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the file of times."""
    parser.addoption("--times", type=Path, required=True, help="CPU seconds of each test, as JSON")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Run one test in a context that is named after it."""
    running, start_s = coverage.Coverage.current(), time.process_time()
    if running is not None:
        running.switch_context(item.nodeid)
    result = yield
    if running is not None:
        running.switch_context("")
    times: Path = item.config.getoption("--times")
    with times.open("a") as file:
        file.write(json.dumps([item.nodeid, time.process_time() - start_s]) + "\n")
    return result
