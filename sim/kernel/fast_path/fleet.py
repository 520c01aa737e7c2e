"""A fleet whose exchanges are decided by `decisions` in place of one protocol for each worker."""

from array import array
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....gossip import Audit, Envelope, Rule
from ....gossip.protocol.rule import requirements_of
from ....gossip.rules.asynchronous.gosgd import GoSGD
from ....gossip.rules.asynchronous.sgp import SGP
from ....gossip.types import stream
from ....gossip.weight import UNIT, UNITS_PER_FOUNDER
from ....gossip.wire.codec import encoded_bytes
from ....gossip.wire.formats import NATIVE, Form
from ....gossip.wire.messages import Ack, Body, Chunk, Grant, Offer, Pending, Push, Query
from ....topology import Topology
from ...models.links import INSTANT_S, SPANS_MAX
from ...models.step_time import is_constant
from ...models.topology import WorkerTopology
from ..plan import FleetPlan, Traffic
from .compiler import Decider
from .decisions import tables
from .decisions.tables import Tables
from .records import Graph, Layout

__all__ = ["FastFleet", "TakeOver", "Window", "why_not"]

# Of more than the first, at most so many for each worker: a sparse graph may have any size.
_EDGES_MAX, _EDGES_EACH = 4_000_000, 32
_OUTGOING_MAX = 64
_NO_STEPS = 1 << 62
_DURATIONS = 64
_WORDS = 16, 256
_WORDS_TOTAL = 1 << 23
_ROOMS_MIN, _ROWS_MIN = 256, 4096


def why_not(plan: FleetPlan) -> str:
    """Why a fleet has to be decided by protocols, or nothing."""
    rule, protocol, links = plan.rule(), plan.protocol, plan.links()
    if why := _why_not_rule(rule):
        return why
    if plan.fault_plan is not None:
        return "there are faults"
    if plan.attacks:
        return "workers lie"
    if plan.epoch is not None:
        return "samples are dealt by who is there"
    if plan.schema.shards > 1 or protocol.wire != NATIVE or protocol.exact:
        return "shares are not whole models in float32"
    if _is_offered(plan) and Form().size_bytes(plan.schema, 0) > protocol.frame_bytes:
        return "a model does not fit into one frame"
    if protocol.bandwidth_bytes_s is not None:
        return "workers limit what they send"
    if links.header_weight != 1.0:
        return "the model stands for a larger one"
    if links.are_fair:
        return "connections share cables evenly"
    if links.uniform is None:
        return "links differ, or lose, delay or double messages"
    if _staged_max(plan) > tables.STAGED_MAX:
        return "too many shares may wait at a worker"
    topology = _topology_of(plan)
    if topology is None or topology.period is None:
        return "the topology has no period"
    if _is_dense(topology, len(plan.ids)):
        return f"the topology has more than {max(_EDGES_MAX, _EDGES_EACH * len(plan.ids)):,} edges"
    if len(plan.ids) < 2:
        return "there is one worker"
    if type(rule) is SGP and _degree(topology, len(plan.ids)) > _OUTGOING_MAX:
        return f"a worker has more than {_OUTGOING_MAX} neighbors"
    return ""


def _why_not_rule(rule: Rule) -> str:
    if requirements_of(rule).measures:
        return "workers measure how far shares are from their models"
    if type(rule) is GoSGD:
        if rule.samples:
            return "workers push by the samples of their steps"
        if rule.layers > 1:
            return "workers push while a step goes on"
        return "" if rule.emission == "per-step" else f"emission is {rule.emission}"
    return "" if type(rule) is SGP else f"the rule is {rule.name}"


def _staged_max(plan: FleetPlan) -> int:
    """Shares that may wait at a worker."""
    return max(plan.protocol.staged_max, requirements_of(plan.rule()).staged_max)


def _degree(topology: Topology, n: int) -> int:
    """Neighbors of a worker in a round, at most."""
    rounds = range(topology.period or 1)
    return max(len(topology.neighbors(worker, round)) for worker in range(n) for round in rounds)


def _topology_of(plan: FleetPlan) -> Topology | None:
    neighbors = plan.neighbors
    return neighbors.topology if isinstance(neighbors, WorkerTopology) else None


class TakeOver(Exception):
    """Something is due that only the protocols can decide."""


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a program, in columns: rows in order of the schedule."""

    n_levels: int
    steps: NDArray[np.int64]
    """Worker, level and number of the worker's step, axes ``(step, 3)``; their orders follow one
    another."""
    first_order: int
    operations: NDArray[np.int64]
    """Kind, worker, level, slot, room and id of the snapshot, axes ``(operation, 6)``; of learning
    rates, the worker's steps and those of all that it knows in place of slot and room."""
    fractions: NDArray[np.float64]
    """By which part each mixes, or which part of its learning rate its worker uses from then on."""


class FastFleet:
    """Workers, the links between them, and what is due when, all in columns.

    Args:
        plan: What they are made of; `why_not` finds nothing.
    """

    def __init__(self, plan: FleetPlan, decider: Decider) -> None:
        self.now = 0.0
        self.over = False
        self._plan = plan
        self._decider = decider
        self._n = len(plan.ids)
        self._random = [stream(plan.seed, id, "rule").bit_generator for id in plan.ids]
        """What each worker's rule draws from."""
        topology = _topology_of(plan)
        assert topology is not None
        self._tables = self._make(topology)
        for worker in range(self._n):
            self._supply(worker)
        self._decisions = decider.module(self._tables)
        self._decisions.begin(self._tables)

    def run(self, until_s: float, steps_max: int) -> bool:
        """See `Fleet.run`.

        Raises:
            TakeOver: Only the protocols can go on.
        """
        last = self.steps + steps_max
        while True:
            why = self._decisions.advance(self._tables, until_s, last)
            if why == tables.SUPPLY:
                self._supply(int(self._tables.count[tables.WANTING]) // self._tables.stride)
                self._supply_others()
            elif why == tables.FULL:
                self._grow()
            elif why == tables.BEYOND:
                raise TakeOver
            else:
                break
        self.now = float(self._tables.floats[self._tables.clock])
        self.over = why == tables.OVER
        return bool(why != tables.STEPS)

    @property
    def steps(self) -> int:
        """Optimizer steps of all workers so far."""
        return int(self._tables.count[tables.TAKEN])

    @property
    def traffic(self) -> Traffic:
        """What all workers together have sent and mixed."""
        count = [int(number) for number in self._tables.count]
        return Traffic(
            messages=count[tables.MESSAGES],
            bytes_sent=count[tables.BYTES],
            pushes=count[tables.PUSHES],
            skipped=count[tables.SKIPPED],
            refusals=count[tables.REFUSALS],
            mixed=count[tables.MIXED],
            staleness_steps=count[tables.STALENESS],
            events=count[tables.EVENTS],
        )

    def column(self, name: str) -> NDArray[np.int64]:
        """A field of all workers, such as ``steps`` or ``weight`` (in units), or of all edges."""
        return np.array(self._tables.ints[self._layout.where(name)], np.int64)

    def audit(self) -> Audit:
        """Where all weight is: with workers, or in escrow of which nothing was accepted yet."""
        busy = self.column("busy") != 0
        decided = busy & (self.column("decided") == self.column("sequence"))
        left = int(self.column("escrow")[busy].sum())
        left -= int(self.column("accepted")[decided].sum())
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
        n_steps, n = int(t.count[tables.N_STEPS]), int(t.count[tables.N_OPERATIONS])
        window = Window(
            n_levels=int(t.count[tables.N_LEVELS]),
            steps=np.array(t.step_rows[: 3 * n_steps], np.int64).reshape(-1, 3),
            first_order=self.steps - n_steps,
            operations=np.array(t.operation_rows[: 6 * n], np.int64).reshape(-1, 6),
            fractions=np.array(t.fractions[:n], np.float64),
        )
        self._scale_lr(window)
        t.count[tables.N_STEPS] = t.count[tables.N_OPERATIONS] = 0
        t.count[tables.N_LEVELS] = 1
        t.count[tables.WINDOW] += 1
        t.ints[self._layout.where("level")] = self._array(np.zeros(self._n, np.int64))
        return window

    def _scale_lr(self, window: Window) -> None:
        """Find which part of its learning rate a worker uses, in place of when that changes."""
        factor = self._plan.lr_factor
        if factor is not None:
            at = np.flatnonzero(window.operations[:, 0] == tables.SCALE_LR)
            given = *window.operations[at, 3:5].T.tolist(), window.fractions[at].tolist()
            window.fractions[at] = [*map(factor, *given)]

    def _make(self, topology: Topology) -> Tables:
        plan, n = self._plan, self._n
        rule, protocol, links = plan.rule(), plan.protocol, plan.links()
        assert isinstance(rule, GoSGD | SGP) and links.uniform is not None
        latency_s, s_per_byte, down_s_per_byte = links.uniform
        widths = _widths_of(plan, spans_max=SPANS_MAX if down_s_per_byte else 0)
        graph = Graph.of(topology, n)
        layout = self._layout = Layout.of(n, graph, widths)
        ints: Any
        floats: Any
        ints, floats = layout.cells(graph, plan.pace, plan.ids)
        if not self._decider.is_compiled:
            ints, floats = ints.tolist(), array("d", floats.tobytes())
        self._floats = np.frombuffer(floats)
        count = np.zeros(tables.N_COUNTS, np.int64)
        count[tables.RUNNING], count[tables.N_LEVELS] = n, 1
        count[tables.FREE] = _ROOMS_MIN
        return Tables(
            queue=self._decider.queues.made(2 * n),
            count=self._array(count),
            ints=ints,
            floats=floats,
            rooms=self._array(np.zeros(tables.ROOM * _ROOMS_MIN, np.int64)),
            free_rooms=self._array(np.arange(_ROOMS_MIN)),
            step_rows=self._array(np.zeros(3 * _ROWS_MIN, np.int64)),
            operation_rows=self._array(np.zeros(6 * _ROWS_MIN, np.int64)),
            fractions=self._array(np.zeros(_ROWS_MIN)),
            n=n,
            shares_out=int(isinstance(rule, SGP)),
            p=float(rule.p) if isinstance(rule, GoSGD) else 0.0,
            latency_s=float(latency_s),
            s_per_byte=float(s_per_byte),
            down_s_per_byte=float(down_s_per_byte),
            instant_s=INSTANT_S,
            query_s_min=float(protocol.query_s_min),
            query_s_max=float(protocol.query_s_max),
            soonest_s=float(min(protocol.query_s_min, protocol.stall_s)),
            stall_s=float(protocol.stall_s),
            in_frames=int(_is_offered(plan)),
            outstanding_max=rule.outstanding_max,
            steps_each=_NO_STEPS if plan.steps is None else plan.steps,
            steps_total=_NO_STEPS if plan.steps_total is None else plan.steps_total,
            exchange_s=float(plan.exchange_s),
            scales_lr=int(plan.lr_factor is not None),
            period=topology.period or 1,
            **widths,
            **_sizes(plan),
            **layout.places,
        )

    def _supply(self, worker: int) -> None:
        """Draw further random words for a worker, and the durations of its next steps."""
        t, each, record = self._tables, self._tables.halves_each, worker * self._tables.stride
        used = int(t.ints[t.half + record])
        if 2 * used > each:
            words = self._random[worker].random_raw(used // 2)
            halves = self._floats[t.halves + record :][:each]
            halves[: each - used] = halves[used:]
            halves[each - used :] = np.stack([words & _LOW, words >> np.uint64(32)], axis=1).flat
            t.ints[t.half + record] = 0
        is_first = t.ints[t.block + record] < 0 or t.durations_each == 1
        block = 0 if is_first else (int(t.ints[t.steps + record]) + 1) // t.durations_each
        if t.ints[t.block + record] != block:
            steps = range(block * t.durations_each, (block + 1) * t.durations_each)
            start = t.durations + record
            durations = [self._plan.pace.step_s(worker, step) for step in steps]
            self._floats[start : start + t.durations_each] = durations
            t.ints[t.block + record] = block

    def _supply_others(self) -> None:
        """Supply all who would soon ask for it, since every answer costs some microseconds."""
        t = self._tables
        if t.halves_each < 2 * _WORDS[1]:
            return
        for worker in np.flatnonzero(2 * self.column("half") > t.halves_each):
            self._supply(int(worker))

    def _grow(self) -> None:
        """Make the columns of rooms and of the window twice as long where they are full."""
        t, changes = self._tables, dict[str, Any]()
        if 3 * t.count[tables.N_STEPS] >= len(t.step_rows):
            changes["step_rows"] = self._longer(t.step_rows)
        if t.count[tables.N_OPERATIONS] + tables.OPERATIONS_MAX > len(t.fractions):
            changes["operation_rows"] = self._longer(t.operation_rows)
            changes["fractions"] = self._longer(t.fractions)
        if self._decisions.is_full(t.queue):
            changes["queue"] = self._decider.queues.longer(t.queue)
        if not changes:
            n, n_free, first = len(t.free_rooms), t.count[tables.FREE], t.count[tables.NEXT_FREE]
            free = np.roll(np.array(t.free_rooms), -first)
            # The new ones come first.
            free_rooms = np.concatenate([np.arange(n, 2 * n), free])
            changes = {"rooms": self._longer(t.rooms), "free_rooms": self._array(free_rooms)}
            t.count[tables.FREE], t.count[tables.NEXT_FREE] = n + n_free, 0
        self._tables = t._replace(**changes)

    def _array(self, numbers: NDArray[Any]) -> Any:
        """A list for Python, an array for compiled code."""
        return numbers if self._decider.is_compiled else numbers.tolist()

    def _longer(self, column: Any) -> Any:
        return self._array(np.concatenate([np.array(column), np.zeros_like(column)]))


def _widths_of(plan: FleetPlan, spans_max: int) -> dict[str, Any]:
    """So many places each worker has in the columns that hold several numbers of each."""
    return {
        "halves_each": 2 * max(_WORDS[0], min(_WORDS[1], _WORDS_TOTAL // len(plan.ids))),
        "durations_each": 1 if is_constant(plan.pace) else _DURATIONS,
        "outgoing_max": _OUTGOING_MAX,
        "staged_max": _staged_max(plan),
        "arriving_max": _staged_max(plan) if _is_offered(plan) else 0,
        "spans_max": spans_max,
    }


_LOW = np.uint64(0xFFFFFFFF)


def _is_dense(topology: Topology, n: int) -> bool:
    """Whether there would be too many rows of edges; says so after the first that are too many."""
    left = max(_EDGES_MAX, _EDGES_EACH * n)
    for worker in range(n):
        for round in range(topology.period or 1):
            left -= len(topology.neighbors(worker, round))
        if left < 0:
            return True
    return False


def _is_offered(plan: FleetPlan) -> bool:
    """Whether a share is offered first."""
    return Form().size_bytes(plan.schema, 0) > plan.protocol.inline_bytes_max


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

    told: dict[str, Any] = {
        **{"seq": 1, "escrow": UNIT, "size_bytes": share_bytes, "form": Form()},
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
