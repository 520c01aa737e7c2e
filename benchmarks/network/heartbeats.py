"""``heartbeats``: whether peers hear of one another while a large model crosses a slow link."""

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, NoReturn

import torch

from ...gossip import Envelope, GoSGD, Protocol, ProtocolConfig
from ...gossip.effects.effects import Effect, Send
from ...gossip.effects.events import Event
from ...gossip.wire.messages import Hello
from ...train import Peer, PeerConfig
from ..exchange.processes import Flat
from ..results import Result, Row
from .hosts import Hosts, HostsError, hosts, started, told_by

__all__ = ["ages_of", "measure_heartbeats", "run_beating"]

_log = logging.getLogger("rumor.benchmarks")

_PORT: Final = 7700
_FOUNDERS: Final = 2
_STEP_S: Final = 0.05
_GOSSIP_S: Final = 0.2
"""Between two heartbeats of a peer. Each goes to one other, drawn at random, and on from there: at
the second that is usual, most would be older than that with an idle cable, too."""
_AGE_S_MAX: Final = 1.0
"""What is asked for."""
_QUIET_S: Final = 5.0
_JOIN_S_MAX: Final = 540.0
_END_S_MAX: Final = 60.0

Times = Mapping[str, Sequence[tuple[int, float]]]


def measure_heartbeats(
    link_mbit_s: float = 10, size_mb: float = 205, quiet_s: float = _QUIET_S
) -> Result:
    """Let a newcomer fetch a model over a slow cable, and look how old heartbeats grow meanwhile.

    Two founders, each on a host of its own; the newcomer on a third gets its copy from one of them.

    Args:
        link_mbit_s: What the cable of each carries, each way, 10**6 bits per second.
        size_mb: Size of the float32 vector, 10**6 bytes.
        quiet_s: How long heartbeats are timed before the newcomer starts, seconds.
    """
    n_params = int(size_mb * 1e6) // 4
    asked = {"n_params": n_params, "quiet_s": quiet_s}
    _log.info("%g MB over a cable of %g Mbit/s", size_mb, link_mbit_s)
    try:
        with hosts(_FOUNDERS + 1, link_mbit_s * 1e6 / 8) as laid:
            rows = tuple(_rows(_run_all(laid, asked), size_mb, link_mbit_s))
    except HostsError as error:
        _log.warning("%s", error)
        rows = (Row(name="not measured", ours=0, reference=0, unit="s", note=str(error)),)
    return Result(
        name="heartbeats",
        title=f"A model of {size_mb:g} MB crosses a cable of {link_mbit_s:g} Mbit/s to a newcomer",
        columns=("what", "rumor", "reference", "ratio", "unit", "reference and notes"),
        rows=rows,
    )


def _run_all(laid: Hosts, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What each host has seen, the newcomer last."""
    with ExitStack() as stack:
        done = str(Path(stack.enter_context(TemporaryDirectory())) / "done")
        given = {"addresses": laid.addresses, "done": done, **asked}
        words = [json.dumps({"index": index, **given}) for index in range(_FOUNDERS + 1)]
        processes = [
            stack.enter_context(started(laid, index, run_beating, asked_of))
            for index, asked_of in enumerate(words)
        ]
        return [told_by(process, _JOIN_S_MAX + _END_S_MAX) for process in processes]


def _rows(found: Sequence[Mapping[str, Any]], size_mb: float, link_mbit_s: float) -> Iterator[Row]:
    newcomer = found[-1]
    began_s, over_s = newcomer["began_s"], newcomer["joined_s"]
    line_s = size_mb * 8 / link_mbit_s
    got_mb = newcomer["received_bytes"] / 1e6
    yield Row(
        name="until the newcomer has it",
        ours=over_s - began_s,
        reference=line_s,
        unit="s",
        note=f"at the cable's full rate; {got_mb:.1f} MB came. Published, ft-diloco 2026: a model "
        "of 205 MB over 10 Mbit/s does not finish, bulk starves the heartbeats",
    )
    during: list[float] = []
    before: list[float] = []
    for heard in found:
        for id, arrivals in heard["heard"].items():
            made = next(each["made"] for each in found if each["id"] == id)
            during += ages_of(made, arrivals, began_s, over_s)
            before += ages_of(made, arrivals, 0.0, began_s)
    if not during:
        return
    yield Row(
        name="newest heartbeat's age, worst",
        ours=max(during),
        reference=_AGE_S_MAX,
        unit="s",
        note=f"asked for; of {len(during)} heartbeats between all hosts, one every {_GOSSIP_S:g} s",
    )
    if not before:
        return
    yield Row(
        name="the same, beside quiet",
        ours=max(during),
        reference=max(before),
        unit="s",
        note="worst age before the newcomer started",
    )
    yield Row(
        name="the same, median",
        ours=median(during),
        reference=median(before),
        unit="s",
        note="median age at its oldest, before the newcomer started",
    )


def ages_of(
    made: Sequence[tuple[int, float]],
    arrivals: Sequence[tuple[int, float]],
    begin_s: float,
    over_s: float,
) -> list[float]:
    """How old the newest heartbeat of a peer was right before the next one came.

    Args:
        made: Heartbeats, and when their owner made each, seconds.
        arrivals: Those that came to another peer, and when, in order.
        begin_s: Only those that came later count,
        over_s: and earlier than that.

    >>> ages_of([(1, 0.0), (2, 0.5)], [(1, 0.1), (2, 0.9)], 0.0, 2.0)
    [0.9]
    """
    born = dict(made)
    newest, fresh = -1, []
    for beat, at_s in arrivals:
        if beat > newest and beat in born:
            newest = beat
            fresh.append((beat, at_s))
    return [
        at_s - born[before]
        for (before, _), (_, at_s) in pairwise(fresh)
        if begin_s <= at_s <= over_s
    ]


class _Beats:
    """Notes when heartbeats of this process's peer are made, and when others' come."""

    def __init__(self) -> None:
        self.made: dict[int, float] = {}
        self.heard: dict[str, list[tuple[int, float]]] = {}
        # A peer makes its protocol itself; what goes in and out of it can be seen here only.
        receive, wake = Protocol.receive, Protocol.wake

        def watched_receive(
            protocol: Protocol, envelope: Envelope, *others: Any
        ) -> list[Effect | Event]:
            if isinstance(envelope.body, Hello):
                now = time.monotonic()
                for member in envelope.body.members:
                    if member.id != protocol.account.id:
                        beats = self.heard.setdefault(member.id, [])
                        beats.append((member.heartbeat, now))
            return receive(protocol, envelope, *others)

        def watched_wake(protocol: Protocol, now: float) -> list[Effect | Event]:
            effects = wake(protocol, now)
            for effect in effects:
                if isinstance(effect, Send) and isinstance(effect.envelope.body, Hello):
                    beat = effect.envelope.body.members[0].heartbeat
                    self.made.setdefault(beat, time.monotonic())
            return effects

        Protocol.receive = watched_receive  # type: ignore[assignment,method-assign]
        Protocol.wake = watched_wake  # type: ignore[assignment,method-assign]


def run_beating(asked: str) -> None:
    """Be one of the hosts, in a process of its own, and print what was seen as JSON."""
    torch.set_num_threads(1)
    _beat(**json.loads(asked))


def _beat(
    index: int, addresses: Sequence[str], n_params: int, quiet_s: float, done: str
) -> NoReturn:
    beats = _Beats()
    ends = [f"tcp://{address}:{_PORT}" for address in addresses]
    founds = index < _FOUNDERS
    config = PeerConfig(
        id=f"host-{index}",
        bind=ends[index],
        join=tuple(end for end in ends[:_FOUNDERS] if end != ends[index]),
        founders=_FOUNDERS if founds else 1,
        rule=GoSGD(0.0),
        linger_s=0,
        leave_s=0.5,
        join_timeout_s=_JOIN_S_MAX,
        # They share a kernel, and must not notice.
        protocol=ProtocolConfig(shared_memory=False, gossip_s=_GOSSIP_S),
    )
    model, over, met = Flat(n_params), Path(done), Path(f"{done}.met")
    while not (founds or met.exists()):
        # Until founders have met, and have beaten for a while.
        time.sleep(_STEP_S)
    began_s = time.monotonic()
    with Peer(model, config) as peer:
        joined_s = time.monotonic()
        while not over.exists():
            time.sleep(_STEP_S)
            peer.step()
            now = time.monotonic()
            if not founds and now > joined_s + quiet_s / 2:
                over.touch()
            if len(peer.live) < _FOUNDERS:
                joined_s = now
            elif founds and now > joined_s + quiet_s:
                met.touch()
        found = {
            "id": f"host-{index}",
            "began_s": began_s,
            "joined_s": joined_s,
            "received_bytes": peer.counters.bytes_received,
            "made": list(beats.made.items()),
            "heard": beats.heard,
        }
        print(json.dumps(found), flush=True)
        # All have been seen: to hand weight on over such cables would take minutes more.
        os._exit(0)
