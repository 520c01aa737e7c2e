"""Processes of a run, and what becomes of one that cannot be taken in."""

import os
from pathlib import Path

import pytest

from rumor.cli.crew import Crew
from rumor.cli.places import Place


class Witness:
    """Stands in for a guard, and notes whom it was told of."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def watch_over(self, pid: int) -> None:
        self.told.append(pid)


def test_a_process_whose_number_cannot_be_written_down_is_not_left_behind(tmp_path: Path) -> None:
    place = Place(index=0, id="peer-0", folder=tmp_path, command=("/bin/sleep", "60"))
    (tmp_path / "pid").mkdir()  # as on a full disk, nothing can be written there
    witness = Witness()
    crew = Crew([place], witness)  # type: ignore[arg-type]
    with pytest.raises(OSError):
        crew.start()
    (started,) = witness.told
    with pytest.raises(ProcessLookupError):
        os.kill(started, 0)
    assert crew.processes == []
