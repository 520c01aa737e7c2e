"""``straggler``: samples per second of a fleet with one slow peer, next to torch DDP's."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from rumor.gossip import GoSGD
from rumor.train import Peer, PeerConfig

from ..harness import Result, Row, alternate
from .processes import Flat, Partner, Pipe, partners

__all__ = ["measure_straggler"]

_log = logging.getLogger(__name__)

_PATIENCE_S: Final = 60.0
# All peers start at the same time, once the last has its order.
_HEAD_START_S: Final = 0.1


def measure_straggler(
    peers: int = 4,
    slowdown: float = 10.0,
    step_s: float = 0.02,
    n_params: int = 1_000_000,
    p: float = 0.1,
    burst_s: float = 5.0,
    rounds: int = 4,
) -> Result:
    """Count the fleet's samples per second with one peer *slowdown* times slower.

    A step is one sample and a sleep, so that cores are not the limit.
    """
    paces_s = [*[step_s] * (peers - 1), step_s * slowdown]
    with (
        _started(_serve, paces_s, n_params, p) as fleet,
        _started(_serve_ddp, paces_s, n_params, p) as barrier,
    ):
        _log.info("straggling: %d peers, one %g times slower", peers, slowdown)
        ways = {
            "alone": lambda: [_rates(fleet, "alone", burst_s)],
            "rumor": lambda: [_rates(fleet, "gossip", burst_s)],
            "ddp": lambda: [_rates(barrier, "train", burst_s)],
        }
        found = alternate(ways, rounds)
    all_, slow, fast = (
        {way: median(sum(rates[part]) for rates in bursts) for way, bursts in found.items()}
        for part in (slice(None), slice(-1, None), slice(-1))
    )
    alone, ddp = "the sum of what each does alone", "torch DDP over gloo"
    rows = (
        (f"rumor, p = {p:g}", all_["rumor"], all_["alone"], alone),
        (ddp, all_["ddp"], all_["alone"], alone),
        ("rumor, the fast ones", fast["rumor"], fast["alone"], "the same, alone"),
        ("rumor, the slow one", slow["rumor"], slow["alone"], "the same, alone"),
    )
    return Result(
        name="straggler",
        title=f"Samples per second of {peers} peers, one {slowdown:g} times slower; steps of "
        f"{step_s * 1e3:g} ms and {step_s * slowdown * 1e3:g} ms, {n_params / 1e6:g} M parameters",
        rows=tuple(
            Row(name=name, ours=ours, reference=reference, unit="samples/s", note=note)
            for name, ours, reference, note in rows
        ),
    )


def _rates(fleet: Sequence[Partner], how: str, burst_s: float) -> list[float]:
    """Let all run for a while at the same time; return the steps per second of each."""
    start_s = time.monotonic() + _HEAD_START_S
    for one in fleet:
        one.say((how, start_s, start_s + burst_s))
    return [float(one.hear()) for one in fleet]


@contextmanager
def _started(
    serve: Callable[..., None], paces_s: Sequence[float], n_params: int, p: float
) -> Iterator[list[Partner]]:
    with TemporaryDirectory() as folder:
        given = [(i, pace_s, len(paces_s), folder, n_params, p) for i, pace_s in enumerate(paces_s)]
        with partners(serve, given) as fleet:
            for one in fleet:
                one.hear()
            yield fleet


def _serve(
    pipe: Pipe, rank: int, pace_s: float, peers: int, folder: str, n_params: int, p: float
) -> None:
    config = PeerConfig(
        rendezvous=Path(folder), founders=peers, rule=GoSGD(p), linger_s=0, leave_s=1
    )
    with Peer(Flat(n_params), config) as peer:
        pipe.send("founded")
        while (asked := pipe.recv()) is not None:
            how, start_s, end_s = asked
            time.sleep(max(0.0, start_s - time.monotonic()))
            steps, began_s = 0, time.monotonic()
            while time.monotonic() < end_s:
                time.sleep(pace_s)
                if how == "gossip":
                    peer.step()
                steps += 1
            pipe.send(steps / (time.monotonic() - began_s))


class _First(nn.Module):
    """A loss whose gradient costs almost nothing."""

    def __init__(self, n_params: int) -> None:
        super().__init__()
        self.model = Flat(n_params)

    def forward(self) -> Tensor:
        return self.model.flat[0]


def _serve_ddp(
    pipe: Pipe, rank: int, pace_s: float, peers: int, folder: str, n_params: int, p: float
) -> None:
    """Train on request, in step with the others."""
    distributed.init_process_group(
        "gloo",
        init_method=(Path(folder) / "meeting").as_uri(),
        rank=rank,
        world_size=peers,
        timeout=timedelta(seconds=_PATIENCE_S),
    )
    model = DistributedDataParallel(_First(n_params))
    pipe.send("ready")
    while (asked := pipe.recv()) is not None:
        _, start_s, end_s = asked
        time.sleep(max(0.0, start_s - time.monotonic()))
        steps, began_s = 0, time.monotonic()
        go_on = torch.ones(1)
        while go_on.item():
            time.sleep(pace_s)
            model().backward()
            steps += 1
            # All must stop at the same step: the first peer's clock decides.
            go_on.fill_(float(time.monotonic() < end_s))
            distributed.broadcast(go_on, 0)
        pipe.send(steps / (time.monotonic() - began_s))
    distributed.destroy_process_group()
