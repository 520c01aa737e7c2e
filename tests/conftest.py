"""Settings of the test suite as a whole."""

import pytest
from hypothesis import settings

# Shared machines stall, and a timing is never asserted; the same source must give the same verdict.
settings.register_profile("rumor", deadline=None, derandomize=True)
settings.load_profile("rumor")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let transcripts be written anew."""
    parser.addoption("--rewrite", action="store_true", help="write the transcripts anew")
