"""A fleet whose exchanges are decided by `decisions` in place of one protocol for each worker."""

from array import array
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....gossip import Audit
from ....gossip.effects.effects import X
from ....gossip.protocol.rule import requirements_of
from ....gossip.rules.asynchronous.gosgd import GoSGD
from ....gossip.rules.asynchronous.sgp import SGP
from ....gossip.types import stream
from ....gossip.weight import UNIT, UNITS_PER_FOUNDER
from ....gossip.wire.codec import encoded_bytes
from ....gossip.wire.formats import Form
from ....gossip.wire.messages import Ack, Body, Chunk, Envelope, Grant, Offer, Pending, Push, Query
from ....topology import Topology
from ...models.links import INSTANT_S, SPANS_MAX
from ...models.step_time import is_constant
from ...models.topology import WorkerTopology
from ..plan import FleetPlan, Traffic
from ..program import SNAPSHOT, WHOLE, Cut, Level, levels_of
from .decisions import tables
from .decisions.tables import Tables

__all__ = [
    "OUTGOING_MAX",
    "FastFleet",
    "FastPathUnsupported",
    "is_offered",
    "share_bytes_of",
    "staged_max",
    "topology_of",
]

OUTGOING_MAX = 64
"""Maximum number of outstanding shares of a worker."""
_NO_STEPS = 1 << 62
# Number of step durations and of random words that are drawn at once: few words if there are many
# workers, so that the tables of a million workers fit into memory.
_DURATIONS = 64
_WORDS = 16, 256
_WORDS_TOTAL = 1 << 23
_BUFFERS_MIN, _ROWS_MIN = 256, 4096


def staged_max(plan: FleetPlan) -> int:
    """Return the maximum number of shares that wait at a worker."""
    return max(plan.protocol.staged_max, requirements_of(plan.rule()).staged_max)


def topology_of(plan: FleetPlan) -> Topology | None:
    """Return the topology of all workers; None if each has its own."""
    neighbors = plan.neighbors
    return neighbors.topology if isinstance(neighbors, WorkerTopology) else None


class FastPathUnsupported(Exception):
    """Something is due that only the protocols can decide."""


class FastFleet:
    """Workers, the links between them, and what is due when, all in tables."""

    def __init__(self, plan: FleetPlan) -> None:
        # Numba is slow to import.
        from .decisions.exchanges import advance

        self.now = 0.0
        self.over = False
        self.plan = plan
        self._advance = advance
        self._random = [stream(plan.seed, id, "rule").bit_generator for id in plan.ids]
        """Random generator of each worker's rule."""
        topology = topology_of(plan)
        assert topology is not None
        self._tables = _make_tables(plan, topology)
        for worker in range(len(plan.ids)):
            self._supply(worker)

    def run(self, until_s: float, steps_max: int) -> bool:
        """See `Fleet.run`."""
        last = self.steps + steps_max
        while True:
            why = self._advance(self._tables, until_s, last)
            if why == tables.NEED_RANDOMS:
                self._supply(self._total("starved_worker"))
            elif why == tables.FULL:
                self._grow()
            elif why == tables.UNSUPPORTED:
                raise FastPathUnsupported
            else:
                break
        self.now = float(self._tables.totals["now_s"][0])
        self.over = why == tables.OVER
        return bool(why != tables.STEPS)

    @property
    def steps(self) -> int:
        return self._total("steps")

    @property
    def traffic(self) -> Traffic:
        known = tables.TOTALS.names or ()
        names = [field.name for field in fields(Traffic) if field.name in known]
        return Traffic(**{name: self._total(name) for name in names})

    def column(self, name: str) -> NDArray[np.int64]:
        """Return a field of all workers, such as ``steps`` or ``weight`` (in units)."""
        return np.array(self._tables.workers[name])

    def audit(self) -> Audit:
        """Account for all weight: with workers, or in escrow of which nothing was accepted yet."""
        edges = self._tables.edges
        edges = edges[edges["busy"] != 0]
        decided = edges["decided"] == edges["sequence"]
        left = int(edges["escrow"].sum()) - int(edges["accepted"][decided].sum())
        return Audit(
            founded=len(self.plan.ids) * UNITS_PER_FOUNDER * UNIT,
            held=int(self._tables.workers["weight"].sum()) * UNIT,
            in_flight=left * UNIT,
            stranded=0,
            burned=0,
            died=0,
        )

    def take(self) -> list[Level]:
        """See `Program.take`."""
        t, totals = self._tables, self._tables.totals[0]
        n_steps, n = self._total("n_steps"), self._total("n_operations")
        operations = t.operation_rows[: 6 * n].reshape(-1, 6)
        # Without the levels and the buffers; and all cuts are of the whole vector, in one format.
        cut = Cut(X, Form(self.plan.protocol.wire))
        cuts = (WHOLE,) if cut == WHOLE else (WHOLE, cut)
        rows = operations[:, [0, 1, 2, 3, 5]]
        rows[:, 2] = np.where(rows[:, 0] == SNAPSHOT, len(cuts) - 1, 0)
        steps, rates = t.step_rows[: 4 * n_steps].reshape(-1, 4), None
        if self.plan.lr_factor is not None:
            given = *steps[:, 2:].T.tolist(), t.step_times[:n_steps].tolist()
            rates = np.array([*map(self.plan.lr_factor, *given)])
        levels = levels_of(steps, rates, rows, operations[:, 2], t.fractions[:n], cuts=cuts)
        totals["n_steps"] = totals["n_operations"] = 0
        totals["window"] += 1
        t.workers["level"] = 0
        return levels

    def _total(self, name: str) -> int:
        return int(self._tables.totals[name][0])

    def _supply(self, worker: int) -> None:
        """Draw more random words for a worker, and the durations of its next steps."""
        t, me = self._tables, self._tables.workers[worker]
        halves, used = t.halves[worker], int(me["halves_used"])
        if used:
            words = self._random[worker].random_raw(used // 2)
            halves[:-used] = halves[used:]
            # Lower halves come first, on a machine of any byte order.
            halves[-used:] = words.astype("<u8").view("<u4")
            me["halves_used"] = 0
        n = t.durations.shape[1]
        block = 0 if n == 1 else (int(me["steps"]) + 1) // n
        if me["block"] < 0:
            block = 0
        if me["block"] != block:
            steps = range(block * n, (block + 1) * n)
            t.durations[worker] = [self.plan.pace.step_s(worker, step) for step in steps]
            me["block"] = block

    def _grow(self) -> None:
        """Double the tables of buffers and of the window that are full."""
        t, changes = self._tables, dict[str, Any]()
        if self._total("n_steps") >= len(t.step_times):
            changes["step_rows"] = _doubled(t.step_rows)
            changes["step_times"] = _doubled(t.step_times)
        if self._total("n_operations") + tables.OPERATIONS_MAX > len(t.fractions):
            changes["operation_rows"] = _doubled(t.operation_rows)
            changes["fractions"] = _doubled(t.fractions)
        if t.queue.size[0] + tables.QUEUE_SPARE > len(t.queue.times):
            changes["queue"] = t.queue.doubled()
        if not changes:
            n, totals = len(t.buffers), t.totals[0]
            # New buffers come first.
            free = np.roll(t.free_buffers, -totals["next_free"])
            changes["buffers"] = _doubled(t.buffers)
            changes["free_buffers"] = np.concatenate([np.arange(n, 2 * n), free])
            totals["n_free"] += n
            totals["next_free"] = 0
        self._tables = t._replace(**changes)


def _doubled(table: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([table, np.zeros_like(table)])


def _make_tables(plan: FleetPlan, topology: Topology) -> Tables:
    n, rule, protocol, links = len(plan.ids), plan.rule(), plan.protocol, plan.links()
    assert isinstance(rule, GoSGD | SGP) and links.uniform is not None
    latency_s, s_per_byte, down_s_per_byte = links.uniform
    offsets, neighbors, edges = _graph(topology, plan.ids)
    workers = np.zeros(n, tables.WORKER)
    workers["weight"] = UNITS_PER_FOUNDER
    for name in ("spare_half", "block", "passed_over", "due", "called_s"):
        workers[name] = -1
    workers["mean_s"] = [plan.pace.mean_s(worker) for worker in range(n)]
    workers["alarm_s"] = np.inf
    totals = np.zeros(1, tables.TOTALS)
    totals["running"], totals["n_free"] = n, _BUFFERS_MIN
    halves = 2 * max(_WORDS[0], min(_WORDS[1], _WORDS_TOTAL // n))
    workers["halves_used"] = halves
    n_durations = 1 if is_constant(plan.pace) else _DURATIONS
    return Tables(
        queue=tables.Queue.for_events(2 * n),
        totals=totals,
        workers=workers,
        edges=edges,
        incoming=np.zeros((n, staged_max(plan)), tables.INCOMING),
        outgoing=np.zeros((n, OUTGOING_MAX), np.int64),
        spans=np.zeros((n, SPANS_MAX if down_s_per_byte else 0), tables.SPAN),
        halves=np.zeros((n, halves), np.uint32),
        durations=np.zeros((n, n_durations)),
        buffers=np.zeros(_BUFFERS_MIN, tables.BUFFER),
        free_buffers=np.arange(_BUFFERS_MIN),
        step_rows=np.zeros(4 * _ROWS_MIN, np.int64),
        step_times=np.zeros(_ROWS_MIN),
        operation_rows=np.zeros(6 * _ROWS_MIN, np.int64),
        fractions=np.zeros(_ROWS_MIN),
        offsets=offsets,
        neighbors=neighbors,
        shares_out=int(isinstance(rule, SGP)),
        p=float(rule.p) if isinstance(rule, GoSGD) else 0.0,
        is_timed=int(isinstance(rule, GoSGD) and rule.emission == "per-second"),
        latency_s=float(latency_s),
        s_per_byte=float(s_per_byte),
        down_s_per_byte=float(down_s_per_byte),
        instant_s=INSTANT_S,
        query_s_min=float(protocol.query_s_min),
        query_s_max=float(protocol.query_s_max),
        soonest_s=float(min(protocol.query_s_min, protocol.stall_s)),
        stall_s=float(protocol.stall_s),
        in_frames=int(is_offered(plan)),
        outstanding_max=rule.outstanding_max,
        steps_each=_NO_STEPS if plan.steps is None else plan.steps,
        steps_total=_NO_STEPS if plan.steps_total is None else plan.steps_total,
        exchange_s=float(plan.exchange_s),
        period=topology.period or 1,
        **_sizes(plan),
    )


def _graph(
    topology: Topology, ids: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
    """Return `Tables.offsets` and `Tables.neighbors` of a periodic topology, and its edges."""
    # Arrays, not lists: a million workers have 80 million numbers.
    offsets, neighbors, sources, receivers = (array("q", start) for start in ([0], [], [], []))
    for worker in range(len(ids)):
        known: dict[int, int] = {}
        for round in range(topology.period or 1):
            for other in topology.neighbors(worker, round):
                if other not in known:
                    known[other] = len(sources)
                    sources.append(worker)
                    receivers.append(other)
                neighbors.append(known[other])
            offsets.append(len(neighbors))
    edges = np.zeros(len(sources), tables.EDGE)
    edges["source"], edges["to"] = sources, receivers
    lengths = np.array([len(id) for id in ids])
    edges["name_bytes"] = lengths[edges["source"]] + lengths[edges["to"]]
    edges["roundtrip_s"] = -1.0
    return np.frombuffer(offsets, np.int64), np.frombuffer(neighbors, np.int64), edges


def share_bytes_of(plan: FleetPlan) -> int:
    """Return the size of a share of a whole model, bytes."""
    return Form(plan.protocol.wire).size_bytes(plan.schema, 0)


def is_offered(plan: FleetPlan) -> bool:
    """Return True if a share is offered first."""
    return share_bytes_of(plan) > plan.protocol.inline_bytes_max


def _sizes(plan: FleetPlan) -> dict[str, int]:
    """Return the sizes of messages, bytes, without the names and the numbers that vary."""
    me, other = plan.ids[0], plan.ids[1]
    share_bytes = share_bytes_of(plan)

    def measure(body: Body, numbers: int, frame_bytes: int = 0) -> int:
        envelope = Envelope(
            swarm=plan.anchor,
            schema=plan.schema.hash,
            source=me,
            source_incarnation=1,
            destination=other,
            destination_incarnation=1,
            body=body,
            frame_bytes=frame_bytes,
        )
        # The numbers that vary are small here, one byte each.
        return encoded_bytes(envelope) - len(me) - len(other) - numbers

    told: dict[str, Any] = {
        **{"seq": 1, "escrow": UNIT, "size_bytes": share_bytes},
        "form": Form(plan.protocol.wire),
        **{"epoch": 0, "round": 0, "note": 0, "step": 0},
    }
    offer = Offer(**told, frame_bytes=plan.protocol.frame_bytes)
    ack = Ack(1, UNIT)
    return {
        "push_bytes": measure(Push(**told), 4, share_bytes),
        "offer_bytes": measure(offer, 4),
        "eager_bytes": measure(replace(offer, eager_bytes=share_bytes), 4) - measure(offer, 4),
        "grant_bytes": measure(Grant(1, share_bytes), 1),
        "chunk_bytes": measure(Chunk(1, 0, 0), 1, share_bytes),
        "ack_bytes": measure(ack, 2),
        "credit_bytes": measure(replace(ack, credit_bytes=plan.protocol.window_bytes), 2)
        - measure(ack, 2),
        "query_bytes": measure(Query(1), 1),
        "pending_bytes": measure(Pending(1), 1),
    }
