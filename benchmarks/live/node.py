"""``node``: what a step of a peer of several processes takes, next to one process."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import FileStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from rumor.gossip import ProtocolConfig, RuleContext
from rumor.gossip.weight import ONE
from rumor.train import Peer, PeerConfig

from ..harness import Result, Row, alternate
from .processes import Partner, Pipe, admit, partners

__all__ = ["measure_node"]

_LAYERS: Final = 8
_WEIGHT: Final = ONE >> 20
_KINDS: Final = ("quiet", "push", "mix", "push and mix")

# Longer than any share takes, or is kept from a receiver that does not answer.
_AGAIN_S: Final = 30.0


def measure_node(
    params: tuple[int, ...] = (1_000_000, 20_000_000),
    ways: tuple[str, ...] = ("ddp", "fsdp"),
    ranks: int = 2,
    wire: str = "float32",
    steps: int = 10,
    rounds: int = 4,
    device: str = "cpu",
) -> Result:
    """Measure `Peer.step` by what it does, from its call by the last process to its last return.

    *ways* are ``ddp`` and ``fsdp``; on ``cuda``, each process has a card, and NCCL, if there are
    enough; else they share them, and use gloo.
    """
    torch.set_num_threads(1)
    rows: list[Row] = []
    for n in params:
        times = steps if n <= 5_000_000 else max(1, steps // 5)
        rows += _measure(_Node("plain", 1, n, wire, device), ranks, ways, times, rounds)
    return Result(
        name="node",
        title=f"step() of {ranks} processes that are one peer, until the slowest returns, {wire}; "
        "reference: one process",
        rows=tuple(rows),
    )


class _OnDemand:
    """A rule that pushes almost no weight, and mixes, when asked."""

    name = "on-demand"
    registers: tuple[str, ...] = ()
    outstanding_max = 1

    def __init__(self) -> None:
        self.ask("")

    def ask(self, wanted: str) -> None:
        """Do so at the next step at which all of it can be done."""
        self.wanted, self.is_done = wanted, False

    def step(self, turn: RuleContext) -> None:
        """Take one turn."""
        shares = turn.shares() if "mix" in self.wanted else ()
        peer = turn.draw() if "push" in self.wanted else None
        if ("mix" in self.wanted and not shares) or ("push" in self.wanted and peer is None):
            return
        for share in shares:
            turn.mix(share)
        if peer is not None:
            turn.push(peer, _WEIGHT)
        self.wanted, self.is_done = "", True


class _Node(NamedTuple):
    """A peer of one process or more."""

    way: str
    ranks: int
    n_params: int
    wire: str
    device: str


def _measure(
    alone: _Node, ranks: int, ways: Sequence[str], times: int, rounds: int
) -> Iterator[Row]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        turns: dict[str, Callable[[], list[tuple[str, float]]]] = {}
        for node in (alone, *(alone._replace(way=way, ranks=ranks) for way in ways)):
            rule = _OnDemand()
            config = _config(node.wire, rule=rule)
            peer = stack.enter_context(Peer(_model(node.n_params), config))
            given = [(node, rank, peer.address, folder / node.way) for rank in range(node.ranks)]
            others = stack.enter_context(partners(_serve, given))
            admit(peer, others[0])
            for other in others[1:]:
                other.hear()
            turns[node.way] = partial(_turn, peer, rule, others, times)
        found = alternate(turns, rounds)
    for way in ways:
        for kind in _KINDS:
            ours, plain = (
                1e3 * median(taken_s for name, taken_s in found[each] if name == kind)
                for each in (way, alone.way)
            )
            name = f"{alone.n_params / 1e6:g} M, {way}: {kind}"
            yield Row(name=name, ours=ours, reference=plain, unit="ms")


def _turn(
    peer: Peer, rule: _OnDemand, node: Sequence[Partner], times: int
) -> list[tuple[str, float]]:
    """Take some steps of each kind; return the kinds and how long they took, seconds."""
    found = []
    for kind in _KINDS:
        for _ in range(times):
            is_done = False
            # On a busy machine, a share may stall and go back to its sender: push another then.
            while not is_done:
                rule.ask("push" if "mix" in kind else "quiet")
                while not rule.is_done:
                    peer.step()
                again_s = time.monotonic() + _AGAIN_S
                while not is_done and time.monotonic() < again_s:
                    taken_s, is_done = _step(node, kind)
            found.append((kind, taken_s))
            rule.ask("mix" if "push" in kind else "quiet")
            again_s = time.monotonic() + _AGAIN_S
            while not rule.is_done:
                peer.step()
                if time.monotonic() > again_s:
                    _step(node, "push")
                    again_s += _AGAIN_S
    return found


def _step(node: Sequence[Partner], wanted: str) -> tuple[float, bool]:
    """Let all processes take a step; return its seconds, and whether it did what was wanted."""
    for one in node:
        one.say(wanted)
    told: list[tuple[float, float, bool]] = [one.hear() for one in node]
    return max(end for _, end, _ in told) - max(start for start, _, _ in told), told[0][2]


def _serve(pipe: Pipe, node: _Node, rank: int, address: str, meet: Path) -> None:
    ranks, cards, device = node.ranks, torch.cuda.device_count(), node.device
    if device != "cpu":
        device = f"{device}:{rank % cards}"
        torch.cuda.set_device(device)
    if ranks > 1:
        backend = "gloo" if device == "cpu" or cards < ranks else "cpu:gloo,cuda:nccl"
        store = FileStore(str(meet), ranks)
        dist.init_process_group(backend, store=store, rank=rank, world_size=ranks)
    model: nn.Module = _model(node.n_params).to(device)
    if node.way == "ddp":
        model = DistributedDataParallel(model)
    elif node.way == "fsdp":
        mesh = init_device_mesh(node.device, (ranks,))
        for layer in model.children():
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    flag, rule = torch.zeros(1), _OnDemand()
    with Peer(model, _config(node.wire, join=(address,), rule=rule)) as peer:
        pipe.send("joined")
        while (wanted := pipe.recv()) is not None:
            rule.ask(wanted)
            if device != "cpu":
                torch.cuda.synchronize()
            if ranks > 1:
                dist.all_reduce(flag)
            start_s = time.monotonic()
            peer.step()
            if device != "cpu":
                torch.cuda.synchronize()
            pipe.send((start_s, time.monotonic(), rule.is_done))


def _config(wire: str, **given: Any) -> PeerConfig:
    return PeerConfig(linger_s=0, leave_s=1, protocol=ProtocolConfig(wire=wire), **given)


def _model(n_params: int) -> nn.Sequential:
    width = round((n_params / _LAYERS) ** 0.5)
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(_LAYERS)))
