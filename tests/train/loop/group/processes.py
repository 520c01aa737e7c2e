"""Peers of several processes, in which tests run a function at every rank."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import FileStore, HashStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed import fake_pg  # registers the backend "fake"

from ....forked import PROCESSES
from ....waiting import LIMIT_S

__all__ = ["KINDS", "Node", "fake_process_group", "layers", "nodes", "spread", "values_of"]

KINDS = {"plain": 1, "ddp": 2, "fsdp1": 1, "fsdp": 2, "fsdp3": 3, "hsdp": 4, "tp": 2}
"""Number of processes of each kind of peer."""


def layers(seed: int) -> nn.Sequential:
    """Make a model whose rows cannot be divided equally among processes."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 11), nn.LayerNorm(11), nn.ReLU(), nn.Linear(11, 3))


def spread(model: nn.Sequential, kind: str, *, device: str = "cpu", **given: Any) -> nn.Module:
    """Spread a sequence of layers over the processes of this group."""
    size = KINDS[kind]
    model.to(device)
    if kind == "ddp":
        return DistributedDataParallel(model)
    if kind == "tp":
        plan = {
            "0": ColwiseParallel(output_layouts=Replicate()),
            "3": RowwiseParallel(input_layouts=Replicate()),
        }
        return parallelize_module(model, init_device_mesh(device, (size,)), plan)
    if kind == "hsdp":
        names = "replicate", "shard"
        given["mesh"] = init_device_mesh(device, (2, size // 2), mesh_dim_names=names)
    elif kind.startswith("fsdp"):
        given["mesh"] = init_device_mesh(device, (size,))
    if "mesh" in given:
        fully_shard(model[0], **given)
        fully_shard(model, **given)
    return model


def values_of(model: nn.Module) -> list[float]:
    """Return all whole parameters of a model in one list; all ranks take part."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    whole = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    return [number for each in whole for number in each.detach().reshape(-1).tolist()]


@contextmanager
def fake_process_group(size: int, rank: int = 0) -> Iterator[None]:
    """A process group in which all processes but this one are fake."""
    assert fake_pg
    dist.init_process_group("fake", store=HashStore(), rank=rank, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()


class Node:
    """The processes of one peer, each of which runs a function.

    The function gets its rank, a function that sends a value to the test, and further arguments.
    """

    def __init__(self, kind: str, target: Callable[..., None], meet: Path, **given: Any) -> None:
        self.kind = kind
        pipes = [PROCESSES.Pipe() for _ in range(KINDS[kind])]
        self.processes = [
            PROCESSES.Process(target=_run, args=(kind, rank, meet, pipe, target, given))
            for rank, (_, pipe) in enumerate(pipes)
        ]
        self._pipes = [ours for ours, _ in pipes]
        for process in self.processes:
            process.start()
        for _, theirs in pipes:
            theirs.close()

    def receive(self, rank: int = 0) -> Any:
        """Return the next value that a rank sends; fail on its error, or its end."""
        pipe = self._pipes[rank]
        assert pipe.poll(LIMIT_S), f"rank {rank} of {self.kind} sends nothing"
        try:
            value = pipe.recv()
        except EOFError:
            raise AssertionError(f"rank {rank} of {self.kind} has ended") from None
        if isinstance(value, _Failure):
            raise AssertionError(f"rank {rank} of {self.kind}: {value.text}")
        return value

    def receive_all(self) -> list[Any]:
        """Return the next value that each rank sends."""
        return [self.receive(rank) for rank in range(len(self.processes))]

    def end(self) -> list[int | None]:
        """Wait for all processes; return their exit codes."""
        for process in self.processes:
            process.join(LIMIT_S)
        return [process.exitcode for process in self.processes]

    def kill(self) -> None:
        """End all processes at once."""
        for process in self.processes:
            process.kill()
            process.join()


class _Failure:
    def __init__(self, text: str) -> None:
        self.text = text


@contextmanager
def nodes() -> Iterator[Callable[..., Node]]:
    """Yield a function that makes a `Node`; no process is left at the end of the block."""
    made: list[Node] = []

    def make(*args: Any, **given: Any) -> Node:
        made.append(Node(*args, **given))
        return made[-1]

    try:
        yield make
    finally:
        for each in made:
            each.kill()


def _run(
    kind: str,
    rank: int,
    meet: Path,
    pipe: Connection,
    target: Callable[..., None],
    given: dict[str, Any],
) -> None:
    torch.set_num_threads(1)
    size = KINDS[kind]
    try:
        if kind != "plain":
            store = FileStore(str(meet), size)
            on_gpus = given.get("device") == "cuda"
            if on_gpus:
                torch.cuda.set_device(rank)
            backend = "cpu:gloo,cuda:nccl" if on_gpus else "gloo"
            dist.init_process_group(backend, store=store, rank=rank, world_size=size)
        target(rank, pipe.send, kind=kind, **given)
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
        with suppress(OSError):
            pipe.send(_Failure(text + traceback.format_exc()))
        raise
    finally:
        pipe.close()
    if kind != "plain":
        dist.destroy_process_group()
