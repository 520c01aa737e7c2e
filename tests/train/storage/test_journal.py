"""A peer's journal on disk: records are read as written, and damage is found."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rumor.gossip import ConfigError, GoSGD, ProtocolConfig, TrainingError
from rumor.gossip.types import ShareId
from rumor.gossip.wire.codec import encode
from rumor.gossip.wire.messages import Ack, Push
from rumor.train import PeerConfig
from rumor.train.config import RunConfig
from rumor.train.loop.trainer import run
from rumor.train.storage.journal import (
    Began,
    Call,
    Closed,
    Head,
    Journal,
    JournalFile,
    Record,
    Trained,
    batch_checksum,
)

from ..letters import letter

SHARE = ShareId("ada", 2**40 + 1, 3)
HEAD = Head(
    id="ada",
    incarnation=2**40,
    addresses=("tcp://a:1",),
    anchor=bytes(range(16)),
    schema=bytes(16),
    rule="gosgd",
    topology="ring",
    seed=7,
    protocol=ProtocolConfig(wire="int8"),
    shards=2,
    host=b"",
    training={"task": "digits"},
    machine={"threads": 1},
    unix_s=1.5,
    clock_s=2.5,
)


def push(size_bytes: int) -> Push:
    return Push(seq=1, escrow=9, size_bytes=size_bytes, epoch=0, round=0, note=0, step=4)


def received(body: Any, frame: bytes = b"", method: str = "receive") -> Call:
    message = letter(body, frame_bytes=len(frame))
    return Call(method, 0.5, {"envelope": message}, bytes(encode(message, frame)[0]))


STEP = Call("step", 1.0, {"trained": True})

CALLS = [
    Call("join", 0.5, {"seeds": ("tcp://a:1", "tcp://b:2"), "founders": 3}),
    Call("join", 0.5, {"seeds": (), "founders": 1, "returning": True}),
    Call("step", 0.5, {"trained": True, "samples": None, "lr": 1e-300}),
    Call("step", 0.5, {"trained": True, "samples": 128, "lr": 0.1}),
    Call("step", 0.5, {"trained": False}),
    Call("wake", 0.5),
    Call("finish", 0.5),
    Call("leave", 0.5, {"burn": True}),
    received(Ack(1, 5)),
    received(push(4), b"abcd"),
    Call("inspected", 0.5, {"share": SHARE, "finite": True}),
    Call("attached", 0.5, {"share": SHARE._replace(shard=2), "usable": True}),
    received(Ack(1, 5), method="unsent"),
    Call("filled", 0.5, {"is_full": True}),
    Call("measured", 0.5, {"distances": {}}),
    Call("measured", 0.5, {"distances": {SHARE: 0.1, SHARE._replace(shard=2): math.inf}}),
    Call("sketched", 0.5, {"sketch": ()}),
    Call("sketched", 0.5, {"sketch": (0.1, -2.5e-300, 3.0)}),
    Call("trained_shard", 0.5, {"shard": 7}),
]


def write(path: Path, calls: list[Call] = CALLS, *, close: bool = True) -> Path:
    journal = Journal(path, HEAD)
    for number, call in enumerate(calls):
        journal.called(call._replace(now=number / 3))
    if close:
        journal.close()
    else:
        journal._file.close()
    return path


def read(path: Path) -> tuple[list[Record], bool]:
    file = JournalFile(path)
    return list(file), file.closed


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = JournalFile(write(tmp_path / "j"))
    entries = list(file)
    assert file.head == HEAD
    assert entries[:-1] == [call._replace(now=number / 3) for number, call in enumerate(CALLS)]
    assert entries[-1] == Closed() and file.closed
    # A second reading begins at the first record again.
    assert list(file) == entries


def test_marks_of_the_training_are_read_as_they_were_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", HEAD)
    for loss in (0.1, math.inf, -0.0):
        journal.began(np.array([3, 1]))
        journal.trained(loss)
    journal.close()
    batch = Began(batch_checksum(np.array([3, 1])))
    losses = [Trained(0.1), Trained(math.inf), Trained(-0.0)]
    assert read(tmp_path / "j") == (
        [batch, losses[0], batch, losses[1], batch, *losses[2:], Closed()],
        True,
    )


def test_the_journal_has_the_size_of_a_payload_but_not_its_bytes(tmp_path: Path) -> None:
    frame = b"weights!" * 1000
    (record, *_), _ = read(write(tmp_path / "j", [received(push(len(frame)), frame)]))
    lines = (tmp_path / "j").read_bytes().splitlines()
    assert sum(map(len, lines[1:])) < 500
    assert isinstance(record, Call)
    assert record.arguments["envelope"].frame_bytes == len(frame)


@pytest.mark.parametrize("cut_bytes", [1, 9, 20])
def test_all_records_before_a_torn_tail_are_read(tmp_path: Path, cut_bytes: int) -> None:
    path = write(tmp_path / "j", close=False)
    path.write_bytes(path.read_bytes()[:-cut_bytes])
    records, closed = read(path)
    assert [record._replace(now=0.5) for record in records if isinstance(record, Call)] == (
        CALLS[: len(records)]
    )
    assert not closed
    assert len(CALLS) - 2 <= len(records) < len(CALLS)


@pytest.mark.parametrize(
    "line",
    [
        *(
            b"",
            b"\xff" * 30,
            b"7",
            b"[]",
            b'["began"]',
            b'["_",1]',
            b'["trained",1,2]',
            b"[" * 9999,
        ),
        # No calls of a protocol, or not with these arguments.
        *(b'["close",0.5,{},""]', b'["step",0.5,"none",""]', b'["step","now",{},""]'),
        *(b'["receive",0.5,{},"AAAA"]', b'["inspected",0.5,{"share":7},""]'),
        b'["step",0.5,{"tra1ned":true},""]',
    ],
)
def test_an_unreadable_record_is_reported(tmp_path: Path, line: bytes) -> None:
    path = write(tmp_path / "j")
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:3], line, *lines[3:]]) + b"\n")
    with pytest.raises(TrainingError, match=f"{path}: record 3 is damaged"):
        read(path)


def test_nothing_follows_the_end(tmp_path: Path) -> None:
    path = write(tmp_path / "j")
    with pytest.raises(FileExistsError):
        Journal(path, HEAD)
    with path.open("ab") as file:
        file.write(b'["closed"]\n')
    with pytest.raises(TrainingError, match=f"record {len(CALLS) + 2} is damaged"):
        read(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a journal"),
        (b"PK\x03\x04 some other file", "not a journal"),
        (b"[]", "not a journal"),
        (b'{"id": "ada"}\n', "not a journal"),
        (b'{"rumor_journal": 6, "id": "ada"}\n', "another version"),
        (b'{"rumor_journal": 7, "id": ', "not a journal"),
        (b'{"rumor_journal": 7, "id": "ada"}\n', "head is not understood"),
        (b'{"rumor_journal": 7, "id": "../ada"}\n', "head is not understood"),
    ],
)
def test_a_file_that_is_not_a_journal_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "j").write_bytes(content)
    with pytest.raises(TrainingError, match=message):
        JournalFile(tmp_path / "j")


def test_calls_are_on_disk_before_their_messages_leave(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", HEAD)
    journal.called(STEP)
    assert read(tmp_path / "j") == ([], False)  # no message has left yet
    journal.flush()
    assert read(tmp_path / "j") == ([STEP], False)
    journal.close()
    journal.close()


def test_a_rule_that_cannot_be_replayed_is_refused_at_the_start(tmp_path: Path) -> None:
    rule = type("Mine", (GoSGD,), {"name": "mine"})()
    for given, message in ((rule, "has no function or class 'Mine'"), ("seasgd", "shared memory")):
        config = PeerConfig(rule=given, out=tmp_path / "run")
        with pytest.raises(ConfigError, match=message):
            run(RunConfig(journal=True), config)
        assert not (tmp_path / "run").exists()
