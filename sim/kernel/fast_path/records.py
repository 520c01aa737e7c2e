"""How the records of workers and edges lie in memory, for `tables`."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....gossip.weight import UNITS_PER_FOUNDER
from ....topology import Topology
from ...models.step_time import StepTime

__all__ = ["EDGE_CELLS", "Graph", "Layout"]

EDGE_CELLS: Final = 16
"""Numbers from one edge's record to the next one's: two cache lines."""

_LINE = 8  # numbers of a cache line

_OF_WORKER = (
    "number", "first_row", "half", "spare", "block", "weight", "steps", "round",
    "passed", "passed_over", "snapshots", "finished", "pushes", "mixed", "known_steps",
    "exchanged", "level", "n_outgoing", "excused", "n_incoming", "top_span", "n_spans", "mean_s",
    "alarm_s", "uplink_free_s",
)  # fmt: skip
_ROWS_OF_WORKER = {
    "incoming_edge": "staged_max",
    "incoming_step": "staged_max",
    "incoming_room": "staged_max",
    "incoming_s": "arriving_max",
    "outgoing": "outgoing_max",
    "durations": "durations_each",
    "span_start_s": "spans_max",
    "span_stop_s": "spans_max",
    "halves": "halves_each",
}
"""Several numbers of each worker, and how many."""

_OF_EDGE = (
    "source", "to", "name_bytes", "busy", "sequence", "escrow", "questions", "is_excused",
    "decided", "accepted", "credit", "room", "pushed_s", "deadline_s", "roundtrip_s",
    "deviation_s",
)  # fmt: skip


class Graph(NamedTuple):
    """Who may push to whom, in each round of a period; edges and workers by number."""

    offsets: NDArray[np.int64]
    """Where a worker's neighbors in a round begin: row ``worker * period + round``; one more."""
    neighbors: NDArray[np.int64]
    """Edges."""
    source: NDArray[np.int64]
    to: NDArray[np.int64]

    @classmethod
    def of(cls, topology: Topology, n: int) -> "Graph":
        """The edges of a topology that has a period, among so many workers."""
        period = topology.period
        assert period is not None
        # Not lists: of a million workers there are 80 million numbers.
        offsets, neighbors, source, to = (array("q", start) for start in ([0], [], [], []))
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
        return cls(*(np.frombuffer(a, np.int64) for a in (offsets, neighbors, source, to)))


@dataclass(frozen=True, slots=True)
class Layout:
    """Where what lies."""

    n: int
    """Workers."""
    n_edges: int
    size: int
    """Numbers in all."""
    places: Mapping[str, int]
    """Of the fields of `Tables` that say where something begins, and its ``stride``."""
    widths: Mapping[str, int]
    """How many numbers a worker has, of those of which it has several."""

    @classmethod
    def of(cls, n: int, graph: Graph, widths: Mapping[str, int]) -> "Layout":
        """Lay out *n* workers, each with so many numbers of a kind, by the names of `Tables`."""
        each = {name: widths[width] for name, width in _ROWS_OF_WORKER.items()}
        places, here = {"clock": 0}, _LINE
        for name in (*_OF_WORKER, *each):
            places[name] = here
            here += each.get(name, 1)
        # An odd number of cache lines, so that records do not compete for the same places there.
        stride = places["stride"] = (-(-(here - _LINE) // _LINE) | 1) * _LINE
        here = _LINE + n * stride
        places |= {name: here + at for at, name in enumerate(_OF_EDGE)}
        here += len(graph.to) * EDGE_CELLS
        places["neighbors"] = here
        places["offsets"] = here + len(graph.neighbors)
        size = places["offsets"] + len(graph.offsets)
        return cls(n, len(graph.to), size, places, each)

    def cells(
        self, graph: Graph, pace: StepTime, ids: Sequence[str]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """One memory in two views, as it is at the start."""
        ints = np.zeros(self.size, np.int64)
        floats, stride = ints.view(np.float64), self.places["stride"]
        workers = np.arange(self.n)
        starts: dict[str, Any] = {
            "number": workers,
            "first_row": workers * ((len(graph.offsets) - 1) // self.n),
            "half": self.widths["halves"],
            "spare": -1,
            "block": -1,
            "passed_over": -1,
            "weight": UNITS_PER_FOUNDER,
        }
        for name, start in starts.items():
            ints[self.where(name)] = start
        ints[self.where("source")] = graph.source * stride
        ints[self.where("to")] = graph.to * stride
        lengths = np.array([len(id) for id in ids])
        ints[self.where("name_bytes")] = lengths[graph.source] + lengths[graph.to]
        floats[self.where("mean_s")] = [pace.mean_s(worker) for worker in range(self.n)]
        floats[self.where("alarm_s")] = np.inf
        floats[self.where("roundtrip_s")] = -1.0
        neighbors, offsets = self.places["neighbors"], self.places["offsets"]
        ints[neighbors:offsets] = graph.neighbors * EDGE_CELLS
        ints[offsets:] = graph.offsets
        return ints, floats

    def where(self, name: str, at: int = 0) -> slice:
        """A field of all workers, or of all edges; of several numbers of each the one *at* that."""
        start = self.places[name] + at
        if name in _OF_EDGE:
            return slice(start, start + self.n_edges * EDGE_CELLS, EDGE_CELLS)
        stride = self.places["stride"]
        return slice(start, start + self.n * stride, stride)
