"""What becomes of a disk that takes no more: a word where training can go on, an end where not."""

import logging
from pathlib import Path

from ..gossip.errors import TrainingError

__all__ = ["Trouble", "fatal"]

_log = logging.getLogger("rumor")


class Trouble:
    """Says once that something cannot be written, and once that it can again.

    A disk that is full stays so for hours, and a warning each step would fill what is left of it.
    """

    def __init__(self) -> None:
        self._failing: set[str] = set()

    def failed(self, what: str, error: OSError) -> None:
        """Note that *what* could not be written, and that nothing depends on it."""
        if what not in self._failing:
            self._failing.add(what)
            _log.warning("%s could not be written, training goes on: %s", what, error)

    def worked(self, what: str) -> None:
        """Note that *what* was written."""
        if what in self._failing:
            self._failing.discard(what)
            _log.warning("%s can be written again", what)


def fatal(path: Path, error: OSError) -> TrainingError:
    """The end of a peer that cannot write down what must be on disk before anything leaves.

    Args:
        path: What cannot be written.
        error: Why.

    Returns:
        What to raise: it says what to do.
    """
    return TrainingError(
        f"{path} cannot be written ({error.strerror or error}): training ends here, and the weight "
        "this peer held is lost, as in a crash; make room, and resume it"
    )
