"""One measurement of hivemind or decent-dp at the work of ``stall``: run as a script.

Nothing of rumor is imported, only the rival's packages and those that it shares with us. Two peers,
in separate processes, never wait for a third. An optimizer step is a sleep.
"""

import json
import logging
import multiprocessing
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch
from torch import Tensor, nn

__all__ = ["measure"]

_TENSOR_NUMBERS_MAX: Final = 1_000_000
_PATIENCE_S: Final = 300.0


def measure(
    rival: str, n_params: int, periods: list[int], step_s: float, rounds: int
) -> dict[str, Any]:
    """Let two peers train and average after each of the given *periods*, in steps.

    Returns:
        ``stalls_s``, for each period the time that every step of one peer lost to averaging,
        seconds; ``walls_s``, their total time; ``engine``, name and version.
    """
    train = {"hivemind": _train_hivemind, "decent-dp": _train_decent}[rival]
    with TemporaryDirectory() as folder, _two(train, Path(folder), n_params) as pipes:
        taken = []
        for period in periods:
            for pipe in pipes:
                pipe.send((period, step_s, rounds))
            measured, _ = (_hear(pipe) for pipe in pipes)
            taken.append(measured)
        for pipe in pipes:
            pipe.send(None)
    stalls_s, walls_s = zip(*taken, strict=True)
    over = " over gloo" if rival == "decent-dp" else ""
    engine = f"{rival} {version(rival)}{over}"
    return {"stalls_s": stalls_s, "walls_s": walls_s, "engine": engine}


@contextmanager
def _two(train: Callable[..., None], folder: Path, n_params: int) -> Any:
    """Run two processes, and yield the pipes to them."""
    spawn = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for rank in range(2):
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=train, args=(theirs, rank, folder, n_params))
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        yield pipes
    finally:
        for process in processes:
            process.join(10)
            process.kill()


def _hear(pipe: "Connection[Any, Any]") -> Any:
    if not pipe.poll(_PATIENCE_S):
        raise TimeoutError("the other process does not answer")
    return pipe.recv()


def _sizes(n_params: int) -> list[int]:
    starts = range(0, n_params, _TENSOR_NUMBERS_MAX)
    return [min(_TENSOR_NUMBERS_MAX, n_params - start) for start in starts]


def _train_hivemind(pipe: "Connection[Any, Any]", rank: int, folder: Path, n_params: int) -> None:
    """Call ``DecentralizedAverager.step`` and wait for it, as its documentation shows.

    The averaged tensors are the model itself, in the shared memory that its other process needs, so
    that nothing is copied in or out.
    """
    import hivemind

    logging.getLogger("hivemind").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    # It starts processes of its own and needs fork for that.
    multiprocessing.set_start_method("fork", force=True)
    dht = hivemind.DHT(
        initial_peers=_addresses(folder) if rank else [],
        host_maddrs=["/ip4/127.0.0.1/tcp/0"],
        start=True,
        use_relay=False,
    )
    averager = hivemind.DecentralizedAverager(
        [torch.full((size,), float(rank)) for size in _sizes(n_params)],
        dht,
        start=True,
        prefix="model",
        target_group_size=2,
        # The shortest search at which the two peers still find each other every time.
        min_matchmaking_time=1.0,
        request_timeout=0.5,
    )
    if rank == 0:
        (folder / "draft").write_text("\n".join(map(str, dht.get_visible_maddrs())))
        (folder / "draft").rename(folder / "addresses")
    try:
        while (asked := pipe.recv()) is not None:
            averager.step()
            pipe.send(_average_hivemind(averager, *asked))
    finally:
        averager.shutdown()
        dht.shutdown()


def _addresses(folder: Path) -> list[str]:
    """Return the addresses of the first process, once it listens."""
    give_up_s = time.monotonic() + _PATIENCE_S
    while not (folder / "addresses").exists() and time.monotonic() < give_up_s:
        time.sleep(0.01)
    return (folder / "addresses").read_text().splitlines()


def _average_hivemind(
    averager: Any, period: int, step_s: float, rounds: int
) -> tuple[list[float], float]:
    """Return the time that each step lost, and the total time."""
    stalls_s = []
    start_s = time.perf_counter()
    for step in range(1, rounds * period + 1):
        time.sleep(step_s)
        began_s = time.perf_counter()
        if step % period == 0:
            averager.step()
        stalls_s.append(time.perf_counter() - began_s)
    return stalls_s, time.perf_counter() - start_s


class _Layers(nn.Module):
    """A model with nothing but parameters, each with a gradient that costs nothing."""

    def __init__(self, n_params: int) -> None:
        super().__init__()
        self.layers = nn.ParameterList(torch.ones(size) for size in _sizes(n_params))

    def forward(self) -> Tensor:
        return torch.stack([layer[0] for layer in self.layers]).sum()


class _Idle(torch.optim.Optimizer):
    """Changes nothing."""

    def __init__(self, named: list[tuple[str, Tensor]]) -> None:
        super().__init__([parameter for _, parameter in named], {})

    def step(self, closure: Any = None) -> Any: ...


class _Timed:
    """The time that `hook` took since it was last read."""

    def __init__(self, hook: Any) -> None:
        self.hook = hook
        self.taken_s = 0.0

    def __call__(self, *arguments: Any, **named: Any) -> None:
        start_s = time.perf_counter()
        self.hook(*arguments, **named)
        self.taken_s += time.perf_counter() - start_s

    def take(self) -> float:
        """Return the seconds, and start counting again."""
        taken_s, self.taken_s = self.taken_s, 0.0
        return taken_s


def _train_decent(pipe: "Connection[Any, Any]", rank: int, folder: Path, n_params: int) -> None:
    """Average in hooks of the backward pass, which gets its gradients for free here.

    The optimizer in the hooks does nothing, so that they measure averaging alone. Gradients are
    accumulated between two rounds, which is how this library averages less often.
    """
    from decent_dp.ddp import DecentralizedDataParallel
    from loguru import logger
    from torch import distributed

    logger.remove()
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=(folder / "meeting").as_uri(),
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=_PATIENCE_S),
    )
    model = DecentralizedDataParallel(_Layers(n_params), _Idle, topology="ring")
    # Hooks look up this attribute when they are called.
    hook = model._ddp_fn = _Timed(model._ddp_fn)
    for _ in range(3):
        model().backward()
    while (asked := pipe.recv()) is not None:
        distributed.barrier()
        hook.take()
        pipe.send(_average_decent(model, hook, *asked))
    model.global_avg(will_revert=False)
    distributed.destroy_process_group()


def _average_decent(
    model: Any, hook: _Timed, period: int, step_s: float, rounds: int
) -> tuple[list[float], float]:
    """Return the time that each step lost, and the total without the backward pass itself."""
    stalls_s, backward_s = [], 0.0
    start_s = time.perf_counter()
    for step in range(1, rounds * period + 1):
        model.set_accumulate_grad(step % period != 0)
        time.sleep(step_s)
        if step % period == 0:
            began_s = time.perf_counter()
            model().backward()
            backward_s += time.perf_counter() - began_s
        stalls_s.append(hook.take())
    wall_s = time.perf_counter() - start_s
    return stalls_s, wall_s - backward_s + sum(stalls_s)


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
