"""Transfers between device and host, on a fake device and on CUDA if available."""

import copy
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from torch import nn

from rumor.gossip import TrainingError
from rumor.gossip.effects.effects import Mix, Release, Snapshot, Stage
from rumor.gossip.types import ShareId, stream
from rumor.gossip.wire.formats import Form
from rumor.train.tensors.buffers import Memory
from rumor.train.tensors.cuda import CudaQueue, queue_of
from rumor.train.tensors.store import TensorStore
from rumor.train.tensors.vector import Vector

from ..fake_queue import FakeQueue
from ..letters import send

FORMS = ["float32", "bfloat16", "int8", "topk:0.2"]


def perturbed_copy(module: nn.Module) -> nn.Module:
    other = copy.deepcopy(module)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.01)
    return other


def make_vector(module: nn.Module, queue: FakeQueue | None, anchor: nn.Module) -> Vector:
    queues = queue_of if queue is None else lambda device: queue
    vector = Vector(module, ("y",), sends_topk=True, queues=queues)
    vector.anchor_flats = Vector(copy.deepcopy(anchor)).flats
    return vector


def pair() -> tuple[FakeQueue, Vector, Vector, TensorStore]:
    """One model on a fake device and in host memory, and a store of the vector on the device."""
    torch.manual_seed(0)
    start, queue = nn.BatchNorm1d(40), FakeQueue()
    module = perturbed_copy(start)
    there, here = make_vector(module, queue, start), make_vector(copy.deepcopy(module), None, start)
    return queue, there, here, TensorStore(there, lambda id: stream(0, "a", f"rounding:{id}"))


def on_another_thread(work: Callable[[], object]) -> object:
    """Run *work* on a thread in place of the network thread, and return its result."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(work).result()


@pytest.mark.parametrize("wire", FORMS)
def test_a_device_snapshots_mixes_and_combines_like_host_memory(wire: str) -> None:
    queue, there, here, _ = pair()
    form, both = Form(wire), Form(wire, registers=2)
    taken = [v.snapshot("x", form, rng=stream(0, "a", "r")).clone() for v in (there, here)]
    assert torch.equal(*taken)
    for vector in (there, here):
        vector.flats[0].mul_(0.5)
        vector.mix(taken[0], 0.3, form)
        vector.combine("y", [(1e-3, "x")])
    assert torch.equal(there.flats[0], here.flats[0])
    if wire.startswith("topk"):
        return
    names = ("x", "y")
    taken = [v.snapshot(names, both, rng=stream(0, "a", "r")).clone() for v in (there, here)]
    assert torch.equal(*taken)
    whole = Form(copy=True, anchor=True)
    there.mix(here.snapshot("x", whole), 1.0, whole)
    assert torch.equal(there.snapshot("x", whole), here.snapshot("x", whole))
    for vector in (there, here):
        vector.combine("y", [(2.0, (taken[0], both, 1)), (-0.5, (taken[0], both, 0))])
    queue.finish()
    assert torch.equal(there.snapshot("y"), here.snapshot("y"))


def test_training_does_not_change_a_snapshot_that_still_waits() -> None:
    queue, there, here, store = pair()
    expected = here.snapshot()
    for number in range(1, 6):
        store.take(Snapshot(number, "x"))
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
def test_only_the_network_thread_waits_for_the_device(wire: str) -> None:
    queue, _, here, store = pair()
    form = Form(wire)
    share = here.snapshot("x", form, rng=stream(0, "b", "rounding"))
    store.take(Snapshot(1, "x", form))
    store.stage(Stage(ShareId("b", 1, 1), 0, share.numel(), form), share.numpy().data)
    store.mix(Mix(ShareId("b", 1, 1), 0.5, form))
    on_another_thread(lambda: store.frame_of(send(1, share.numel())))
    assert threading.get_ident() not in queue.waited


def test_a_staging_buffer_is_reused_only_after_the_device_reads_it() -> None:
    queue, _, here, store = pair()
    share = here.snapshot()

    def stage_and_mix(seq: int) -> int:
        id = ShareId("b", 1, seq)
        store.stage(Stage(id, 0, share.numel()), share.numpy().data)
        place = store._shares[id].payload[:1].data_ptr()
        store.mix(Mix(id, 0.5))
        return place

    first = stage_and_mix(1)
    second = stage_and_mix(2)
    assert second != first
    queue.finish()
    assert stage_and_mix(3) in (first, second)


def test_snapshot_memory_is_not_reused_while_the_device_writes_it() -> None:
    queue, _, _, store = pair()
    store.take(Snapshot(1, "x"))
    place = store._snapshots[1].host.data_ptr()
    store.release(Release(1))
    store.take(Snapshot(2, "x"))
    assert store._snapshots[2].host.data_ptr() != place
    queue.finish()
    store.free_idle()
    store.take(Snapshot(3, "x"))
    store.take(Snapshot(4, "x"))
    assert place in [store._snapshots[number].host.data_ptr() for number in (3, 4)]


@pytest.mark.parametrize("wire", FORMS)
def test_a_snapshot_awaits_the_device_until_it_is_copied(wire: str) -> None:
    queue, _, _, store = pair()
    store.take(Snapshot(1, "x", Form(wire)))
    assert store.awaits_device(1)
    queue.finish()
    assert not store.awaits_device(1) and not store.awaits_device(2)
    assert store.frame_of(send(1, 64)) and queue.waited == []


@pytest.mark.parametrize("wire", ["float32", "bfloat16"])
def test_a_non_finite_snapshot_is_not_sent_and_reported_once(wire: str) -> None:
    _, there, _, store = pair()
    there.flats[0][3] = float("nan")
    store.take(Snapshot(1, "x", Form(wire)))
    assert on_another_thread(lambda: store.frame_of(send(1, 64))) is None
    assert isinstance(store.failure, TrainingError) and "not finite" in str(store.failure)
    store.failure = None
    assert store.frame_of(send(1, 64)) is None and store.segment_of(1) == ""
    assert store.failure is None
    store.release(Release(1))
    assert not store._snapshots


def test_a_sum_that_overflows_on_the_device_is_checked_exactly() -> None:
    queue = FakeQueue()
    vector = Vector(nn.Linear(100, 2, dtype=torch.float64), queues=lambda device: queue)
    vector.flats[0][:4] = 1.7e308
    assert vector.snapshot().numel()


def test_host_memory_needs_no_queue_and_other_devices_are_refused() -> None:
    assert queue_of(torch.device("cpu")) is None
    with pytest.raises(TrainingError, match="lies on meta"):
        queue_of(torch.device("meta"))


class FakeStream:
    """A stream that does all work at once, and records each wait."""

    current: "FakeStream"

    def __init__(self, name: str = "beside") -> None:
        self.name = name
        self.log: list[str] = []

    def wait_event(self, event: "FakeEvent") -> None:
        self.log.append(f"event of {event.stream.name}")

    def wait_stream(self, stream: "FakeStream") -> None:
        self.log.append(f"stream {stream.name}")


class FakeEvent:
    """A position in a `FakeStream`."""

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
    """Put fake streams in place of CUDA's; return the stream that is current at first."""
    FakeStream.current = FakeStream("training")
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: FakeStream())
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "stream", on_stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: FakeStream.current)
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda tensor, stream: stream.log.append("read")
    )
    return FakeStream.current


@pytest.mark.parametrize("waits", [False, True])
def test_the_side_stream_waits_for_training(streams: FakeStream, waits: bool) -> None:
    queue, numbers, host = CudaQueue(torch.device("cpu")), torch.ones(16), torch.empty(16)
    queue.beside(lambda: host.copy_(numbers), numbers, waits=waits).wait()
    assert torch.equal(host, numbers) and queue._beside.log == ["event of training", "read"]


def test_a_new_training_stream_waits_for_the_previous_stream(streams: FakeStream) -> None:
    queue, other = CudaQueue(torch.device("cpu")), FakeStream("other")
    queue.follow()
    assert streams.log == []
    with on_stream(other):
        queue.follow()
    assert other.log == ["stream training"]
    with queue.training():
        assert FakeStream.current is other
    assert FakeStream.current is streams


def test_waiting_raises_the_error_of_a_failed_conversion(streams: FakeStream) -> None:
    def fail() -> None:
        raise RuntimeError("the device is gone")

    queue = CudaQueue(torch.device("cpu"))
    mark = queue.beside(fail, torch.empty(1), waits=True)
    with pytest.raises(RuntimeError, match="the device is gone"):
        mark.wait()
    assert mark.is_passed()


@pytest.mark.parametrize("wire", FORMS)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_streams_snapshot_and_mix_like_host_memory(
    request: pytest.FixtureRequest, device: str, wire: str
) -> None:
    if device == "cpu":
        request.getfixturevalue("streams")
    torch.manual_seed(0)
    start = nn.Linear(4096, 256)
    module = perturbed_copy(start)
    here = make_vector(copy.deepcopy(module), None, start)
    there = Vector(module.to(device), sends_topk=True, queues=CudaQueue)
    there.anchor_flats = Vector(copy.deepcopy(start).to(device)).flats
    form = Form(wire)
    store = TensorStore(there, lambda id: stream(0, "a", "rounding"))
    size = form.size_bytes(there.schema, 0)
    for number in range(1, 8):
        store.take(Snapshot(number, "x", form))
        frame = on_another_thread(partial(store.frame_of, send(number, size)))
        assert isinstance(frame, memoryview)
        if device == "cpu":  # a GPU rounds by other draws
            expected = here.snapshot("x", form, rng=stream(0, "a", "rounding"))
            assert bytes(frame) == expected.numpy().tobytes()
        share, id = torch.frombuffer(bytearray(frame), dtype=torch.uint8), ShareId("b", 1, number)
        for flat in (there.flats[0], here.flats[0]):
            flat.mul_(0.99)
        store.stage(Stage(id, 0, size, form), frame)
        assert store.is_sound(id, b"")
        store.mix(Mix(id, 0.5, form))
        here.mix(share, 0.5, form)
        store.release(Release(number))
    atol, rtol = (0.0, 0.0) if device == "cpu" else (1e-5, 1e-4)
    torch.testing.assert_close(there.flats[0].cpu(), here.flats[0], atol=atol, rtol=rtol)


@pytest.mark.cuda
def test_cuda_reports_non_finite_numbers() -> None:
    vector = Vector(nn.Linear(4096, 256).cuda())
    store = TensorStore(vector)
    vector.flats[0][12345] = float("inf")
    store.take(Snapshot(1, "x"))
    assert on_another_thread(lambda: store.frame_of(send(1, 64))) is None
    assert store.failure is not None


@pytest.mark.cuda
def test_cuda_mixes_in_order_with_a_side_stream() -> None:
    torch.manual_seed(0)
    here = Vector(nn.Linear(4096, 1024))
    share = here.snapshot()
    there = Vector(nn.Linear(4096, 1024).cuda())
    store = TensorStore(there)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        there.follow()
        for seq in range(1, 6):
            id = ShareId("b", 1, seq)
            store.stage(Stage(id, 0, share.numel()), share.numpy().data)
            there.flats[0].zero_()
            # On a thread whose current stream differs.
            on_another_thread(partial(store.mix, Mix(id, 0.5)))
            found = there.flats[0].cpu()
            assert torch.equal(found, torch.zeros_like(found).lerp_(here.flats[0], 0.5))


@pytest.mark.cuda
def test_cuda_segments_are_page_locked_and_can_be_freed() -> None:
    memory = Memory(0, pinned=True)
    for _ in range(5):
        buffer = memory.lend(64 << 20, is_segment=True)
        assert buffer.is_pinned()
        buffer.copy_(torch.ones(64 << 20, dtype=torch.uint8, device="cuda"), non_blocking=True)
        torch.cuda.synchronize()
        assert bool((buffer == 1).all())
        del buffer
        memory.free_idle(0.0)
    torch.zeros(1).cuda()
