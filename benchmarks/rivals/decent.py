"""One measurement of decent-dp at the work of ``stall``: run as a script, in its own process.

Nothing of rumor is imported, only decent-dp's packages and those that it shares with us. It
averages in hooks of the backward pass, which here gets gradients for nothing, and the optimizer in
them does nothing: what the hooks take is averaging alone.
"""

import json
import multiprocessing
import sys
import time
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
_WARM_ROUNDS: Final = 3


def measure(n_params: int, periods: list[int], step_s: float, rounds: int) -> dict[str, Any]:
    """Let two peers train and average, and time what their training threads wait for.

    An optimizer step is a sleep. Between two rounds of averaging gradients are accumulated, which
    is how this library averages less often.

    Args:
        n_params: float32 numbers that are averaged.
        periods: Steps from one averaging round to the next; each is measured in turn.
        step_s: How long an optimizer step sleeps, seconds.
        rounds: Averaging rounds that are counted, for each period.

    Returns:
        ``stalls_s``, for each period what every step of one peer lost to averaging, seconds;
        ``walls_s``, how long they took in all; ``engine``, name and version.
    """
    spawn = multiprocessing.get_context("spawn")
    pipes = []
    processes = []
    with TemporaryDirectory() as folder:
        for rank in range(2):
            ours, theirs = spawn.Pipe()
            arguments = (theirs, rank, folder, n_params, periods, step_s, rounds)
            process = spawn.Process(target=_train, args=arguments, daemon=True)
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        try:
            found, _ = (_hear(pipe) for pipe in pipes)
            for pipe in pipes:
                pipe.send("end")
        finally:
            for process in processes:
                process.join(10)
                process.kill()
    return {**found, "engine": f"decent-dp {version('decent-dp')} over gloo"}


def _hear(pipe: "Connection[Any, Any]") -> Any:
    if not pipe.poll(_PATIENCE_S):
        raise TimeoutError("the other process does not answer")
    return pipe.recv()


class _Layers(nn.Module):
    """Nothing but parameters, each with a gradient that costs nothing."""

    def __init__(self, n_params: int) -> None:
        super().__init__()
        self.layers = nn.ParameterList(
            torch.ones(min(_TENSOR_NUMBERS_MAX, n_params - start))
            for start in range(0, n_params, _TENSOR_NUMBERS_MAX)
        )

    def forward(self) -> Tensor:
        return torch.stack([layer[0] for layer in self.layers]).sum()


class _Idle(torch.optim.Optimizer):
    """Changes nothing."""

    def __init__(self, named: list[tuple[str, Tensor]]) -> None:
        super().__init__([parameter for _, parameter in named], {})

    def step(self, closure: Any = None) -> Any:
        """Take a step that is none."""


class _Timed:
    """What `hook` took since it was last asked."""

    def __init__(self, hook: Any) -> None:
        self.hook = hook
        self.taken_s = 0.0

    def __call__(self, *arguments: Any, **named: Any) -> None:
        start_s = time.perf_counter()
        self.hook(*arguments, **named)
        self.taken_s += time.perf_counter() - start_s

    def take(self) -> float:
        """Seconds; from now on they count anew."""
        taken_s, self.taken_s = self.taken_s, 0.0
        return taken_s


def _train(
    pipe: "Connection[Any, Any]",
    rank: int,
    folder: str,
    n_params: int,
    periods: list[int],
    step_s: float,
    rounds: int,
) -> None:
    from decent_dp.ddp import DecentralizedDataParallel
    from loguru import logger
    from torch import distributed

    logger.remove()
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=(Path(folder) / "meeting").as_uri(),
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=_PATIENCE_S),
    )
    model = DecentralizedDataParallel(_Layers(n_params), _Idle, topology="ring")
    # Hooks look it up when they are called.
    hook = model._ddp_fn = _Timed(model._ddp_fn)
    for _ in range(_WARM_ROUNDS):
        model().backward()
    stalls_s, walls_s = [], []
    for period in periods:
        distributed.barrier()
        hook.take()
        taken = _steps(model, hook, period, step_s, rounds)
        stalls_s.append(taken[0])
        walls_s.append(taken[1])
    pipe.send({"stalls_s": stalls_s, "walls_s": walls_s})
    pipe.recv()
    model.global_avg(will_revert=False)
    distributed.destroy_process_group()


def _steps(
    model: Any, hook: _Timed, period: int, step_s: float, rounds: int
) -> tuple[list[float], float]:
    """What each step lost, and how long all took without the backward pass itself."""
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
