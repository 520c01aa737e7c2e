"""``joining``: how long newcomers take to get their copies, and their memory."""

import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import torch

from rumor.gossip import GoSGD, ProtocolConfig
from rumor.sim.batched.values import peak_rss_mib
from rumor.train import Peer, PeerConfig

from ..harness import Result, Row
from .processes import Flat, Partner, Pipe, partner, partners
from .raw import RawReceiver, RawSender

__all__ = ["measure_joining"]

_log = logging.getLogger(__name__)

_JOIN_S_MAX: Final = 300.0


def measure_joining(
    joiners: tuple[int, ...] = (1, 4, 8),
    size_mb: float = 200.0,
    rounds: int = 2,
    step_s: float = 0.01,
) -> Result:
    """Let several newcomers at once join a peer that trains a model of *size_mb* 10**6 bytes.

    Each process takes about four times that; needs Linux.
    """
    torch.set_num_threads(1)
    n_params = int(size_mb * 1e6) // 4
    transfer_s = _transfer_s(n_params)
    rows: list[Row] = []
    with partners(_serve, [(n_params, step_s)] * (max(joiners) + 1)) as (founder, *others):
        for one in (founder, *others):
            one.hear()
        for shared_memory in (True, False):
            way = "shared memory" if shared_memory else "TCP"
            for count in joiners:
                _log.info("joining: %d, %s", count, way)
                joined = [
                    _join(founder, others[:count], shared_memory=shared_memory)
                    for _ in range(rounds)
                ]
                rows.extend(_rows(f"joiners: {count}, {way}", joined, count * transfer_s))
    return Result(
        name="joining",
        title=f"From the start of newcomers to the last one's being a copy of {size_mb:g} MB, "
        "while others train",
        rows=tuple(rows),
    )


class _Joined(NamedTuple):
    """Figures of one join."""

    taken_s: float
    """Time until the last newcomer had its copy, seconds."""
    donor: float
    """Peak resident memory of the donor, with its own model, in models."""
    newcomers: float
    """Peak memory of any newcomer, in models."""


def _rows(name: str, joined: Sequence[_Joined], turns_s: float) -> Iterator[Row]:
    # If one transfer keeps all cores of a machine busy, no order of them is faster.
    yield Row(
        name=name,
        ours=median(each.taken_s for each in joined),
        reference=turns_s,
        unit="s",
        note="as many transfers one after another, as plain pyzmq alone does them",
    )
    of_each = {
        "the donor": max(each.donor for each in joined),
        "a newcomer": max(each.newcomers for each in joined),
    }
    for whose, models in of_each.items():
        yield Row(
            name=f"{name}: memory of {whose} at its largest",
            ours=models,
            reference=1 + PeerConfig().memory_models,
            unit="models",
            note="limit of the settings; resident, its own model included",
        )


def _transfer_s(n_params: int, times: int = 5) -> float:
    """Time a plain transfer between two processes."""
    with partner(_receive, n_params) as other, RawSender(n_params, other.hear()) as sender:
        # The first transfer fills buffers.
        return median([sender.send_to(other) for _ in range(times + 1)][1:])


def _receive(pipe: Pipe, n_params: int) -> None:
    with RawReceiver(n_params) as receiver:
        pipe.send(receiver.address)
        while pipe.recv() is not None:
            pipe.send(receiver.receive())


def _join(founder: Partner, joiners: Sequence[Partner], *, shared_memory: bool) -> _Joined:
    """Let newcomers join, and all leave."""
    founder.ask(((), shared_memory))
    _, address = founder.ask("start")
    # A peer's vector is laid out when it is made, at the same cost for every newcomer.
    for one in joiners:
        one.say(((address,), shared_memory))
    for one in joiners:
        one.hear()
    start_s = time.monotonic()
    for one in joiners:
        one.say("start")
    joined_s = [one.hear(_JOIN_S_MAX)[0] for one in joiners]
    *newcomers, donor = (float(one.ask("leave")) for one in (*joiners, founder))
    return _Joined(float(max(joined_s)) - start_s, donor, max(newcomers))


def _serve(pipe: Pipe, n_params: int, step_s: float) -> None:
    _forget_peak()
    before_mib = peak_rss_mib()
    model = Flat(n_params)
    pipe.send("ready")
    while (asked := pipe.recv()) is not None:
        join, shared_memory = asked
        config = PeerConfig(
            join=join,
            rule=GoSGD(0.0),
            linger_s=0,
            leave_s=0.5,
            protocol=ProtocolConfig(shared_memory=shared_memory),
        )
        made = Peer(model, config)
        pipe.send("made")
        pipe.recv()
        _forget_peak()
        with made as peer:
            pipe.send((time.monotonic(), peer.address))
            while not pipe.poll(step_s):
                peer.step()
            pipe.recv()
        models = (peak_rss_mib() - before_mib) * 2**20 / made._vector.size_bytes
        del made, peer
        pipe.send(models)


def _forget_peak() -> None:
    """Let the peak of this process's memory count from now on."""
    Path("/proc/self/clear_refs").write_text("5")
