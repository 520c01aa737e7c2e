"""Memory that another process reads: its contents, and requests that are refused."""

import fcntl
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch

from rumor.train.tensors.buffers import Memory
from rumor.train.tensors.shared_memory import Attachments, Segments, host_id

from ...hosts import HostsError, hosts

SIZE = 10_000

OWNER = f"""
import sys
from rumor.train.tensors.shared_memory import Segments, host_id
buffer = (pool := Segments()).make({SIZE})
buffer.fill_(7)
print(pool.name_of(buffer), host_id().hex(), flush=True)
for line in sys.stdin:
    buffer.fill_(int(line))
    print("done", flush=True)
"""

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux has segments")


@contextmanager
def owner() -> Iterator[subprocess.Popen[str]]:
    """A process that owns a segment of `SIZE` bytes, all 7, and fills it by commands on stdin."""
    command = [sys.executable, "-P", "-c", OWNER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_reply(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def open_segment(name: str, size_bytes: int = SIZE) -> torch.Tensor | None:
    return Attachments().open(name, size_bytes)


@contextmanager
def file_in_memory(size_bytes: int, token: bytes, seals: int) -> Iterator[str]:
    """A file like a segment, but not made by a pool; yields its name."""
    fd = os.memfd_create("other", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size_bytes)
        os.pwrite(fd, token, 0)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        yield f"{os.getpid()}:{fd}:{token.hex()}"
    finally:
        os.close(fd)


@pytest.mark.extended
@pytest.mark.live
def test_a_segment_can_be_opened_until_its_owner_is_killed() -> None:
    attachments = Attachments()
    with owner() as process:
        name, host = read_reply(process)
        assert bytes.fromhex(host) == host_id() != b""
        found = attachments.open(name, SIZE)
        assert found is not None and found.shape == (SIZE,) and bool((found == 7).all())
        assert process.stdin is not None
        process.stdin.write("9\n")
        process.stdin.flush()
        assert read_reply(process) == ["done"] and bool((found == 9).all())
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert bool((found == 9).all()), "mapped memory stays readable"
    assert open_segment(name) is None
    assert not [path for path in Path("/dev/shm").iterdir() if "rumor" in path.name]
    attachments.forget_gone()
    assert attachments.open(name, SIZE) is None


def test_an_open_segment_is_mapped_again_only_for_more_bytes() -> None:
    pool, attachments = Segments(), Attachments()
    name = pool.name_of(buffer := pool.make(SIZE))
    buffer.fill_(5)
    part = attachments.open(name, 100)
    whole, again = attachments.open(name, SIZE), attachments.open(name, 200)
    assert part is not None and whole is not None and again is not None
    assert whole.shape == (SIZE,) and int(whole[-1]) == 5
    assert again.data_ptr() == whole.data_ptr() != part.data_ptr()
    attachments.forget_gone(0.0)
    assert not attachments._kept


def test_without_segments_memory_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, flags: int) -> int:
        raise OSError("no more files")

    host_id.cache_clear()
    monkeypatch.setattr(os, "memfd_create", refuse)
    memory = Memory(0)
    buffer = memory.lend(SIZE, is_segment=True)
    assert memory.segments.name_of(buffer) == "" and buffer.shape == (SIZE,)
    assert host_id() == b""
    monkeypatch.undo()
    del buffer
    found = memory.lend(SIZE, is_segment=True)
    assert memory.segments.name_of(found) != "", "later segments are available again"
    host_id.cache_clear()


def test_a_segment_leaves_no_open_file_behind() -> None:
    def n_open(inode: int) -> int:
        found = 0
        for fd in map(int, os.listdir("/proc/self/fd")):
            with suppress(OSError):
                found += os.fstat(fd).st_ino == inode
        return found

    pool, attachments = Segments(), Attachments()
    buffer = pool.make(SIZE)
    name = pool.name_of(buffer)
    inode = os.fstat(int(name.split(":")[1])).st_ino
    found = attachments.open(name, SIZE)
    assert n_open(inode) > 1
    del buffer
    attachments.close()
    del found
    assert n_open(inode) == 0


class FakeRuntime:
    """Locks pages as CUDA does, and records whether they are mapped when they are unlocked."""

    def __init__(self, refusal: int = 0) -> None:
        self.refusal = refusal
        self.locked: dict[int, int] = {}
        self.were_mapped: list[bool] = []

    def cudaHostRegister(self, place: int, size_bytes: int, flags: int) -> int:
        if not self.refusal:
            self.locked[place] = size_bytes
        return self.refusal

    def cudaHostUnregister(self, place: int) -> int:
        stop = place + self.locked.pop(place)
        self.were_mapped.append(any(low <= place and stop <= high for low, high in mappings()))
        return 0


def mappings() -> list[tuple[int, int]]:
    """Start and end of each mapping in the memory of this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    places = (line.split(" ", 1)[0].split("-") for line in lines)
    return [(int(low, 16), int(high, 16)) for low, high in places]


@pytest.mark.extended
@pytest.mark.parametrize("refusal", [0, 2])
def test_pages_are_locked_until_unmapped_if_cuda_allows(
    monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    runtime = FakeRuntime(refusal)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    pool = Segments()
    name = pool.name_of(buffer := pool.make(SIZE, pinned=True))
    assert runtime.locked == ({} if refusal else {buffer.data_ptr(): SIZE})
    found = open_segment(name)
    assert found is not None and bool((buffer.fill_(4) == found).all())
    view = buffer[100:]
    del buffer
    gc.collect()
    assert runtime.were_mapped == [] and bool((view.fill_(3) == 3).all())
    del view
    gc.collect()
    assert runtime.were_mapped == ([] if refusal else [True]) and not runtime.locked


@pytest.mark.extended
@pytest.mark.live
def test_hosts_on_one_kernel_share_no_memory() -> None:
    script = "from rumor.train.tensors.shared_memory import host_id; print(host_id().hex())"
    try:
        with hosts(2, rate_bytes_s=1e9) as pair:
            commands = [pair.command(host, sys.executable, "-c", script) for host in (0, 1, 0)]
            found = [subprocess.check_output(command, text=True).strip() for command in commands]
    except HostsError as error:
        pytest.skip(str(error))
    assert found[0] == found[2] != found[1] and host_id().hex() not in found


INVALID_NAMES = (
    "",
    "nonsense",
    "1:2",
    "self:3:" + "0" * 32,
    "-1:3:" + "0" * 32,
    "1:3:" + "g" * 32,
    "1:3:" + "0" * 31,
    "99999999999:3:" + "0" * 32,
    "1:../../x:" + "0" * 32,
    "1:3:" + "0" * 32 + "\n",
    "\u0661:3:" + "0" * 32,
    "1\0:3:" + "0" * 32,
    "x" * 100_000,
    "4194305:3:" + "0" * 32,
)


@pytest.mark.parametrize("name", INVALID_NAMES)
def test_an_invalid_segment_name_opens_nothing(name: str) -> None:
    assert open_segment(name) is None


def test_a_wrong_token_process_user_or_size_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Segments()
    name = pool.name_of(buffer := pool.make(SIZE))
    assert open_segment(name) is not None
    assert open_segment(name[:-32] + "0" * 32) is None
    assert open_segment(name.replace(str(os.getpid()), str(os.getppid()), 1)) is None
    for size_bytes in (-1, 0, SIZE * 2, 1 << 40, 1 << 62, 1 << 80):
        assert open_segment(name, size_bytes) is None
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    assert open_segment(name) is None
    assert buffer.shape == (SIZE,)


def test_a_descriptor_of_another_file_opens_nothing(tmp_path: Path) -> None:
    token = bytes(range(16))
    path = tmp_path / "file"
    path.write_bytes(token + bytes(2 * SIZE))
    reading, writing = os.pipe()
    fds = [os.open(path, os.O_RDONLY), os.open("/dev/zero", os.O_RDONLY), reading, writing]
    try:
        assert [open_segment(f"{os.getpid()}:{fd}:{token.hex()}", 8) for fd in fds] == [None] * 4
    finally:
        for fd in fds:
            os.close(fd)


def test_a_segment_that_can_shrink_opens_nothing() -> None:
    token = bytes(range(16))
    with file_in_memory(4096 + SIZE, token, fcntl.F_SEAL_GROW) as name:
        assert open_segment(name) is None
    with file_in_memory(4096 + SIZE, token, fcntl.F_SEAL_SHRINK) as name:
        assert open_segment(name) is not None
