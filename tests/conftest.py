"""Settings of the test suite as a whole."""

from hypothesis import settings

# Shared machines stall, and a timing is never asserted; the same source must give the same verdict.
settings.register_profile("rumor", deadline=None, derandomize=True)
settings.load_profile("rumor")
