"""Memory that another process reads: what is found there, and what is refused."""

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
    """A process that owns a segment of `SIZE` bytes, all 7, and fills it with what it is told."""
    command = [sys.executable, "-P", "-c", OWNER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def opened(name: str, size_bytes: int = SIZE) -> torch.Tensor | None:
    return Attachments().open(name, size_bytes)


@contextmanager
def file_in_memory(size_bytes: int, token: bytes, seals: int) -> Iterator[str]:
    """Something like a segment, not made by a pool; gives its name."""
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
def test_another_process_is_read_while_it_writes_until_it_ends_even_by_sigkill() -> None:
    attachments = Attachments()
    with owner() as process:
        name, host = said(process)
        assert bytes.fromhex(host) == host_id() != b""
        found = attachments.open(name, SIZE)
        assert found is not None and found.shape == (SIZE,) and bool((found == 7).all())
        assert process.stdin is not None
        process.stdin.write("9\n")
        process.stdin.flush()
        assert said(process) == ["done"] and bool((found == 9).all())
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert bool((found == 9).all()), "what is mapped stays readable"
    assert opened(name) is None
    assert not [path for path in Path("/dev/shm").iterdir() if "rumor" in path.name]
    attachments.forget_gone()
    assert attachments.open(name, SIZE) is None


def test_a_segment_that_was_opened_is_found_mapped_and_more_of_it_is_mapped_anew() -> None:
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
    buffer = memory.lend(SIZE, "segments")
    assert memory.segments.name_of(buffer) == "" and buffer.shape == (SIZE,)
    assert host_id() == b""
    monkeypatch.undo()
    del buffer
    found = memory.lend(SIZE, "segments")
    assert memory.segments.name_of(found) != "", "and later there may be one again"
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
    """Locks pages as CUDA does, and notes whether they are mapped when it is told to let go."""

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
        self.were_mapped.append(any(low <= place and stop <= high for low, high in mapped()))
        return 0


def mapped() -> list[tuple[int, int]]:
    """Where this process has mapped something, from where to where."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    places = (line.split(" ", 1)[0].split("-") for line in lines)
    return [(int(low, 16), int(high, 16)) for low, high in places]


@pytest.mark.extended
@pytest.mark.parametrize("refusal", [0, 2])
def test_pages_are_locked_until_they_are_unmapped_if_they_can_be(
    monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    runtime = FakeRuntime(refusal)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    pool = Segments()
    name = pool.name_of(buffer := pool.make(SIZE, pinned=True))
    assert runtime.locked == ({} if refusal else {buffer.data_ptr(): SIZE})
    found = opened(name)
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
def test_hosts_share_no_memory_though_they_share_a_kernel() -> None:
    script = "from rumor.train.tensors.shared_memory import host_id; print(host_id().hex())"
    try:
        with hosts(2, rate_bytes_s=1e9) as pair:
            commands = [pair.command(host, sys.executable, "-c", script) for host in (0, 1, 0)]
            found = [subprocess.check_output(command, text=True).strip() for command in commands]
    except HostsError as error:
        pytest.skip(str(error))
    assert found[0] == found[2] != found[1] and host_id().hex() not in found


NO_NAMES = (
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


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_that_no_pool_gave_opens_nothing(name: str) -> None:
    assert opened(name) is None


def test_another_token_process_user_or_size_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Segments()
    name = pool.name_of(buffer := pool.make(SIZE))
    assert opened(name) is not None
    assert opened(name[:-32] + "0" * 32) is None
    assert opened(name.replace(str(os.getpid()), str(os.getppid()), 1)) is None
    for size_bytes in (-1, 0, SIZE * 2, 1 << 40, 1 << 62, 1 << 80):
        assert opened(name, size_bytes) is None
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    assert opened(name) is None
    assert buffer.shape == (SIZE,)


def test_a_number_that_names_another_file_by_now_opens_nothing(tmp_path: Path) -> None:
    token = bytes(range(16))
    path = tmp_path / "file"
    path.write_bytes(token + bytes(2 * SIZE))
    reading, writing = os.pipe()
    fds = [os.open(path, os.O_RDONLY), os.open("/dev/zero", os.O_RDONLY), reading, writing]
    try:
        assert [opened(f"{os.getpid()}:{fd}:{token.hex()}", 8) for fd in fds] == [None] * 4
    finally:
        for fd in fds:
            os.close(fd)


def test_a_segment_that_could_be_cut_short_opens_nothing() -> None:
    token = bytes(range(16))
    with file_in_memory(4096 + SIZE, token, fcntl.F_SEAL_GROW) as name:
        assert opened(name) is None
    with file_in_memory(4096 + SIZE, token, fcntl.F_SEAL_SHRINK) as name:
        assert opened(name) is not None
