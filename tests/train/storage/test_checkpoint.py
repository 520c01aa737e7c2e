"""Checkpoints on disk: written whole or not at all, and refused with a reason if damaged."""

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from rumor.gossip import TrainingError
from rumor.train.storage.checkpoint import (
    Checkpoint,
    CheckpointFolder,
    read_checkpoint,
    write_checkpoint,
)
from rumor.train.storage.files import WriterThread


def checkpoint(step: int = 0) -> Checkpoint:
    tensors = {"w": torch.full((40, 3), float(step)), "n": torch.tensor(step), "e": torch.zeros(0)}
    return Checkpoint(head={"step": step, "names": ["w", "ü"]}, tensors=tensors)


def step_of(folder: CheckpointFolder) -> int:
    found = folder.latest()
    assert found is not None
    return int(found.head["step"])


def test_a_checkpoint_is_read_as_written(tmp_path: Path) -> None:
    write_checkpoint(checkpoint(3), tmp_path / "c")
    back = read_checkpoint(tmp_path / "c")
    assert back.head == checkpoint(3).head
    assert all(torch.equal(back.tensors[name], t) for name, t in checkpoint(3).tensors.items())
    assert back.tensors.keys() == checkpoint().tensors.keys()
    assert list(tmp_path.iterdir()) == [tmp_path / "c"]


@pytest.mark.parametrize("kept", [1, 3])
def test_a_folder_keeps_the_requested_number_of_checkpoints(tmp_path: Path, kept: int) -> None:
    folder = CheckpointFolder(tmp_path, kept)
    for step in range(5):
        folder.write(checkpoint(step))
        assert len(folder.paths()) == min(kept, step + 1) and step_of(folder) == step


def flip_bit(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def write_other(path: Path, **metadata: str) -> None:
    save_file({"w": torch.zeros(2)}, path, metadata=metadata or None)


DAMAGE: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: os.truncate(path, path.stat().st_size - 1), "torn or damaged"),
    (lambda path: os.truncate(path, 0), "torn or damaged"),
    (lambda path: flip_bit(path, path.stat().st_size - 3), "its checksum is another"),
    (lambda path: flip_bit(path, path.read_bytes().index(b"step")), "its checksum is another"),
    (lambda path: flip_bit(path, 5), "torn or damaged"),
    (lambda path: path.write_bytes(b"something else"), "torn or damaged"),
    (write_other, "not a checkpoint of rumor"),
    (lambda path: write_other(path, format="rumor checkpoint 99"), "rumor checkpoint 99"),
    (lambda path: (path.unlink(), path.mkdir()), "is of no use"),  # type: ignore[func-returns-value]
]


@pytest.mark.parametrize(("damage", "message"), DAMAGE)
def test_a_damaged_checkpoint_is_skipped_for_the_previous_checkpoint(
    tmp_path: Path, damage: Callable[[Path], object], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.write(checkpoint(1))
    damage(folder.write(checkpoint(2)))
    with caplog.at_level(logging.WARNING, "rumor"):
        assert step_of(folder) == 1
    assert message in caplog.text and "going back to the one before it" in caplog.text


def test_damaged_checkpoints_do_not_count_as_kept(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    first = folder.write(checkpoint(1))
    folder.write(checkpoint(2)).write_bytes(b"")
    # A draft that a kill left behind is removed.
    (tmp_path / "checkpoint-000003.safetensors.draft").write_bytes(b"half of")
    assert step_of(folder) == 1 and len(list(tmp_path.iterdir())) == 2
    last = folder.write(checkpoint(3))
    assert len(folder.paths()) == 2
    last.write_bytes(b"")
    assert step_of(CheckpointFolder(tmp_path)) == 1
    first.write_bytes(b"")
    numbers = sorted((path.name[11:17] for path in (first, last)), reverse=True)
    with pytest.raises(TrainingError, match=rf"{numbers[0]}.*; .*{numbers[1]}"):
        folder.latest()


def test_a_failing_disk_leaves_the_folder_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.write(checkpoint(1))

    def fail(number: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            folder.write(checkpoint(2))
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000001.safetensors"]
    assert step_of(folder) == 1


def test_the_writer_warns_once_until_the_disk_works_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    writer, done = WriterThread(), threading.Event()

    def fail() -> None:
        raise OSError("the disk is full")

    with caplog.at_level(logging.WARNING, "rumor"):
        for job in (fail, fail, done.set, fail):
            writer.add("the checkpoint", job)
            assert writer.wait()
        writer.add("the table", fail)
        writer.close()
    messages = [record.getMessage() for record in caplog.records]
    failed, again = "could not be written, training goes on: the disk is full", "can be written"
    assert messages == [
        f"the checkpoint {failed}",
        f"the checkpoint {again} again",
        f"the checkpoint {failed}",
        f"the table {failed}",
    ]
    assert done.is_set()


def test_the_writer_releases_written_checkpoints() -> None:
    """A checkpoint is as large as model and optimizer, and the next may be hours away."""
    writer, copy = WriterThread(), checkpoint()
    alive = weakref.ref(copy.tensors["w"])
    writer.add("the checkpoint", partial(len, [copy]))
    del copy
    assert writer.wait()
    assert alive() is None
    writer.close()


def test_closing_the_writer_ends_its_thread() -> None:
    """An interpreter that exits while a thread runs torch code aborts."""
    before = threading.active_count()
    writer = WriterThread()
    writer.add("a", partial(time.sleep, 0.05))
    writer.close()
    assert threading.active_count() == before


def test_a_truncated_checkpoint_is_refused(tmp_path: Path) -> None:
    write_checkpoint(checkpoint(1), tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    for size in range(0, len(content), 7):
        (tmp_path / "torn").write_bytes(content[:size])
        with pytest.raises(TrainingError, match="of no use"):
            read_checkpoint(tmp_path / "torn")


def test_a_flipped_bit_never_changes_the_content(tmp_path: Path) -> None:
    write_checkpoint(checkpoint(1), tmp_path / "c")
    content = (tmp_path / "c").read_bytes()
    for at in range(0, len(content), 5):
        flip_bit(tmp_path / "c", at)
        try:
            back = read_checkpoint(tmp_path / "c")
        except TrainingError:
            pass
        else:
            # A flip in the blanks that pad the header changes no content.
            assert back.head == checkpoint(1).head
            assert all(torch.equal(back.tensors[n], t) for n, t in checkpoint(1).tensors.items())
        (tmp_path / "c").write_bytes(content)
