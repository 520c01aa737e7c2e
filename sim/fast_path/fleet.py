"""A fleet whose exchanges are decided by `decisions` in place of one protocol for each worker."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...gossip import Audit, Envelope, Rule
from ...gossip.effects.effects import X
from ...gossip.rules.asynchronous.gosgd import GoSGD
from ...gossip.weight import UNIT, UNITS_PER_FOUNDER
from ...gossip.wire.codec import encoded_bytes
from ...gossip.wire.formats import NATIVE, Form
from ...gossip.wire.messages import Ack, Body, Pending, Push, Query
from ...topology import Topology
from ..kernel.plan import FleetPlan, Traffic
from ..kernel.program import Cut
from ..kernel.topology import WorkerTopology
from ..models.step_time import is_constant
from . import decisions
from .compiler import Decider
from .decisions import Tables

__all__ = ["FastFleet", "Window", "why_not"]

_EDGES_MAX = 4_000_000
_STAGED_MAX = 24
_OUTGOING_MAX = 64
_NO_STEPS = 1 << 62
_DURATIONS = 64
_WORDS = 16, 256
_WORDS_TOTAL = 1 << 23
_ROOMS_MIN, _ROWS_MIN = 256, 4096
PLAIN = Cut(X, Form(), 0)


def why_not(plan: FleetPlan) -> str:
    """Why a fleet has to be decided by protocols, or nothing."""
    rule, protocol, links = plan.rule(), plan.protocol, plan.links()
    if why := _why_not_rule(rule):
        return why
    if plan.fault_plan is not None:
        return "there are faults"
    if plan.steps_total is not None:
        return "all workers together stop after so many steps"
    if plan.schema.shards > 1 or protocol.wire != NATIVE or protocol.exact:
        return "shares are not whole models in float32"
    if Form().size_bytes(plan.schema, 0) > protocol.inline_bytes_max:
        return "a model does not fit into one message"
    if protocol.bandwidth_bytes_s is not None:
        return "workers limit what they send"
    if links.uniform is None:
        return "links differ, or lose, delay or double messages"
    if protocol.staged_max > _STAGED_MAX:
        return "too many shares may wait at a worker"
    topology = _topology_of(plan)
    if topology is None or topology.period is None:
        return "the topology has no period"
    if len(plan.ids) < 2:
        return "there is one worker"
    return ""


def _why_not_rule(rule: Rule) -> str:
    if type(rule) is not GoSGD:
        return f"the rule is {rule.name}"
    return "" if rule.emission == "per-step" else f"emission is {rule.emission}"


def _topology_of(plan: FleetPlan) -> Topology | None:
    neighbors = plan.neighbors
    return neighbors.topology if isinstance(neighbors, WorkerTopology) else None


class TooManyEdges(Exception):
    """A topology has more edges than columns are made for."""


class TakeOver(Exception):
    """Something is due that only the protocols can decide."""


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a program, in columns: rows in order of the schedule."""

    n_levels: int
    steps: tuple[NDArray[np.int64], ...]
    """Of each step: worker, level, number of the worker's step; orders follow one another."""
    first_order: int
    operations: tuple[NDArray[np.int64], ...]
    """Of each: kind, worker, level, slot, room, id of the snapshot."""
    fractions: NDArray[np.float64]


class FastFleet:
    """Workers, the links between them, and what is due when, all in columns.

    Args:
        plan: What they are made of; `why_not` finds nothing.
        decider: What runs `decisions`.

    Raises:
        TooManyEdges: The topology has too many.
    """

    def __init__(self, plan: FleetPlan, decider: Decider) -> None:
        self.now = 0.0
        self.over = False
        self._plan = plan
        self._decider = decider
        self._n = len(plan.ids)
        self._random = [_words(plan.seed, id) for id in plan.ids]
        self._tables = self._make()
        for worker in range(self._n):
            self._supply(worker)
        decider.begin(self._tables)

    def run(self, until_s: float, steps_max: int) -> bool:
        """Let happen what happens until then.

        Args:
            until_s: Virtual seconds; what happens at that very time happens.
            steps_max: Optimizer steps after which it stops earlier.

        Returns:
            Whether that time has come, or everything is over.

        Raises:
            TakeOver: Only the protocols can go on.
        """
        last = self.steps + steps_max
        while True:
            why = self._decider.advance(self._tables, until_s, last)
            if why == decisions.SUPPLY:
                self._supply(int(self._tables.count[decisions.WANTING]))
            elif why == decisions.FULL:
                self._grow()
            elif why == decisions.BEYOND:
                raise TakeOver
            else:
                break
        self.now = float(self._tables.clock[0])
        self.over = why == decisions.OVER
        return why != decisions.STEPS

    @property
    def steps(self) -> int:
        """Optimizer steps of all workers so far."""
        return int(self._tables.count[decisions.TAKEN])

    @property
    def traffic(self) -> Traffic:
        """What all workers together have sent and mixed."""
        count = [int(number) for number in self._tables.count]
        return Traffic(
            messages=count[decisions.MESSAGES],
            bytes_sent=count[decisions.BYTES],
            pushes=count[decisions.PUSHES],
            skipped=count[decisions.SKIPPED],
            refusals=count[decisions.REFUSALS],
            mixed=count[decisions.MIXED],
            staleness_steps=count[decisions.STALENESS],
            events=count[decisions.EVENTS],
        )

    def column(self, name: str) -> NDArray[np.int64]:
        """One number for each worker: ``steps``, ``weight`` (in units), ``pushes`` or ``mixed``."""
        return np.array(getattr(self._tables, name), np.int64)

    def audit(self) -> Audit:
        """Where all weight is: with workers, or in escrow of which nothing was accepted yet."""
        t = self._tables
        busy = np.array(t.busy, np.int64) == 1
        decided = busy & (np.array(t.decided, np.int64) == np.array(t.sequence, np.int64))
        left = int(np.array(t.escrow, np.int64)[busy].sum())
        left -= int(np.array(t.accepted, np.int64)[decided].sum())
        return Audit(
            founded=self._n * UNITS_PER_FOUNDER * UNIT,
            held=int(self.column("weight").sum()) * UNIT,
            in_flight=left * UNIT,
            stranded=0,
            burned=0,
            died=0,
        )

    def take(self) -> Window:
        """Hand over what was decided since this was last called."""
        t = self._tables
        n_steps, n = int(t.count[decisions.N_STEPS]), int(t.count[decisions.N_OPERATIONS])
        steps = (t.step_worker, t.step_level, t.step_number)
        operations = (
            t.operation,
            t.operation_worker,
            t.operation_level,
            t.operation_slot,
            t.operation_room,
            t.operation_id,
        )
        window = Window(
            n_levels=int(t.count[decisions.N_LEVELS]),
            steps=tuple(np.array(column[:n_steps], np.int64) for column in steps),
            first_order=self.steps - n_steps,
            operations=tuple(np.array(column[:n], np.int64) for column in operations),
            fractions=np.array(t.fraction[:n], np.float64),
        )
        t.count[decisions.N_STEPS] = t.count[decisions.N_OPERATIONS] = 0
        t.count[decisions.N_LEVELS] = 1
        t.count[decisions.WINDOW] += 1
        t.level[:] = self._ints(self._n)
        return window

    def _make(self) -> Tables:
        plan, n, ints, floats = self._plan, self._n, self._ints, self._floats
        rule, protocol, links = plan.rule(), plan.protocol, plan.links()
        assert isinstance(rule, GoSGD) and links.uniform is not None
        latency_s, s_per_byte = links.uniform
        topology = _topology_of(plan)
        assert topology is not None and topology.period is not None
        offsets, neighbors, source, to = _edges(topology, n)
        edges = len(source)
        count = ints(decisions.N_COUNTS)
        count[decisions.RUNNING], count[decisions.N_LEVELS] = n, 1
        count[decisions.FREE] = _ROOMS_MIN
        words_each = max(_WORDS[0], min(_WORDS[1], _WORDS_TOTAL // n))
        durations_each = 1 if is_constant(plan.pace) else _DURATIONS
        return Tables(
            queue=self._queue(),
            clock=floats(1),
            count=count,
            p=float(rule.p),
            latency_s=float(latency_s),
            s_per_byte=float(s_per_byte),
            query_s_min=float(protocol.query_s_min),
            query_s_max=float(protocol.query_s_max),
            soonest_s=float(min(protocol.query_s_min, protocol.stall_s)),
            outstanding_max=rule.outstanding_max,
            staged_max=protocol.staged_max,
            steps_each=_NO_STEPS if plan.steps is None else plan.steps,
            period=topology.period,
            **_sizes(plan),
            offsets=self._column(offsets),
            neighbors=self._column(neighbors),
            source=self._column(source),
            to=self._column(to),
            name_bytes=self._column([len(id) for id in plan.ids]),
            mean_s=self._column([plan.pace.mean_s(worker) for worker in range(n)], float),
            words_each=words_each,
            high=ints(n * words_each),
            low=ints(n * words_each),
            word=ints(n, words_each),
            spare=ints(n, -1),
            durations_each=durations_each,
            durations=floats(n * durations_each),
            block=ints(n, -1),
            weight=ints(n, UNITS_PER_FOUNDER),
            steps=ints(n),
            round=ints(n),
            passed=ints(n),
            finished=ints(n),
            alarm_s=floats(n, np.inf),
            uplink_free_s=floats(n),
            pushes=ints(n),
            mixed=ints(n),
            level=ints(n),
            n_outgoing=ints(n),
            outgoing=ints(n * _OUTGOING_MAX),
            outgoing_max=_OUTGOING_MAX,
            excused=ints(n),
            n_incoming=ints(n),
            incoming_edge=ints(n * protocol.staged_max),
            incoming_step=ints(n * protocol.staged_max),
            incoming_room=ints(n * protocol.staged_max),
            busy=ints(edges),
            sequence=ints(edges),
            escrow=ints(edges),
            pushed_s=floats(edges),
            deadline_s=floats(edges),
            questions=ints(edges),
            is_excused=ints(edges),
            roundtrip_s=floats(edges, -1.0),
            deviation_s=floats(edges),
            decided=ints(edges),
            accepted=ints(edges),
            free_rooms=self._column(range(_ROOMS_MIN)),
            slot=ints(_ROOMS_MIN),
            room_level=ints(_ROOMS_MIN),
            room_window=ints(_ROOMS_MIN),
            step_worker=ints(_ROWS_MIN),
            step_level=ints(_ROWS_MIN),
            step_number=ints(_ROWS_MIN),
            operation=ints(_ROWS_MIN),
            operation_worker=ints(_ROWS_MIN),
            operation_level=ints(_ROWS_MIN),
            operation_slot=ints(_ROWS_MIN),
            operation_room=ints(_ROWS_MIN),
            operation_id=ints(_ROWS_MIN),
            fraction=floats(_ROWS_MIN),
        )

    def _supply(self, worker: int) -> None:
        """Draw further random words for a worker, and the durations of its next steps."""
        t, each = self._tables, self._tables.words_each
        used, start = int(t.word[worker]), worker * each
        if used + decisions.WORDS_MAX > each:
            left = each - used
            words = self._random[worker].random_raw(used)
            stop = start + each
            for column, fresh in ((t.high, words >> np.uint64(32)), (t.low, words & _LOW)):
                column[start : start + left] = column[start + used : stop]
                column[start + left : stop] = self._column(fresh.astype(np.int64))
            t.word[worker] = 0
        block = 0 if t.durations_each == 1 else (int(t.steps[worker]) + 1) // t.durations_each
        if t.block[worker] < 0:
            block = 0
        if t.block[worker] != block:
            first, pace = block * t.durations_each, self._plan.pace
            stop = first + t.durations_each
            at = worker * t.durations_each
            t.durations[at : at + t.durations_each] = self._column(
                [pace.step_s(worker, step) for step in range(first, stop)], float
            )
            t.block[worker] = block

    def _grow(self) -> None:
        """Make the columns of rooms and of the window twice as long where they are full."""
        t = self._tables
        changes: dict[str, Any] = {}
        if t.count[decisions.FREE] == 0:
            n = len(t.slot)
            for name in ("slot", "room_level", "room_window"):
                changes[name] = self._longer(getattr(t, name))
            changes["free_rooms"] = self._column([*range(n, 2 * n), *range(n)])
            t.count[decisions.FREE] = n
        if t.count[decisions.N_STEPS] >= len(t.step_worker):
            for name in ("step_worker", "step_level", "step_number"):
                changes[name] = self._longer(getattr(t, name))
        if t.count[decisions.N_OPERATIONS] + decisions.OPERATIONS_MAX > len(t.operation):
            names = [name for name in Tables._fields if name.startswith("operation")]
            for name in (*names, "fraction"):
                changes[name] = self._longer(getattr(t, name))
        self._tables = t._replace(**changes)

    # Columns are lists for Python and arrays for compiled code.

    def _column(self, numbers: Sequence[Any] | NDArray[Any] | range, kind: type = int) -> Any:
        if self._decider.is_compiled:
            return np.array(numbers, np.int64 if kind is int else np.float64)
        return numbers.tolist() if isinstance(numbers, np.ndarray) else list(numbers)

    def _ints(self, n: int, value: int = 0) -> Any:
        return np.full(n, value, np.int64) if self._decider.is_compiled else [value] * n

    def _floats(self, n: int, value: float = 0.0) -> Any:
        return np.full(n, value, np.float64) if self._decider.is_compiled else [value] * n

    def _longer(self, column: Any) -> Any:
        if self._decider.is_compiled:
            return np.concatenate([column, np.zeros_like(column)])
        return column + [type(column[0])(0)] * len(column)

    def _queue(self) -> Any:
        return self._decider.queue()


_LOW = np.uint64(0xFFFFFFFF)


def _words(seed: int, id: str) -> np.random.Philox:
    """The random words that a rule of that name draws from."""
    name = f"{seed}\0{id}\0rule".encode()
    key = int.from_bytes(blake2b(name, digest_size=16).digest(), "little")
    return np.random.Philox(key=key)


def _edges(topology: Topology, n: int) -> tuple[list[int], list[int], list[int], list[int]]:
    """Rows of neighbors by worker and round, as numbers of edges; both ends of each edge."""
    period = topology.period
    assert period is not None
    offsets, neighbors, source, to = [0], list[int](), list[int](), list[int]()
    for worker in range(n):
        known: dict[int, int] = {}
        for round in range(period):
            for other in topology.neighbors(worker, round):
                edge = known.get(other)
                if edge is None:
                    edge = known[other] = len(to)
                    source.append(worker)
                    to.append(other)
                neighbors.append(edge)
            offsets.append(len(neighbors))
        if len(neighbors) > _EDGES_MAX:
            raise TooManyEdges
    return offsets, neighbors, source, to


def _sizes(plan: FleetPlan) -> dict[str, int]:
    """Bytes of messages without the names in them, nor the numbers that vary."""
    me, other = plan.ids[0], plan.ids[1]
    share_bytes = Form().size_bytes(plan.schema, 0)

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
        # The numbers that vary are small here, a byte each.
        return encoded_bytes(envelope) - len(me) - len(other) - numbers

    push = Push(
        seq=1, escrow=UNIT, size_bytes=share_bytes, form=Form(), epoch=0, round=0, note=0, step=0
    )
    ack = Ack(1, UNIT)
    return {
        "push_bytes": measure(push, 4, share_bytes),
        "ack_bytes": measure(ack, 2),
        "credit_bytes": measure(replace(ack, credit_bytes=plan.protocol.window_bytes), 2)
        - measure(ack, 2),
        "query_bytes": measure(Query(1), 1),
        "pending_bytes": measure(Pending(1), 1),
    }
