"""Between device and host: on a fake device in every order, and on CUDA where there is one."""

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from torch import nn

from rumor.gossip import TrainingError
from rumor.gossip.effects.effects import Combine, Drop, Mix, Reclaim, Release, Send, Snapshot, Stage
from rumor.gossip.types import ShareId, stream
from rumor.gossip.wire.formats import Form
from rumor.gossip.wire.messages import Chunk, Envelope
from rumor.train.tensors.cuda import DONE, CudaQueue, Held, Mark, Marks, queue_of
from rumor.train.tensors.shared_memory import SegmentPool
from rumor.train.tensors.store import TensorStore
from rumor.train.tensors.vector import Vector

from ..fake_queue import FakeMark, FakeQueue

FORMS = ["float32", "bfloat16", "int8", "topk:0.2"]


def buffer_of(store: TensorStore, share: ShareId) -> torch.Tensor:
    payload = store.staging.find(share).payload
    assert isinstance(payload, torch.Tensor)
    return payload


def near(module: nn.Module) -> nn.Module:
    other = copy.deepcopy(module)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.01)
    return other


def placed(module: nn.Module, queue: FakeQueue | None, anchor: nn.Module) -> Vector:
    queues = queue_of if queue is None else lambda device: queue
    vector = Vector(module, ("y",), sends_topk=True, queues=queues)
    vector.anchor_flats = Vector(copy.deepcopy(anchor)).flats
    return vector


def pair(queue: FakeQueue) -> tuple[Vector, Vector]:
    """The same model on a device and in host memory."""
    torch.manual_seed(0)
    start = nn.BatchNorm1d(40)
    module = near(start)
    return placed(module, queue, start), placed(copy.deepcopy(module), None, start)


def send(snapshot: int, size_bytes: int) -> Send:
    envelope = Envelope(
        swarm=b"",
        schema=b"",
        source="a",
        source_incarnation=1,
        destination="b",
        destination_incarnation=1,
        body=Chunk(1, 0, 0),
        frame_bytes=size_bytes,
    )
    return Send(envelope, snapshot)


def on_another_thread(work: object) -> object:
    """What *work* returns on a thread that stands for the network's."""
    found: list[object] = []
    assert callable(work)
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("wire", FORMS)
def test_a_device_takes_and_mixes_what_host_memory_does(wire: str) -> None:
    queue = FakeQueue()
    there, here = pair(queue)
    form = Form(wire)
    taken = [v.snapshot("x", form, rng=stream(0, "a", "r")).clone() for v in (there, here)]
    assert torch.equal(*taken)
    for vector in (there, here):
        vector.flats[0].mul_(0.5)
        vector.mix(taken[0], 0.3, form)
    assert torch.equal(there.flats[0], here.flats[0])


@pytest.mark.parametrize("wire", [wire for wire in FORMS if not wire.startswith("topk")])
def test_several_registers_cross_as_well(wire: str) -> None:
    queue = FakeQueue()
    there, here = pair(queue)
    form = Form(wire, registers=2)
    for vector in (there, here):
        vector.combine("y", [(1e-3, "x")])
    taken = [
        vector.snapshot(("x", "y"), form, rng=stream(0, "a", "r")).clone()
        for vector in (there, here)
    ]
    assert torch.equal(*taken)
    for vector in (there, here):
        vector.combine("y", [(2.0, (taken[0], form, 1)), (-0.5, (taken[0], form))])
    queue.finish()
    assert torch.equal(there.snapshot("y"), here.snapshot("y"))


def test_a_copy_and_a_combination_cross_as_well() -> None:
    queue = FakeQueue()
    there, here = pair(queue)
    form = Form(copy=True, anchor=True)
    share = here.snapshot("x", form)
    there.flats[0].zero_()
    there.mix(share, 1.0, form)
    assert torch.equal(there.flats[0], here.flats[0])
    assert torch.equal(there.snapshot("x", form), share)
    there.combine("y", [(2.0, "x"), (-1.0, (share, form))])
    queue.finish()
    assert torch.equal(there.snapshot("y"), here.snapshot("x"))


def test_a_snapshot_does_not_follow_what_training_does_before_it_has_left() -> None:
    queue = FakeQueue()
    there, here = pair(queue)
    expected = here.snapshot()
    store = TensorStore(there)
    for number in range(1, 6):
        store.carry_out(Snapshot(number, "x"))
        there.flats[0].add_(1)
    assert queue.waited == []
    frame = on_another_thread(lambda: store.frame_of(send(1, expected.numel())))
    assert isinstance(frame, memoryview)
    assert bytes(frame) == expected.numpy().tobytes()
    for _ in range(4):
        here.flats[0].add_(1)
    last = on_another_thread(lambda: store.frame_of(send(5, expected.numel())))
    assert isinstance(last, memoryview)
    assert bytes(last) == here.snapshot().numpy().tobytes()


@pytest.mark.parametrize("wire", FORMS)
def test_only_the_network_thread_waits(wire: str) -> None:
    queue = FakeQueue()
    there, here = pair(queue)
    form = Form(wire)
    store = TensorStore(there, lambda id: stream(0, "a", f"rounding:{id}"))
    share = here.snapshot("x", form, rng=stream(0, "b", "rounding"))
    store.carry_out(Snapshot(1, "x", form))
    store.carry_out(Stage(ShareId("b", 1, 1), 0, share.numel(), form), share.numpy().data)
    store.carry_out(Mix(ShareId("b", 1, 1), 0.5, form))
    on_another_thread(lambda: store.frame_of(send(1, share.numel())))
    assert threading.get_ident() not in queue.waited


def test_buffers_on_the_device_are_made_once() -> None:
    queue = FakeQueue()
    there, here = pair(queue)
    share = here.snapshot()
    store = TensorStore(there)
    for number in range(1, 20):
        store.carry_out(Snapshot(number, "x"))
        store.carry_out(Stage(ShareId("b", 1, number), 0, share.numel()), share.numpy().data)
        store.carry_out(Mix(ShareId("b", 1, number), 0.5))
        store.carry_out(Release(number))
        if number % 3 == 0:
            queue.finish()
    assert len(queue.buffers) <= 4


def test_what_is_kept_to_be_converted_gives_its_memory_back() -> None:
    queue = FakeQueue()
    there, here = pair(queue)
    store, expected = TensorStore(there), here.snapshot("x", Form("bfloat16"))
    for number in range(1, 6):
        store.carry_out(Snapshot(number, "x", Form("bfloat16")))
    for number in range(1, 6):
        frame = on_another_thread(partial(store.frame_of, send(number, expected.numel())))
        assert isinstance(frame, memoryview)
        assert bytes(frame) == expected.numpy().tobytes()
    copies = there._device_copies[torch.device("cpu")]
    assert copies is not None
    assert [len(kept) for kept in copies._leaving._kept.values()] == [2]


def test_a_staging_buffer_is_lent_again_only_when_the_device_has_read_it() -> None:
    queue = FakeQueue()
    there, here = pair(queue)
    share = here.snapshot()
    store = TensorStore(there)

    def come_and_go(seq: int) -> int:
        id = ShareId("b", 1, seq)
        with store.staging.landing(Stage(id, 0, share.numel()), share.numel()) as room:
            room[:] = share.numpy().data
        place = buffer_of(store, id).data_ptr()
        store.carry_out(Mix(id, 0.5))
        return place

    first = come_and_go(1)
    second = come_and_go(2)
    assert second != first
    queue.finish()
    assert come_and_go(3) in (first, second)


def test_memory_of_a_snapshot_is_not_used_again_while_the_device_writes_it() -> None:
    queue = FakeQueue()
    there, _ = pair(queue)
    store = TensorStore(there)
    store.carry_out(Snapshot(1, "x"))
    place = store._snapshots[1].host.data_ptr()
    store.carry_out(Release(1))
    store.carry_out(Snapshot(2, "x"))
    assert store._snapshots[2].host.data_ptr() != place
    queue.finish()
    store.carry_out(Snapshot(3, "x"))
    store.carry_out(Snapshot(4, "x"))
    assert place in [store._snapshots[number].host.data_ptr() for number in (3, 4)]


def whole_share(store: TensorStore, payload: torch.Tensor, seq: int) -> ShareId:
    """A share that has come, was looked at, and began its way to the device."""
    id = ShareId("b", 1, seq)
    with store.staging.landing(Stage(id, 0, payload.numel()), payload.numel()) as room:
        room[:] = payload.numpy().data
    store.staging.bring(id)
    return id


def test_a_share_begins_its_way_to_the_device_when_it_is_whole() -> None:
    queue = FakeQueue()
    there, here = pair(queue)
    share = here.snapshot()
    store = TensorStore(there)
    here.flats[0].mul_(0.5)
    there.flats[0].mul_(0.5)
    id = on_another_thread(lambda: whole_share(store, share, 1))
    assert isinstance(id, ShareId) and queue.buffers
    queue.finish()
    made = len(queue.buffers)
    # Should it be copied from there again, the mix would be wrong.
    buffer_of(store, id).zero_()
    store.carry_out(Mix(id, 0.5))
    here.mix(share, 0.5)
    assert torch.equal(there.flats[0], here.flats[0])
    assert len(queue.buffers) == made and queue.waited == []


def test_what_begins_its_way_early_is_bounded_and_the_rest_comes_when_it_is_mixed() -> None:
    queue = FakeQueue()
    there, here = pair(queue)
    share = here.snapshot()
    store = TensorStore(there)
    ids = [whole_share(store, share, seq) for seq in range(1, 7)]
    parts = len(there.plan(Form()).parts)
    assert len(queue.buffers) == 2 * parts
    for vector in (there, here):
        vector.flats[0].zero_()
    for id in ids:
        store.carry_out(Mix(id, 0.5))
        here.mix(share, 0.5)
    assert torch.equal(there.flats[0], here.flats[0])
    queue.finish()
    again = [whole_share(store, share, seq) for seq in range(7, 9)]
    assert len(queue.buffers) <= 4 * parts and all(map(store.staging.look, again))


def test_a_share_that_is_dropped_on_its_way_keeps_its_memory_until_it_is_read() -> None:
    queue = FakeQueue()
    there, here = pair(queue)
    share = here.snapshot()
    store = TensorStore(there)
    place = buffer_of(store, whole_share(store, share, 1)).data_ptr()
    store.carry_out(Drop(ShareId("b", 1, 1)))
    second = buffer_of(store, whole_share(store, share, 2)).data_ptr()
    assert second != place
    queue.finish()
    store.carry_out(Drop(ShareId("b", 1, 2)))
    for seq in range(3, 9):
        id = whole_share(store, share, seq)
        assert buffer_of(store, id).data_ptr() in (place, second)
        store.carry_out(Drop(id))
        queue.finish()
    assert len(queue.buffers) == 2 * len(there.plan(Form()).parts)
    assert not there._ahead


def test_a_share_may_be_dropped_while_it_is_handed_to_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = FakeQueue()
    there, here = pair(queue)
    share, bring = here.snapshot(), there.bring
    store = TensorStore(there)

    def interrupted(payload: torch.Tensor, form: Form, shard: int) -> Mark:
        store.carry_out(Drop(ShareId("b", 1, 1)))
        return bring(payload, form, shard)

    monkeypatch.setattr(there, "bring", interrupted)
    whole_share(store, share, 1)
    assert store.staging.look(ShareId("b", 1, 1)) is None and not there._ahead
    store.staging.bring(ShareId("b", 1, 1))
    assert not there._ahead


def test_a_share_is_combined_and_read_where_it_has_arrived() -> None:
    queue = FakeQueue()
    there, here = pair(queue)
    share = here.snapshot()
    store = TensorStore(there)
    id = whole_share(store, share, 1)
    queue.finish()
    made = len(queue.buffers)
    staged = store.staging.find(id)
    numbers = list(there.numbers_in(staged.payload, staged.form, 0))
    assert all(torch.equal(one, two) for one, two, _ in numbers)
    store.carry_out(Combine("y", ((2.0, id), (-1.0, "x"))))
    assert torch.equal(there.snapshot("y"), here.snapshot())
    assert made <= len(queue.buffers) <= made + len(numbers)
    store.close()
    assert not there._ahead and store.staging.look(id) is None


def test_the_training_thread_says_at_each_step_which_stream_trains() -> None:
    queue = FakeQueue()
    there, here = pair(queue)
    TensorStore(there).follow()
    TensorStore(here).follow()
    assert queue.followed == [threading.get_ident()]


@pytest.mark.parametrize("wire", FORMS)
def test_a_snapshot_that_a_device_still_copies_is_not_waited_for_by_who_asks_first(
    wire: str,
) -> None:
    queue = FakeQueue()
    there, _ = pair(queue)
    store = TensorStore(there, lambda id: stream(0, "a", f"rounding:{id}"))
    effect = Snapshot(1, "x", Form(wire))
    store.expect(effect)
    assert store.awaits_device(1)
    store.carry_out(effect)
    assert store.awaits_device(1)
    queue.finish()
    assert not store.awaits_device(1) and not store.awaits_device(2)
    assert store.frame_of(send(1, 64)) and queue.waited == []


@pytest.mark.parametrize("wire", ["float32", "bfloat16"])
def test_what_is_not_finite_is_not_sent_and_the_training_thread_hears_of_it_once(
    wire: str,
) -> None:
    queue = FakeQueue()
    there, _ = pair(queue)
    store = TensorStore(there)
    there.flats[0][3] = float("nan")
    store.carry_out(Snapshot(1, "x", Form(wire)))
    for _ in range(2):
        assert on_another_thread(lambda: store.frame_of(send(1, 64))) is None
        assert on_another_thread(lambda: store.segment_of(1)) == ""
    # Effects of the network thread go on; the next of the training thread is carried out, too.
    assert on_another_thread(lambda: store.carry_out(Drop(ShareId("b", 1, 1))))
    with pytest.raises(TrainingError, match="not finite"):
        store.carry_out(Release(1))
    assert not store._snapshots
    assert store.carry_out(Release(1))


def test_a_sum_that_overflows_on_the_device_is_looked_at_exactly() -> None:
    queue = FakeQueue()
    vector = Vector(nn.Linear(100, 2, dtype=torch.float64), queues=lambda device: queue)
    vector.flats[0][:4] = 1.7e308
    assert vector.snapshot().numel()


def test_a_kept_snapshot_is_mixed_back_from_host_memory() -> None:
    queue = FakeQueue()
    there, here = pair(queue)
    store = TensorStore(there)
    store.carry_out(Snapshot(1, "x"))
    for vector in (there, here):
        before = vector.flats[0].clone()
        vector.flats[0].zero_()
    store.carry_out(Reclaim(1, 0.25))
    store.carry_out(Release(1))
    assert torch.equal(there.flats[0], torch.zeros_like(before).lerp_(before, 0.25))
    assert queue.waited == []


def test_what_must_stay_is_held_until_its_mark_is_passed() -> None:
    held: Held[str] = Held()
    queue = FakeQueue()
    late = FakeMark(queue)
    held.until(late, "late")
    held.until(DONE, "early")
    assert held.passed() == ["early"]
    assert held.passed() == []
    late.done = True
    assert held.passed() == ["late"]


def test_several_marks_are_passed_with_the_last() -> None:
    queue = FakeQueue()
    one, two = FakeMark(queue), FakeMark(queue)
    both = Marks([one, two])
    one.done = True
    assert not both.query()
    both.synchronize()
    assert both.query()


def test_host_memory_needs_no_queue_and_other_devices_are_refused() -> None:
    assert queue_of(torch.device("cpu")) is None
    with pytest.raises(TrainingError, match="lies on meta"):
        queue_of(torch.device("meta"))


class FakeStream:
    """A stream that does all at once, and notes what it was told to wait for."""

    current: "FakeStream"

    def __init__(self, name: str = "beside") -> None:
        self.name = name
        self.log: list[str] = []

    def wait_event(self, event: "FakeEvent") -> None:
        self.log.append(f"event of {event.stream.name}")

    def wait_stream(self, stream: "FakeStream") -> None:
        self.log.append(f"stream {stream.name}")


class FakeEvent:
    """A place in a `FakeStream`."""

    def __init__(self, *, blocking: bool) -> None:
        assert blocking
        self.stream = FakeStream()

    def record(self, stream: FakeStream) -> None:
        self.stream = stream

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


@contextmanager
def on_stream(stream: FakeStream) -> Iterator[None]:
    before, FakeStream.current = FakeStream.current, stream
    yield
    FakeStream.current = before


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> FakeStream:
    """Fake streams in place of CUDA's; the one that is current at first."""
    FakeStream.current = FakeStream("training")
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: FakeStream())
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "stream", on_stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: FakeStream.current)
    return FakeStream.current


@pytest.mark.parametrize("wire", FORMS)
def test_streams_take_and_mix_what_host_memory_does(wire: str, streams: FakeStream) -> None:
    torch.manual_seed(0)
    start = nn.BatchNorm1d(40)
    module = near(start)
    here = placed(copy.deepcopy(module), None, start)
    there = Vector(module, sends_topk=True, queues=CudaQueue)
    there.anchor_flats = Vector(copy.deepcopy(start)).flats
    form, store = Form(wire), TensorStore(there, lambda id: stream(0, "a", "r"))
    share = here.snapshot("x", form, rng=stream(0, "a", "r"))
    store.carry_out(Snapshot(1, "x", form))
    frame = on_another_thread(lambda: store.frame_of(send(1, share.numel())))
    assert isinstance(frame, memoryview) and bytes(frame) == share.numpy().tobytes()
    for vector in (there, here):
        vector.flats[0].mul_(0.5)
    store.carry_out(Mix(whole_share(store, share, 1), 0.3, form))
    here.mix(share, 0.3, form)
    assert torch.equal(there.flats[0], here.flats[0])
    # For each part: one that it was copied from or to, on a stream beside.
    assert "event of beside" in streams.log


def test_streams_beside_wait_for_training_and_training_for_them(streams: FakeStream) -> None:
    queue = CudaQueue(torch.device("cpu"))
    numbers, total = torch.ones(16), torch.empty(1, dtype=torch.float64)
    host, landing = torch.empty(16), queue.buffer(64)
    queue.save(host, numbers, total, queue.note())
    assert torch.equal(host, numbers) and total.item() == 16
    assert queue._outward.log == ["event of training"] and queue._inward.log == []
    queue.hold(queue.bring(landing, host.view(torch.uint8), queue.note()))
    assert torch.equal(landing.view(torch.float32), numbers)
    assert queue._inward.log == ["event of training"]
    assert streams.log == ["event of beside"]


def test_another_stream_that_trains_waits_for_the_one_before(streams: FakeStream) -> None:
    queue, other = CudaQueue(torch.device("cpu")), FakeStream("other")
    queue.follow()
    assert streams.log == []
    with on_stream(other):
        queue.follow()
    assert other.log == ["stream training"]
    with queue.training():
        assert FakeStream.current is other
    assert FakeStream.current is streams


def test_what_a_conversion_raises_is_raised_where_it_is_waited_for(streams: FakeStream) -> None:
    def fail() -> None:
        raise RuntimeError("the device is gone")

    queue = CudaQueue(torch.device("cpu"))
    mark = queue.run(fail, queue.note())
    with pytest.raises(RuntimeError, match="the device is gone"):
        mark.synchronize()
    assert mark.query()


@pytest.mark.cuda
@pytest.mark.parametrize("wire", FORMS)
def test_cuda_takes_and_mixes_what_host_memory_does(wire: str) -> None:
    torch.manual_seed(0)
    start = nn.Linear(4096, 256)
    module = near(start)
    here = placed(copy.deepcopy(module), None, start)
    there = Vector(module.cuda(), sends_topk=True)
    anchor = Vector(copy.deepcopy(start).cuda())
    there.anchor_flats = anchor.flats
    form = Form(wire)
    store = TensorStore(there, lambda id: stream(0, "a", "rounding"))
    size = form.size_bytes(there.schema, 0)
    for number in range(1, 8):
        store.carry_out(Snapshot(number, "x", form))
        frame = on_another_thread(partial(store.frame_of, send(number, size)))
        assert isinstance(frame, memoryview)
        share, id = torch.frombuffer(bytearray(frame), dtype=torch.uint8), ShareId("b", 1, number)
        for flat in (there.flats[0], here.flats[0]):
            flat.mul_(0.99)
        store.carry_out(Stage(id, 0, size, form), frame)
        assert store.staging.is_finite(id)
        store.carry_out(Mix(id, 0.5, form))
        here.mix(share, 0.5, form)
        store.carry_out(Release(number))
    torch.testing.assert_close(there.flats[0].cpu(), here.flats[0], atol=1e-5, rtol=1e-4)


@pytest.mark.cuda
def test_cuda_reports_what_is_not_finite() -> None:
    vector = Vector(nn.Linear(4096, 256).cuda())
    store = TensorStore(vector)
    vector.flats[0][12345] = float("inf")
    store.carry_out(Snapshot(1, "x"))
    assert on_another_thread(lambda: store.frame_of(send(1, 64))) is None
    with pytest.raises(TrainingError, match="not finite"):
        store.carry_out(Release(1))


@pytest.mark.cuda
def test_a_cuda_stream_waits_for_the_other_and_no_thread_does() -> None:
    device = torch.device("cuda")
    queue = CudaQueue(device)
    numbers = torch.arange(1 << 20, dtype=torch.float32, device=device)
    host = torch.empty(1 << 20, pin_memory=True)
    total = torch.empty(1, dtype=torch.float64, pin_memory=True)
    queue.save(host, numbers, total, queue.note()).synchronize()
    assert torch.equal(host, numbers.cpu())
    landing = queue.buffer(4 << 20)
    queue.hold(queue.bring(landing, host.view(torch.uint8), queue.note()))
    assert torch.equal(landing.view(torch.float32), numbers)


@pytest.mark.cuda
def test_cuda_mixes_a_share_that_came_ahead_in_order_with_a_side_stream() -> None:
    torch.manual_seed(0)
    here = Vector(nn.Linear(4096, 1024))
    share = here.snapshot()
    there = Vector(nn.Linear(4096, 1024).cuda())
    store = TensorStore(there)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        store.follow()
        for seq in range(1, 6):
            id = on_another_thread(partial(whole_share, store, share, seq))
            assert isinstance(id, ShareId)
            there.flats[0].zero_()
            # On a thread whose current stream is another one.
            on_another_thread(partial(store.carry_out, Mix(id, 0.5)))
            found = there.flats[0].cpu()
            assert torch.equal(found, torch.zeros_like(found).lerp_(here.flats[0], 0.5))


@pytest.mark.cuda
def test_cuda_segments_are_page_locked_and_can_be_let_go() -> None:
    pool = SegmentPool(pinned=True)
    for _ in range(5):
        buffer = pool.lend(64 << 20)
        assert buffer.is_pinned()
        buffer.copy_(torch.ones(64 << 20, dtype=torch.uint8, device="cuda"), non_blocking=True)
        torch.cuda.synchronize()
        assert bool((buffer == 1).all())
        del buffer
    torch.zeros(1).cuda()
