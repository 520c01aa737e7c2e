"""One measurement of hivemind at the work of ``stall``: run as a script, in a process of its own.

Nothing of rumor is imported, only hivemind's packages and those that it shares with us. The tensors
that it averages are the model itself, in the shared memory where its other process wants them, so
that nothing is copied in or out; two peers, each with a group of two, never wait for a third.
"""

import json
import logging
import multiprocessing
import sys
import time
from importlib.metadata import version
from multiprocessing.connection import Connection
from typing import Any, Final

import torch

__all__ = ["measure"]

_TENSOR_NUMBERS_MAX: Final = 1_000_000
_PATIENCE_S: Final = 300.0


def measure(n_params: int, periods: list[int], step_s: float, rounds: int) -> dict[str, Any]:
    """Let two peers train and average, and time what their training threads wait for.

    An optimizer step is a sleep. Whenever so many have been taken, both call
    ``DecentralizedAverager.step`` and wait for it, as its documentation shows.

    Args:
        n_params: float32 numbers that are averaged.
        periods: Steps between two averaging rounds; each is measured in turn.
        step_s: How long an optimizer step sleeps, seconds.
        rounds: Averaging rounds that are counted, for each period; one before is not.

    Returns:
        ``stalls_s``, for each period what every step of one peer lost to averaging, seconds;
        ``walls_s``, how long they took in all; ``engine``, name and version.
    """
    spawn = multiprocessing.get_context("spawn")
    pipes = []
    processes = []
    for founder in (True, False):
        ours, theirs = spawn.Pipe()
        arguments = (theirs, founder, n_params, periods, step_s, rounds)
        process = spawn.Process(target=_train, args=arguments)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        first, second = pipes
        second.send(_hear(first))
        _hear(second)
        stalls_s, walls_s = [], []
        for _ in periods:
            for pipe in pipes:
                pipe.send("go")
            taken = [_hear(pipe) for pipe in pipes]
            stalls_s.append(taken[0][0])
            walls_s.append(taken[0][1])
        for pipe in pipes:
            pipe.send("end")
    finally:
        for process in processes:
            process.join(10)
            process.kill()
    engine = f"hivemind {version('hivemind')}"
    return {"stalls_s": stalls_s, "walls_s": walls_s, "engine": engine}


def _hear(pipe: "Connection[Any, Any]") -> Any:
    if not pipe.poll(_PATIENCE_S):
        raise TimeoutError("the other process does not answer")
    return pipe.recv()


def _train(
    pipe: "Connection[Any, Any]",
    founder: bool,
    n_params: int,
    periods: list[int],
    step_s: float,
    rounds: int,
) -> None:
    """One peer; the one that does not found is told where the other is."""
    import hivemind

    logging.getLogger("hivemind").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    # It starts processes of its own and cannot do so otherwise.
    multiprocessing.set_start_method("fork", force=True)
    seeds = [] if founder else pipe.recv()
    dht = hivemind.DHT(
        initial_peers=seeds, host_maddrs=["/ip4/127.0.0.1/tcp/0"], start=True, use_relay=False
    )
    sizes = [
        min(_TENSOR_NUMBERS_MAX, n_params - start)
        for start in range(0, n_params, _TENSOR_NUMBERS_MAX)
    ]
    averager = hivemind.DecentralizedAverager(
        [torch.full((size,), float(founder)) for size in sizes],
        dht,
        start=True,
        prefix="model",
        target_group_size=2,
        # The shortest search at which the two of them still find one another each time.
        min_matchmaking_time=1.0,
        request_timeout=0.5,
    )
    pipe.send([str(address) for address in dht.get_visible_maddrs()])
    try:
        for period in periods:
            pipe.recv()
            averager.step()
            pipe.send(_steps(averager, period, step_s, rounds))
        pipe.recv()
    finally:
        averager.shutdown()
        dht.shutdown()


def _steps(averager: Any, period: int, step_s: float, rounds: int) -> tuple[list[float], float]:
    """What each step lost, and how long all took."""
    stalls_s = []
    start_s = time.perf_counter()
    for step in range(1, rounds * period + 1):
        time.sleep(step_s)
        began_s = time.perf_counter()
        if step % period == 0:
            averager.step()
        stalls_s.append(time.perf_counter() - began_s)
    return stalls_s, time.perf_counter() - start_s


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
