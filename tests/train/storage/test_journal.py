"""A peer's journal on disk: records are read as written, and damage is found."""

import math
import struct
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch

from rumor.gossip import ConfigError, GoSGD, TrainingError
from rumor.gossip.effects.effects import (
    Combine,
    Drop,
    Effect,
    Mix,
    Reclaim,
    Send,
    Snapshot,
    Wait,
)
from rumor.gossip.effects.events import Event
from rumor.gossip.effects.ledger import Entry as LedgerEntry
from rumor.gossip.effects.ledger import Kind
from rumor.gossip.types import ShareId, SharePart
from rumor.gossip.weight import UNIT
from rumor.gossip.wire.codec import encode
from rumor.gossip.wire.formats import Form
from rumor.gossip.wire.messages import Ack, Push
from rumor.train import PeerConfig
from rumor.train.config import RunConfig
from rumor.train.loop.trainer import run
from rumor.train.model import fingerprint
from rumor.train.storage.journal import (
    Began,
    Call,
    Closed,
    Decided,
    Exchanged,
    Fingerprint,
    Head,
    Journal,
    JournalFile,
    Trained,
    in_words,
    pack,
    unpack,
)

from ..letters import letter

SHARE = ShareId("ada", 2**40 + 1, 3)
TENSORS = [torch.arange(3.0), torch.tensor(7)]


def push(size_bytes: int) -> Push:
    return Push(seq=1, escrow=9, size_bytes=size_bytes, epoch=0, round=0, note=0, step=4)


def received(body: Any, frame: bytes = b"", method: str = "receive") -> Call:
    message = letter(body, frame_bytes=len(frame))
    return Call(method, {"envelope": message}, bytes(encode(message, frame)[0]))


STEP = Call("step", {"trained": True})

CALLS = [
    Call("join", {"seeds": ("tcp://a:1", "tcp://b:2"), "founders": 3}),
    Call("join", {"seeds": (), "founders": 1, "returning": True}),
    Call("step", {"trained": True, "samples": None, "lr": 1e-300}),
    Call("step", {"trained": True, "samples": 128, "lr": 0.1}),
    Call("step", {"trained": False}),
    Call("wake"),
    Call("finish"),
    Call("leave", {"burn": True}),
    received(Ack(1, 5)),
    received(push(4), b"abcd"),
    Call("inspected", {"share": SHARE, "finite": True}),
    Call("attached", {"share": SHARE._replace(shard=2), "usable": True}),
    received(Ack(1, 5), method="unsent"),
    Call("filled", {"is_full": True}),
    Call("measured", {"distances": {}}),
    Call("measured", {"distances": {SHARE: 0.1, SHARE._replace(shard=2): math.inf}}),
    Call("sketched", {"sketch": ()}),
    Call("sketched", {"sketch": (0.1, -2.5e-300, 3.0)}),
    Call("trained_shard", {"shard": 7}),
    Call("read", {"peer": "ada"}),
]


def write(path: Path, calls: list[Call] = CALLS, *, close: bool = True) -> Path:
    journal = Journal(path, {"id": "ada"}, TENSORS)
    for number, call in enumerate(calls):
        journal.called(call, number / 3)
    if close:
        journal.close()
    else:
        journal._file.close()
    return path


def read(path: Path) -> tuple[list[Any], bool]:
    file = JournalFile(path)
    try:
        return [record for record, _ in file], file.closed
    finally:
        file.close()


def test_calls_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = JournalFile(write(tmp_path / "j"))
    entries = list(file)
    file.close()
    assert file.head == {"id": "ada"}
    assert entries[:-2] == [(call, number / 3) for number, call in enumerate(CALLS)]
    assert entries[-2:] == [(Fingerprint(fingerprint(TENSORS)), None), (Closed(), None)]
    assert file.closed
    assert file.position_bytes == file.path.stat().st_size


@pytest.mark.parametrize(
    "mark",
    [
        Began(2**32 - 1),
        Trained(0.1),
        Decided(2**63 * UNIT, "mix ada#3 0.5"),
        Decided(3 * UNIT // 2, ""),
        Fingerprint((1, 2)),
        Exchanged(bytes(range(16)), 3, True),
        Closed(),
    ],
)
def test_marks_are_read_as_they_were_written(mark: Any) -> None:
    assert unpack(*pack(mark)) == (mark, None)


def test_the_journal_has_the_size_of_a_payload_but_not_its_bytes(tmp_path: Path) -> None:
    frame = b"weights!" * 1000
    (record, *_), _ = read(write(tmp_path / "j", [received(push(len(frame)), frame)]))
    assert (tmp_path / "j").stat().st_size < 500
    assert record.arguments["envelope"].frame_bytes == len(frame)


@pytest.mark.parametrize("body", [b'["close", {}, 0.0]', b'["step", "no arguments", 0.0]'])
def test_an_invalid_call_of_a_protocol_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="no call of a protocol"):
        unpack(1, body)


@pytest.mark.parametrize("cut_bytes", [1, 9, 20])
def test_all_records_before_a_torn_tail_are_read(tmp_path: Path, cut_bytes: int) -> None:
    path = write(tmp_path / "j", close=False)
    path.write_bytes(path.read_bytes()[:-cut_bytes])
    records, closed = read(path)
    assert records == CALLS[: len(records)] and not closed
    assert len(CALLS) - 2 <= len(records) < len(CALLS)


def test_a_changed_byte_is_reported_with_its_record(tmp_path: Path) -> None:
    path = write(tmp_path / "j")
    with pytest.raises(FileExistsError):
        Journal(path, {}, TENSORS)
    data = path.read_bytes()
    starts = starts_of(data)
    # An impossible length is damage, too, and so are bytes after the end.
    damages = [(number, start, start + 8, 1) for number, start in enumerate(starts)][1:]
    for number, start, at, mask in (*damages, (2, starts[2], starts[2] + 3, 0x7F)):
        changed = bytearray(data)
        changed[at] ^= mask
        path.write_bytes(changed)
        with pytest.raises(TrainingError, match=f"record {number}, at byte {start}, is damaged"):
            read(path)
    path.write_bytes(data + data[-9:])
    with pytest.raises(TrainingError, match="damaged"):
        read(path)


@pytest.mark.parametrize("body", [b"", b"\xff" * 30, b'["Began","x"]', b'["Trained"]', b'["_", 1]'])
@pytest.mark.parametrize("kind", [1, 2, 200])
def test_an_undecodable_record_is_damage(tmp_path: Path, kind: int, body: bytes) -> None:
    path = write(tmp_path / "j", [])
    head = path.read_bytes()[: starts_of(path.read_bytes())[1]]
    path.write_bytes(head + struct.pack("<IIB", len(body), crc32(body, kind), kind) + body)
    with pytest.raises(TrainingError, match=r"record 1, .*damaged"):
        read(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a journal"),
        (b"PK\x03\x04 some other file", "not a journal"),
        (b"rumor journal 1\n", "another version"),
        (b"rumor journal 6\n", "cut short in its head"),
        (b"rumor journal 6\n" + struct.pack("<IIB", 2, crc32(b"[]"), 0) + b"[]", "damaged"),
        (b"rumor journal 6\n" + struct.pack("<IIB", 1, crc32(b"{"), 0) + b"{", "damaged"),
    ],
)
def test_a_file_that_is_not_a_journal_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "j").write_bytes(content)
    with pytest.raises(TrainingError, match=message):
        JournalFile(tmp_path / "j")
    with pytest.raises(TrainingError, match="not understood"):
        Head.from_json({"id": "ada"})


def test_calls_are_on_disk_before_their_messages_leave(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", {}, TENSORS)
    journal.called(STEP, 1.0)
    assert read(tmp_path / "j") == ([], False)  # no message has left yet
    journal.decided([Send(letter(Ack(1, 5)))], 7)
    assert read(tmp_path / "j") == ([STEP], False)
    journal.called(STEP, 2.0)
    journal.decided([LedgerEntry(Kind.FOUNDED, 7)], 7)
    assert read(tmp_path / "j")[0][-1] == Decided(7, "")
    journal.close()
    journal.close()


def test_a_fingerprint_of_the_model_is_written_at_intervals(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", {}, TENSORS)
    for step in range(41):
        journal.began(np.array([step]))
        journal.trained(1.0)
        journal.check()
    journal.close()
    kinds = [type(record) for record in read(tmp_path / "j")[0]]
    assert kinds.count(Began) == kinds.count(Trained) == 41
    assert 2 <= kinds.count(Fingerprint) <= 3


def test_decisions_are_described_in_words() -> None:
    effects: list[Effect | Event] = [
        Snapshot(1, "x", Form(copy=True)),
        Snapshot(2, "x", Form("int8"), shard=3),
        Wait(1, ()),
        Mix(SHARE, 1 / 3),
        Mix(SHARE._replace(shard=2), 0.5, Form("topk:0.01")),
        Reclaim(2, 0.25),
        Combine("x", ((0.5, "y"), (0.5, SHARE))),
        Snapshot(3, ("x", "y"), Form("int8", registers=2)),
        Combine("y", ((1.0, SharePart(SHARE, 1)),)),
        Drop(SHARE),
    ]
    assert in_words(effects) == (
        "copy x; snapshot x of shard 3 as int8; mix ada#3 0.3333333333333333; "
        "mix ada#3/2 0.5 as topk:0.01; reclaim 2 0.25; combine x: 0.5 y, 0.5 ada#3; "
        "snapshot x and y as int8; combine y: 1.0 part 1 of ada#3"
    )


def test_a_rule_that_cannot_be_replayed_is_refused_at_the_start(tmp_path: Path) -> None:
    rule = type("Mine", (GoSGD,), {"name": "mine"})()
    config = PeerConfig(rule=rule, out=tmp_path / "run")
    with pytest.raises(ConfigError, match="has no function or class 'Mine'"):
        run(RunConfig(journal=True), config)
    assert not (tmp_path / "run").exists()


def starts_of(data: bytes | bytearray) -> list[int]:
    """Position of each record in bytes, the head's first."""
    starts, position = [], len(b"rumor journal 6\n")
    while position < len(data):
        starts.append(position)
        position += 9 + struct.unpack_from("<I", data, position)[0]
    return starts
