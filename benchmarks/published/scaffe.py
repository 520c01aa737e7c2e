"""S-Caffe's 2.5 times from 32 to 160 GPUs: by an identity, and by this project's rules simulated.

All GPUs share one batch, so that a step of N of them computes for A / N and communicates for c. The
published figure fixes A / c: (A / 32 + c) / (A / 160 + c) = 2.5 at A = 96 c. What it does not say
is that c stays the same while N grows. So rules are simulated on hosts that share a slow backbone,
whose speed is set so that 32 workers communicate for c = A / 96 under recursive doubling between
hosts; what 160 do follows from the rule.

Source: Awan, Hamidouche, Hashmi and Panda, PPoPP 2017, abstract.
"""

from typing import Final

from ...sim import consensus, simulate
from ...sim.models.network import Host, NetworkConfig
from ..results import Result, Row

__all__ = ["reproduce_scaffe"]

_FEW, _MANY = 32, 160
_PUBLISHED: Final = 2.5
_COMPUTE_S: Final = 96.0
"""A, in units of c."""

_PER_HOST: Final = 16
_STEPS: Final = 4
_DIM: Final = 1024
_SLOW_MBIT: Final = 8.0
"""Where communication is measured before it is scaled."""


def reproduce_scaffe(*, quick: bool = False) -> Result:
    """How much faster steps of 160 workers are than those of 32, which share a batch.

    Args:
        quick: Without the simulation of 160 workers on hosts of 16.
    """
    rows = [
        _row("identity, T = A / N + c, A = 96 c", _speedup(1.0, 1.0), "derived from that figure"),
        _by_leaders("allreduce", "all-reduce between 2 and 10 hosts, one message each"),
    ]
    if not quick:
        rows.append(_by_all("allreduce", f"all-reduce of all, hosts of {_PER_HOST} on one uplink"))
        rows.append(_by_hybrid())
    return Result(
        name="s-caffe",
        title="S-Caffe: how many times as fast a step of 160 workers is as one of 32, at the same "
        "batch for all together",
        columns=("way", "derived or simulated", "published", "ratio", "unit", "note"),
        rows=tuple(rows),
    )


def _row(name: str, ours: float, note: str) -> Row:
    return Row(name=name, ours=ours, reference=_PUBLISHED, unit="times", note=note)


def _speedup(few_s: float, many_s: float) -> float:
    """Of steps, from the seconds of communication of few and of many, in units of c."""
    return (_COMPUTE_S / _FEW + few_s) / (_COMPUTE_S / _MANY + many_s)


def _by_leaders(rule: str, name: str) -> Row:
    """A worker stands for a host, inside which the sum is there at once."""
    few_s, many_s = (
        _exchange_s(rule, workers // _PER_HOST, _COMPUTE_S / workers, per_host=1)
        for workers in (_FEW, _MANY)
    )
    return _compared(name, few_s, many_s)


def _by_all(rule: str, name: str) -> Row:
    few_s, many_s = (
        _exchange_s(rule, workers, _COMPUTE_S / workers, per_host=_PER_HOST)
        for workers in (_FEW, _MANY)
    )
    return _compared(name, few_s, many_s)


def _compared(name: str, few_s: float, many_s: float) -> Row:
    growth = many_s / few_s
    note = f"simulated; 160 communicate {growth:.2f} times as long as 32"
    return _row(name, _speedup(1.0, growth), note)


def _by_hybrid() -> Row:
    """Groups that average in memory and gossip, over the backbone on which 32 take c to agree."""
    slow_s = _exchange_s("allreduce", _FEW // _PER_HOST, _COMPUTE_S / _FEW, per_host=1)
    mbit = _SLOW_MBIT * slow_s
    few_s, many_s = (
        _step_s("hybrid", workers, _COMPUTE_S / workers, _PER_HOST, mbit)
        for workers in (_FEW, _MANY)
    )
    return _row(
        f"hybrid, hosts of {_PER_HOST} that gossip",
        few_s / many_s,
        f"simulated; nobody waits for the backbone: a step is {few_s * _FEW / _COMPUTE_S:.2f} and "
        f"{many_s * _MANY / _COMPUTE_S:.2f} times A / N",
    )


def _exchange_s(rule: str, workers: int, compute_s: float, per_host: int) -> float:
    """By how much an exchange over the slow network makes a step longer, seconds."""
    return _step_s(rule, workers, compute_s, per_host, _SLOW_MBIT) - compute_s


def _step_s(rule: str, workers: int, compute_s: float, per_host: int, mbit: float) -> float:
    starts = range(0, workers, per_host)
    hosts = tuple(
        Host(workers=tuple(map(str, range(start, start + per_host))), bandwidth_mbit=mbit)
        for start in starts
    )
    sizes = "x".join([str(per_host)] * len(starts))
    run = simulate(
        task=consensus(dim=_DIM),
        rule=rule,
        topology=f"hosts:sizes={sizes}",
        workers=workers,
        steps=_STEPS,
        step_s=compute_s,
        eval_every=_STEPS,
        network=NetworkConfig(hosts=hosts),
    )
    return float(run.summary["virtual_time_s"]) / _STEPS
