"""The use of the machine by a run: memory, threads, and a pause of garbage collection."""

import gc
import threading
import time

import pytest
import torch

from rumor.gossip import ConfigError
from rumor.sim import SimulationConfig, simulate
from rumor.sim.batched.cores import Threads
from rumor.sim.batched.steppers.engines import alone
from rumor.sim.batched.values import check_memory
from rumor.sim.kernel.gc import paused

from ...waiting import LIMIT_S


def test_a_run_too_large_for_memory_is_refused() -> None:
    fleet = SimulationConfig
    wanted_gib = check_memory(fleet(workers=1000, memory_gib=1.0), row_bytes=10_000, registers=2)
    assert 0.05 < wanted_gib < 0.2
    with pytest.raises(ConfigError, match=r"about 2[0-9]{2} workers fit") as caught:
        large = fleet(workers=10_000, memory_gib=1.25)
        check_memory(large, row_bytes=1_000_000, registers=0)
    assert "memory_gib allows" in str(caught.value)
    with pytest.raises(ConfigError, match="this machine has free"):
        check_memory(fleet(workers=10**9), row_bytes=10**9, registers=0)
    # The run is refused before anything is allocated.
    with pytest.raises(ConfigError, match="1,000,000,000 workers"):
        simulate(task="consensus", workers=10**9)


def test_alone_limits_torch_to_one_thread_and_restores_the_number() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with alone():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_garbage_collection_is_paused_inside_and_restored_outside() -> None:
    assert gc.isenabled()
    with paused():
        assert not gc.isenabled()
        with paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_each_part_is_done_once_by_any_free_thread() -> None:
    taken = [True]
    threads = Threads(3, is_taken=lambda: taken[0])
    assert threads.free == 2
    done, at_once = [], {threading.get_ident()}

    def work(part: int) -> None:
        taken[0] = part < 50
        done.append(part)
        at_once.add(threading.get_ident())
        time.sleep(1e-4)

    threads.share(work, range(100))
    assert threads.free == 3
    threads.close()
    assert sorted(done) == [*range(100)] and len(at_once) <= 3


@pytest.mark.parametrize("in_main", [False, True])
def test_an_error_is_raised_and_no_thread_begins_another_part(in_main: bool) -> None:
    threads, main, done = Threads(2), threading.get_ident(), list[int]()
    both_started = threading.Barrier(2, timeout=LIMIT_S)

    def work(part: int) -> None:
        if part < 2:
            both_started.wait()
        if (threading.get_ident() == main) is in_main:
            raise ValueError(f"part {part}")
        time.sleep(0.05)
        done.append(part)

    with pytest.raises(ValueError, match="part"):
        threads.share(work, range(100))
    threads.close()
    assert len(done) < 50
