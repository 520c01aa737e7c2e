"""Checkpoints of the processes of a peer other than its leader."""

from pathlib import Path

import pytest

from rumor.train.loop.group.rank_files import RankFiles


@pytest.mark.parametrize("kept", [1, 2])
def test_checkpoints_that_the_leader_could_not_write_replace_none_of_its_last_ones(
    tmp_path: Path, kept: int
) -> None:
    files = RankFiles(tmp_path, 1, kept)
    for number in range(1, 4):
        files.save((number, 10 * number, True))
    # The disk of the leader is full: the number of its next checkpoint stays the same.
    for steps in (40, 50, 60):
        files.save((4, steps, True))
    assert files.kept() == {60, 30, *([20] if kept > 1 else [])}
    files.load(30)
    files.close()
