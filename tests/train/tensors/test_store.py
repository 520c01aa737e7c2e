"""The tensor store: frames arrive, shares are mixed, snapshots are kept as long as needed."""

import math
import queue
import threading
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rumor.gossip import TrainingError
from rumor.gossip.effects.effects import (
    Attach,
    Combine,
    Measure,
    Mix,
    Release,
    Snapshot,
    Stage,
)
from rumor.gossip.errors import DecodeError, LocalProtocolError
from rumor.gossip.types import ShareId, SharePart, stream
from rumor.gossip.wire.codec import checksum
from rumor.gossip.wire.formats import Form, parse_wire
from rumor.train.tensors.shared_memory import Attachments, host_id
from rumor.train.tensors.store import TensorStore
from rumor.train.tensors.vector import Taken, Vector

from ...waiting import LIMIT_S
from ..letters import send

SHARE = ShareId("b", 1, 1)
WHOLE = Form()

needs_segments = pytest.mark.skipif(not host_id(), reason="this system has no segments")


def model(seed: int = 0, width: int = 100) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Linear(width, 40)


def rounding(id: int) -> Any:
    return stream(0, "a", f"rounding:{id}")


def drift(vector: Vector, alpha: float = 0.01) -> Vector:
    """Move the model of *vector* a little, and return *vector*."""
    vector.flats[0].add_(torch.randn_like(vector.flats[0]), alpha=alpha)
    return vector


def stage_frames(
    store: TensorStore,
    payload: Tensor,
    form: Form = WHOLE,
    share: ShareId = SHARE,
    cut: int = 4096,
) -> None:
    """Stage a share in frames, as the network thread does."""
    size = payload.numel()
    for start in range(0, size, cut):
        stop = min(start + cut, size)
        store.stage(Stage(share, start, size, form), payload[start:stop].numpy().data)


def staged_bytes(vector: Vector) -> int:
    return vector.memory.used_bytes


@pytest.mark.parametrize(("place", "cut"), [(0, 4096), (3000, 4096), (-1, 4096), (25, 101)])
def test_a_non_finite_frame_makes_its_share_unsound(place: int, cut: int) -> None:
    """This holds even if a frame boundary cuts a number apart."""
    vector = Vector(model())
    store, payload = TensorStore(vector), vector.snapshot()
    payload.view(torch.float32)[: 40 * 100][place] = float("nan")
    stage_frames(store, payload, cut=cut)
    assert not store.is_sound(SHARE, b"")


def test_a_frame_beyond_its_share_is_refused() -> None:
    store = TensorStore(Vector(model()))
    with pytest.raises(LocalProtocolError, match="a frame from 64 to 192 of 128"):
        store.stage(Stage(SHARE, 64, 128), bytes(128))


def test_frames_of_a_refused_share_leave_nothing_behind() -> None:
    vector = Vector(model())
    store, size = TensorStore(vector, None, Attachments()), vector.schema.share_bytes
    store.pop(SHARE)
    store.stage(Stage(SHARE, 0, size), bytes(size))
    assert not store.holds(SHARE) and staged_bytes(vector) == 0
    if host_id():
        store.take(Snapshot(1, "x", shown=True))
        assert store.attach(Attach(SHARE, store.segment_of(1), size)) and not store.holds(SHARE)


class Message:
    """A frame in its own memory, like `Received`."""

    header, route, key, place = b"", b"", b"", ""

    def __init__(self, frame: bytes, *, more: bool = False) -> None:
        self._frame, self.more = bytearray(frame), more

    def frame(self) -> memoryview:
        return memoryview(self._frame)

    def finish(self) -> bool:
        return self.more


def receive(store: TensorStore, payload: Tensor, stage: Stage, *, damaged: bool = False) -> None:
    frame = payload.numpy().tobytes()
    body = send(None, len(frame)).envelope
    store.receive(stage, body, checksum(frame) ^ damaged, Message(frame))


@pytest.fixture(params=["copied", "held"])
def pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Shares are either copied from their messages, or held in them."""
    kept = threading.Event()
    if request.param == "held":
        kept.set()
    monkeypatch.setattr("rumor.train.tensors.buffers._messages_keep_pages", kept)
    return str(request.param)


@pytest.mark.parametrize("frame_bytes", [64, 4096, 4100, 1 << 20])
@pytest.mark.parametrize(
    ("wire", "shard", "fraction"),
    [
        ("float32", 0, 0.25),
        ("float32", 2, 1.0),
        ("bfloat16", 1, 0.25),
        ("int8", 2, 1.0),
        ("topk:0.1", 0, 0.25),
    ],
)
def test_frames_of_any_size_are_mixed_like_their_snapshot(
    pages: str, frame_bytes: int, wire: str, shard: int, fraction: float
) -> None:
    options: dict[str, Any] = {"shards": 3, "keeps_anchor": True, "sends_topk": True}
    sender, receiver, expected = (Vector(model(), **options) for _ in range(3))
    store, taken, form = TensorStore(receiver), TensorStore(drift(sender), rounding), Form(wire)
    size, share = form.size_bytes(sender.schema, shard), ShareId("b", 1, 1, shard)
    taken.take(Snapshot(1, "x", form, shard))
    frame = taken.frame_of(send(1, size))
    assert frame is not None
    payload = torch.frombuffer(bytearray(frame), dtype=torch.uint8)
    for start in reversed(range(0, size, frame_bytes)):
        receive(store, payload[start : start + frame_bytes], Stage(share, start, size, form))
    assert store.is_sound(share, b"") and staged_bytes(receiver) == size
    # A share that mixing converts is copied anyway.
    is_copied = pages == "copied" or wire != "float32"
    assert isinstance(store._shares[share].payload, Tensor) is is_copied
    if wire == "float32":
        assert store.measured(Measure((share,)))[share] > 0
    store.mix(Mix(share, fraction, form))
    expected.mix(payload, fraction, form, shard)
    assert torch.equal(receiver.flats[0], expected.flats[0])
    assert not torch.equal(receiver.flats[0], Vector(model()).flats[0])
    assert staged_bytes(receiver) == 0
    with pytest.raises(LocalProtocolError, match="mixed before"):
        store.mix(Mix(share, fraction, form))


def test_a_damaged_frame_is_refused_and_may_be_sent_again(pages: str) -> None:
    vector = Vector(model())
    store, payload = TensorStore(vector), Vector(model(1)).snapshot()
    stage = Stage(SHARE, 0, payload.numel())
    with pytest.raises(DecodeError, match="damaged"):
        receive(store, payload, stage, damaged=True)
    payload.view(torch.float32)[7] = float("nan")
    receive(store, payload, stage)
    assert not store.is_sound(SHARE, b"")
    payload.view(torch.float32)[7] = 1.0
    receive(store, payload, stage)
    assert store.is_sound(SHARE, b"")
    short = Message(b"short")
    with pytest.raises(DecodeError, match="as long as the header says"):
        store.receive(stage, send(None, 6).envelope, 0, short)


def test_parts_of_a_share_combine_with_registers_until_it_is_dropped() -> None:
    form, sender = Form(registers=2), Vector(model(1), ("y",))
    sender.combine("y", [(3.0, "x")])
    vector = Vector(model(), ("y",))
    store, start = TensorStore(vector), vector.flats[0].clone()
    stage_frames(store, sender.snapshot(("x", "y"), form), form)
    assert store.is_sound(SHARE, b"")
    store.combine(Combine("y", ((2.0, SHARE), (-1.0, SharePart(SHARE, 1)), (0.5, "x"))))
    store.combine(Combine("x", ((2.0, "y"), (2.0, SHARE))))
    torch.testing.assert_close(vector.flats[0], start)
    store.pop(SHARE)
    assert staged_bytes(vector) == 0


def test_a_non_finite_snapshot_has_no_frame() -> None:
    vector = Vector(model())
    store = TensorStore(vector)
    vector.flats[0][7] = float("nan")
    with pytest.raises(TrainingError, match="not finite"):
        store.take(Snapshot(1, "x"))
    assert store.frame_of(send(1, 64)) is None


@pytest.mark.parametrize("is_sound", [True, False])
def test_frames_of_a_large_snapshot_are_available_while_it_is_taken(
    is_sound: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    vector = Vector(model(width=200_000))
    store, size = TensorStore(vector), vector.schema.share_bytes
    if not is_sound:
        vector.flats[0][-1] = float("nan")
    raw, starts, found = vector.flats[0].view(torch.uint8), list[int](), queue.Queue[Any]()
    reach = Taken.reach

    def reach_and_read(taken: Taken, size_bytes: float = math.inf, after_bytes: int = 0) -> None:
        assert after_bytes == 0, "the model has one dtype"
        reach(taken, size_bytes)
        if size_bytes < size:
            starts.append(int(size_bytes) - 64)
            frame = store.frame_of(send(1, 64, starts[-1]))
            assert frame == raw[starts[-1] :][:64].numpy().tobytes()

    def read_last_frame() -> None:
        # The network thread asks for the last bytes first, and waits.
        threading.Thread(target=lambda: found.put(store.frame_of(send(1, 64, size - 64)))).start()

    monkeypatch.setattr(Taken, "reach", reach_and_read)
    with nullcontext() if is_sound else pytest.raises(TrainingError, match="not finite"):
        store.take(Snapshot(1, "x"), read_last_frame)
    assert len(starts) > 3
    last = found.get(timeout=LIMIT_S)
    assert last == (raw[-64:].numpy().tobytes() if is_sound else None)
    assert (store.frame_of(send(1, 64)) is None) is not is_sound and store.failure is None


@pytest.mark.parametrize(
    ("width", "form", "is_shown", "count"),
    [
        (200_000, WHOLE, False, 1),
        (200_000, Form(copy=True), False, 1),
        pytest.param(200_000, WHOLE, True, 0, marks=needs_segments),
        (400_000, Form("bfloat16"), False, 0),
        (100, WHOLE, False, 0),
    ],
)
def test_only_a_large_plain_snapshot_is_available_early(
    width: int, form: Form, is_shown: bool, count: int
) -> None:
    begun = list[int]()
    vector = Vector(model(width=width), keeps_anchor=True)
    store = TensorStore(vector, attachments=Attachments())
    store.take(Snapshot(1, "x", form, shown=is_shown), lambda: begun.append(1))
    assert len(begun) == count
    store.close()


def test_a_snapshot_is_not_available_before_all_ranks_refresh() -> None:
    vector, begun = Vector(model(width=200_000)), list[int]()
    store = TensorStore(vector)

    def fail() -> None:
        raise TrainingError("rank 1 has died")

    vector.refresh = fail
    with pytest.raises(TrainingError, match="rank 1 has died"):
        store.take(Snapshot(1, "x"), lambda: begun.append(1))
    assert not begun and store.frame_of(send(1, 64)) is None


def test_a_large_snapshot_released_while_it_is_taken_is_freed() -> None:
    vector = Vector(model(width=200_000))
    store = TensorStore(vector)
    store.take(Snapshot(1, "x"), lambda: store.release(Release(1)))
    assert store.frame_of(send(1, 64)) is None and not store._released
    assert vector.memory.used_bytes == 0


def test_a_snapshot_buffer_is_returned_with_its_last_frame() -> None:
    vector = Vector(model())
    store, size, memory = TensorStore(vector), vector.schema.share_bytes, vector.memory
    store.take(Snapshot(1, "x"))
    frames = [store.frame_of(send(1, 64, start)) for start in (0, 64)]
    store.release(Release(1))
    assert memory.used_bytes == size
    frames.clear()
    assert (memory.used_bytes, memory.idle_bytes) == (0, size)
    # A snapshot that is released before it is taken is freed.
    store.release(Release(2))
    store.take(Snapshot(2, "x"))
    assert store.frame_of(send(2, 64)) is None and not store._released
    assert memory.used_bytes == 0


@needs_segments
@pytest.mark.parametrize("wire", ["float32", "int8"])
def test_a_share_is_mixed_from_the_memory_of_its_sender(wire: str) -> None:
    vectors = [Vector(model(), keeps_anchor=True) for _ in range(3)]
    sender = TensorStore(drift(vectors[0]), rounding, Attachments())
    receiver = TensorStore(vectors[1], attachments=Attachments())
    form = Form(wire)
    size = form.size_bytes(vectors[0].schema, 0)
    sender.take(Snapshot(1, "x", form, shown=True))
    assert receiver.attach(Attach(SHARE, sender.segment_of(1), size, form))
    assert receiver.is_sound(SHARE, b"")
    receiver.mix(Mix(SHARE, 0.5, form))
    vectors[2].mix(vectors[0].snapshot("x", form, rng=rounding(1)), 0.5, form)
    assert torch.equal(vectors[1].flats[0], vectors[2].flats[0])
    assert vectors[1].memory.used_bytes + vectors[1].memory.idle_bytes == 0


@needs_segments
def test_memory_that_a_silent_neighbor_may_read_is_never_reused() -> None:
    store = TensorStore(Vector(model()), attachments=Attachments())
    names = []
    for number, abandoned in ((1, False), (2, True), (3, False)):
        store.take(Snapshot(number, "x", shown=True))
        names.append(store.segment_of(number))
        store.release(Release(number, abandoned=abandoned))
    store.take(Snapshot(4, "x"))
    assert store.segment_of(4) == ""
    assert names[0] == names[1] != names[2]
    attachments = Attachments()
    assert attachments.open(names[1], 64) is None
    assert attachments.open(names[2], 64) is not None


def test_without_segments_no_snapshot_is_shared_or_attached() -> None:
    store = TensorStore(Vector(model()))
    store.take(Snapshot(1, "x", shown=True))
    assert store.segment_of(1) == ""
    store.release(Release(1, abandoned=True))
    assert not store.attach(Attach(SHARE, "1:2:" + "0" * 32, 64))
    reader = TensorStore(Vector(model()), attachments=Attachments())
    assert not reader.attach(Attach(SHARE, "nowhere", 64))


def test_one_thread_stages_frames_while_another_drops_and_mixes() -> None:
    vector = Vector(model())
    store, size = TensorStore(vector), vector.schema.share_bytes
    zeros = bytes(size)
    arrived: queue.Queue[ShareId | None] = queue.Queue()

    def decide() -> None:
        while (share := arrived.get()) is not None:
            if share.seq % 2:
                store.mix(Mix(share, 0.5))
            else:
                store.pop(share)

    thread = threading.Thread(target=decide)
    thread.start()
    try:
        for seq in range(300):
            share = ShareId("b", 1, seq)
            if seq % 4 == 0:
                # Refused before its frame lands.
                arrived.put(share)
            store.stage(Stage(share, 0, size), zeros)
            arrived.put(share)
    finally:
        arrived.put(None)
        thread.join()
    assert not store._shares and staged_bytes(vector) == 0
    assert torch.isfinite(vector.flats[0]).all()
    assert float(vector.flats[0].abs().max()) < 1e-3


@pytest.mark.usefixtures("pages")
def test_a_copy_is_sound_only_with_the_anchor_of_its_swarm() -> None:
    module, newcomer = nn.BatchNorm1d(64), nn.BatchNorm1d(64)
    donor, vector = Vector(module, keeps_anchor=True), Vector(newcomer, keeps_anchor=True)
    swarm, form = donor.anchor(), Form(copy=True, anchor=True)
    module(torch.randn(4, 64))
    store, payload = TensorStore(vector), donor.snapshot("x", form)
    size = payload.numel()
    for start in range(0, size, 192):
        receive(store, payload[start : start + 192], Stage(SHARE, start, size, form))
    assert store.is_sound(SHARE, swarm) and not store.is_sound(SHARE, donor.anchor())
    store.mix(Mix(SHARE, 1.0, form))
    for name, tensor in module.state_dict().items():
        assert torch.equal(newcomer.state_dict()[name], tensor)
    assert vector.kept_anchor() == swarm and staged_bytes(vector) == 0
    assert not store.is_sound(SHARE, swarm)


@pytest.mark.parametrize("wire", ["float32", "bfloat16", "float16", "int8", "topk:0.05"])
def test_sender_and_receivers_read_the_same_numbers(wire: str) -> None:
    """To the last bit, without an anchor, and with stochastic rounding."""
    sender, receiver = (Vector(model(), ("y", "sum")) for _ in range(2))
    here = TensorStore(sender, rounding)
    there = TensorStore(receiver)
    form, start = Form(wire, bare=True), sender.flats[0].clone()
    drift(sender)
    here.take(Snapshot(3, "x", form))
    frame = here.frame_of(send(3, form.size_bytes(sender.schema, 0)))
    assert frame is not None
    stage_frames(there, torch.frombuffer(bytearray(frame), dtype=torch.uint8), form)
    assert there.is_sound(SHARE, b"")
    here.combine(Combine("sum", ((1.0, 3),)))
    there.combine(Combine("sum", ((1.0, SHARE),)))
    mine, theirs = (vector.snapshot("sum").view(torch.float32) for vector in (sender, receiver))
    assert torch.equal(mine, theirs) and mine.any()
    off = (mine - sender.flats[0]).abs()
    if wire.startswith("topk"):
        # Only the largest numbers are sent, and all others are 0.
        kept = parse_wire(wire).kept(mine.numel())
        assert int((mine != 0).sum()) == kept and int((off == 0).sum()) >= kept
        assert mine[mine != 0].abs().min() >= sender.flats[0][mine == 0].abs().max()
    else:
        assert off.max() <= {"float32": 0, "int8": 2e-3}.get(wire, 1e-3)
    assert torch.equal(receiver.flats[0], start)
    here.release(Release(3))
    with pytest.raises(TrainingError, match="snapshot 3 was not taken"):
        here.combine(Combine("sum", ((1.0, 3),)))


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("wire", ["float32", "bfloat16", "int8"])
def test_a_staged_share_is_measured_in_its_buffer(shards: int, wire: str) -> None:
    form, shares = Form(wire), list[ShareId]()
    ours, theirs = (Vector(model(), shards=shards, keeps_anchor=True) for _ in range(2))
    store = TensorStore(ours)
    drift(theirs, 0.1)
    for seq, shard in ((1, 0), *((2, shard) for shard in range(shards))):
        share = ShareId("b", 1, seq, shard)
        rng = stream(0, "b", f"rounding:{seq}")
        stage_frames(store, theirs.snapshot("x", form, shard, rng), form, share)
        shares.append(share)
    store.mix(Mix(shares[0], 0.5, form))
    found = store.measured(Measure((*shares[1:], shares[0])))
    assert list(found) == shares[1:]
    squared = (theirs.flats[0].double() - ours.flats[0].double()).square().sum()
    assert math.fsum(d**2 for d in found.values()) == pytest.approx(float(squared), rel=2e-2)
    if wire == "float32":
        assert math.fsum(d**2 for d in found.values()) == pytest.approx(float(squared), rel=1e-12)
    for share in shares[1:]:
        store.pop(share)
    assert store.measured(Measure(tuple(shares))) == {}
    store.close()
