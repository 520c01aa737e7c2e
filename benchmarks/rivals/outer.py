"""One measurement of torchft's DiLoCo or hivemind's Optimizer around a kill: run as a script.

Nothing of rumor is imported, only the rival's packages and those that it shares with us. Peers are
processes of this machine; an optimizer step is a sleep. One is killed, and started again.
"""

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from importlib.metadata import version
from itertools import pairwise
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch
from torch import nn
from torch.optim import SGD

__all__ = ["measure"]

_TENSOR_NUMBERS_MAX: Final = 1_000_000
_VICTIM: Final = 1
_STARTS_S_MAX: Final = 120.0
_TIMEOUT_S: Final = 10.0
"""What a rival waits for somebody who does not answer, where it lets one choose."""
_OUTER_LR, _OUTER_MOMENTUM = 0.7, 0.9

Note = Callable[[str], None]


def measure(
    rival: str,
    n_params: int,
    peers: int,
    step_s: float,
    sync_every: int,
    seconds: float,
    kill_s: float,
    down_s: float,
) -> dict[str, Any]:
    """Let peers train, kill one and start it again, and look when each stepped.

    Args:
        rival: ``torchft`` or ``hivemind``.
        n_params: float32 numbers that are averaged.
        peers: How many processes.
        step_s: How long an optimizer step sleeps, seconds.
        sync_every: Steps of each from one averaging to the next.
        seconds: How long they train, from when all have stepped.
        kill_s: When one is killed.
        down_s: How long it is down.

    Returns:
        ``pause_steps`` and ``pause_s``, the longest time between two steps of a survivor from the
        kill on; ``calm_steps``, the same up to the kill; ``return_s``, from the victim's start to
        its next step without ``import_s``, what it imports for, or None where it never stepped;
        ``engine``, name and version.

    Raises:
        TimeoutError: Not all took a step.
    """
    work = {"torchft": _train_torchft, "hivemind": _train_hivemind}[rival]
    server, address = _lighthouse() if rival == "torchft" else (None, "")
    context = multiprocessing.get_context("spawn")
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)

        def start(rank: int, life: int) -> BaseProcess:
            given = (folder, rank, life, n_params, peers, step_s, sync_every, address)
            process = context.Process(target=work, args=given)
            process.start()
            return process

        processes = [start(rank, 1) for rank in range(peers)]
        try:
            _await_steps(folder, peers)
            began_s = time.time()
            time.sleep(kill_s)
            _kill(processes[_VICTIM])
            killed_s = time.time()
            time.sleep(down_s)
            started_s = time.time()
            processes.append(start(_VICTIM, 2))
            time.sleep(max(0.0, began_s + seconds - time.time()))
        finally:
            for process in processes:
                _kill(process)
        over_s = time.time()
        survivors = [rank for rank in range(peers) if rank != _VICTIM]
        steps = [_times(folder, rank, 1, "step") for rank in survivors]
        found = _pauses(steps, step_s, began_s, killed_s, over_s)
        imported = _times(folder, _VICTIM, 2, "imported")
        again = _times(folder, _VICTIM, 2, "step")
    if server is not None:
        server.shutdown()
    return found | {
        "import_s": imported[0] - started_s if imported else None,
        "return_s": again[0] - imported[0] if again else None,
        "engine": f"{rival} {version(rival)}",
    }


def _kill(process: BaseProcess) -> None:
    """End a peer with all processes that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.kill()
    process.join()


def _await_steps(folder: Path, peers: int) -> None:
    give_up_s = time.monotonic() + _STARTS_S_MAX
    while not all(_times(folder, rank, 1, "step") for rank in range(peers)):
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"not all of {peers} peers took a step in {_STARTS_S_MAX:.0f} s")
        time.sleep(0.1)


def _times(folder: Path, rank: int, life: int, what: str) -> list[float]:
    """When something happened to a peer, by the calendar."""
    path = folder / f"{rank}.{life}"
    lines = path.read_text().splitlines() if path.exists() else []
    return [float(line.split()[1]) for line in lines if line.startswith(f"{what} ")]


def _pauses(
    steps: list[list[float]], step_s: float, began_s: float, killed_s: float, over_s: float
) -> dict[str, float]:
    """The longest pauses before and after the kill, in steps without averaging, and in seconds."""
    calm_s, struck_s = 0.0, 0.0
    for times in steps:
        # Who stands still at the end has paused, too.
        for a, b in pairwise([*(t for t in times if began_s <= t <= over_s), over_s]):
            if b < killed_s:
                calm_s = max(calm_s, b - a)
            else:
                struck_s = max(struck_s, b - a)
    return {
        "pause_steps": struck_s / step_s,
        "pause_s": struck_s,
        "calm_steps": calm_s / step_s,
    }


def _notes(folder: Path, rank: int, life: int) -> Note:
    """Begin a peer of its own, and give what writes down what happens when: a kill loses none."""
    os.setsid()
    file = open(folder / f"{rank}.{life}", "a", buffering=1)
    return lambda what: print(what, time.time(), file=file)


def _model(n_params: int) -> nn.Module:
    whole, rest = divmod(n_params, _TENSOR_NUMBERS_MAX)
    sizes = [_TENSOR_NUMBERS_MAX] * whole + [rest] * (rest > 0)
    return nn.ParameterList(torch.ones(size) for size in sizes)


def _train(model: nn.Module, step: Callable[[], Any], step_s: float, note: Note) -> None:
    """Take steps until killed; gradients cost nothing."""
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e-6)
    while True:
        time.sleep(step_s)
        step()
        note("step")


def _lighthouse() -> tuple[Any, str]:
    from torchft._torchft import LighthouseServer

    server = LighthouseServer(bind="[::]:0", min_replicas=1, join_timeout_ms=1000)
    return server, server.address()


def _train_torchft(
    folder: Path,
    rank: int,
    life: int,
    n_params: int,
    peers: int,
    step_s: float,
    sync_every: int,
    address: str,
) -> None:
    note = _notes(folder, rank, life)
    from torch import distributed
    from torchft import Manager, ProcessGroupGloo
    from torchft.local_sgd import DiLoCo

    torch.set_num_threads(1)
    note("imported")
    model = _model(n_params)
    inner = SGD(model.parameters(), lr=1e-3)
    outer = SGD(model.parameters(), lr=_OUTER_LR, momentum=_OUTER_MOMENTUM, nesterov=True)
    # It is public, whatever its stubs say.
    TCPStore: Any = vars(distributed)["TCPStore"]
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    wait = timedelta(seconds=_TIMEOUT_S)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=wait),
        min_replica_size=1,
        use_async_quorum=False,
        load_state_dict=lambda state: model.load_state_dict(state),
        state_dict=model.state_dict,
        replica_id=f"replica-{rank}",
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
        lighthouse_addr=address,
        hostname="localhost",
        timeout=wait,
        connect_timeout=wait,
    )
    with DiLoCo(manager, [model], inner, outer, sync_every=sync_every):
        _train(model, inner.step, step_s, note)


def _train_hivemind(
    folder: Path,
    rank: int,
    life: int,
    n_params: int,
    peers: int,
    step_s: float,
    sync_every: int,
    address: str,
) -> None:
    note = _notes(folder, rank, life)
    import hivemind

    torch.set_num_threads(1)
    # It starts processes of its own and cannot do so otherwise.
    multiprocessing.set_start_method("fork", force=True)
    note("imported")
    model = _model(n_params)
    meeting = folder / "addresses"
    while rank and not meeting.exists():
        time.sleep(0.05)
    dht = hivemind.DHT(
        initial_peers=meeting.read_text().splitlines() if rank else [],
        host_maddrs=["/ip4/127.0.0.1/tcp/0"],
        start=True,
        use_relay=False,
    )
    if rank == 0:
        (folder / "draft").write_text("\n".join(map(str, dht.get_visible_maddrs())))
        (folder / "draft").rename(meeting)
    optimizer = hivemind.Optimizer(
        dht=dht,
        run_id="storm",
        params=list(model.parameters()),
        optimizer=lambda parameters: SGD(parameters, lr=1e-3),
        batch_size_per_step=1,
        target_batch_size=sync_every * peers,
        use_local_updates=True,
        matchmaking_time=1.0,
        averaging_timeout=_TIMEOUT_S,
        load_state_timeout=_TIMEOUT_S,
        averager_opts={"request_timeout": 0.5},
    )
    _train(model, optimizer.step, step_s, note)


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
