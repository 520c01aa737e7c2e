"""Records of workers and edges say the same in both kinds of memory."""

import numpy as np
import pytest

from rumor.sim.kernel.fast_path.records import Graph, Layout
from rumor.sim.models.step_time import make_step_time
from rumor.topology import parse

WIDTHS = {
    "outgoing_max": 4, "staged_max": 3, "arriving_max": 3, "durations_each": 2, "spans_max": 0,
    "halves_each": 10,
}  # fmt: skip
IDS = ("a", "bb", "ccc", "dddd")


@pytest.mark.parametrize("topology", ["complete", "one-peer-exponential"])
def test_edges_lead_from_record_to_record(topology: str) -> None:
    found = parse(topology, 4, seed=0)
    period = found.period or 1
    graph = Graph.of(found, 4)
    layout = Layout.of(4, graph, WIDTHS)
    ints, _ = layout.cells(graph, make_step_time("constant", ids=IDS, step_s=1.0, seed=0), IDS)
    places, stride = layout.places, layout.places["stride"]
    for worker in range(4):
        record = worker * stride
        assert ints[places["number"] + record] == worker
        for round in range(period):
            row = places["offsets"] + ints[places["first_row"] + record] + round
            edges = ints[places["neighbors"] + ints[row] : places["neighbors"] + ints[row + 1]]
            others = [int(ints[places["to"] + edge]) // stride for edge in edges]
            assert others == list(found.neighbors(worker, round))
            for edge, other in zip(edges, others, strict=True):
                assert ints[places["source"] + edge] == record
                assert ints[places["name_bytes"] + edge] == len(IDS[worker]) + len(IDS[other])


def test_no_field_lies_on_another_one() -> None:
    graph = Graph.of(parse("complete", 4, seed=0), 4)
    layout = Layout.of(4, graph, WIDTHS | {"spans_max": 7})
    seen = np.zeros(layout.size, int)
    for name in layout.places:
        if name not in ("stride", "neighbors", "offsets", "clock"):
            for at in range(layout.widths.get(name, 1)):
                seen[layout.where(name, at)] += 1
    assert seen.max() == 1
    assert not seen[layout.places["neighbors"] :].any()
