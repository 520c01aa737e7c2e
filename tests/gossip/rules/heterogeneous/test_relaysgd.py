"""RelaySGD does what its equation says on any tree, and refuses what is none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from rumor.gossip.errors import ConfigError
from rumor.gossip.protocol.rule import Rule, require_topology
from rumor.gossip.rules.heterogeneous.relaysgd import RelaySGD
from rumor.gossip.rules.registry import make_rule
from rumor.gossip.rules.synchronous.dpsgd import DPSGD
from rumor.gossip.types import PeerId
from rumor.gossip.weight import ONE
from rumor.gossip.wire.formats import parse_wire
from rumor.gossip.wire.messages import Phase
from rumor.sim import NetworkConfig
from rumor.sim.fuzz.peers import complete
from rumor.sim.fuzz.swarm import CALM
from rumor.sim.fuzz.vector import SIZE, Values, decoded, encoded
from rumor.topology import LiveTopology, over

from ...crowd import BAD, CONFIG, LR, Crowd, gradient, starts

ROUNDS = 9  # more than the longest tree of seven is wide
WEATHERS = pytest.mark.parametrize("weather", [CALM, BAD], ids=["calm", "bad"])


def rule(peer: PeerId) -> Rule:
    return RelaySGD()


def edges_of(spec: str, ids: Sequence[PeerId]) -> list[list[int]]:
    """Neighbors of each node."""
    matrix = over(spec, 3, ids).matrix(0).toarray()
    return [[int(j) for j in np.flatnonzero(row) if j != i] for i, row in enumerate(matrix)]


def rounded(wire: str, x: Values) -> Values:
    """What a receiver makes of the numbers."""
    format, room = parse_wire(wire), np.zeros(2 * SIZE)
    room[:SIZE] = x
    return decoded(format, encoded(format, room, None), np.zeros(SIZE))


def expected(edges: Sequence[Sequence[int]], x: Values, rounds: int, wire: str) -> list[Values]:
    """The authors' loop; what travels is the mean of what a message adds up."""
    n, first, models = len(x), x.copy(), list[Values]()
    sums: dict[tuple[int, int], Values] = {}
    counts: dict[tuple[int, int], int] = {}
    for _ in range(rounds):
        x = np.array([row - LR * gradient(place, row) for place, row in enumerate(x)])
        told, of = {}, {}
        for i in range(n):
            for j in edges[i]:
                others = [k for k in edges[i] if k != j]
                of[i, j] = 1 + sum(counts.get((k, i), 0) for k in others)
                total = x[i] + sum(
                    (sums.get((k, i), np.zeros(SIZE)) for k in others), np.zeros(SIZE)
                )
                told[i, j] = of[i, j] * rounded(wire, total / of[i, j])
        sums, counts = told, of
        for i in range(n):
            count = 1 + sum(counts[k, i] for k in edges[i])
            x[i] = (x[i] + sum(sums[k, i] for k in edges[i]) + (n - count) * first[i]) / n
        models.append(x.copy())
    return models


@WEATHERS
@pytest.mark.parametrize("spec", ["path", "star", "tree"])
def test_models_are_those_of_the_equation(spec: str, weather: NetworkConfig) -> None:
    crowd = Crowd(rule, 7, LiveTopology(spec, 3), weather)
    models = crowd.history(ROUNDS)
    found = expected(edges_of(spec, crowd.ids), starts(7), ROUNDS, "float32")
    np.testing.assert_allclose(models, found, rtol=0, atol=1e-12)
    assert crowd.swarm.invariants.seen["fence"] or weather is CALM


@pytest.mark.parametrize("wire", ["float16", "bfloat16", "int8"])
def test_what_is_rounded_is_a_mean(wire: str) -> None:
    """The toy's anchor is zero, and each rounds to nearest, or toward zero."""
    crowd = Crowd(rule, 5, LiveTopology("tree", 3), BAD, config=replace(CONFIG, wire=wire))
    models = crowd.history(ROUNDS)
    found = expected(edges_of("tree", crowd.ids), starts(5), ROUNDS, wire)
    np.testing.assert_allclose(models, found, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2])
def test_few_are_a_tree_on_any_graph(n: int) -> None:
    models = Crowd(rule, n, LiveTopology("ring", 3)).history(4)
    found = expected([[1], [0]] if n == 2 else [[]], starts(n), 4, "float32")
    np.testing.assert_allclose(models, found, rtol=0, atol=1e-12)


TREE = nx.Graph([(0, 1), (1, 2), (1, 3), (3, 4), (3, 5)])


def on(graph: nx.Graph) -> Callable[[Sequence[PeerId], PeerId, int], tuple[PeerId, ...]]:
    def neighbors(live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
        return tuple(live[node] for node in sorted(graph[live.index(peer)]))

    return neighbors


@WEATHERS
def test_an_average_is_of_what_each_had_as_many_rounds_ago_as_it_is_away(
    weather: NetworkConfig,
) -> None:
    """Less one: the neighbors' models of a round are waited for."""
    inputs = np.random.default_rng(2).normal(size=(ROUNDS + 9, 6, SIZE))
    crowd = Crowd(rule, 6, on(TREE), weather)

    def replace_model(peer: PeerId) -> None:
        round = len(crowd.before[peer]) - 1
        crowd.swarm.peers[peer].vector.registers["x"] = inputs[round, crowd.ids.index(peer)]

    crowd.on_step = replace_model
    models = crowd.history(ROUNDS)
    away = dict(nx.all_pairs_shortest_path_length(TREE))
    for round in range(nx.diameter(TREE) - 1, ROUNDS):
        for node in range(6):
            late = [inputs[round - max(0, away[node][other] - 1), other] for other in range(6)]
            np.testing.assert_allclose(models[round, node], np.mean(late, axis=0), atol=1e-13)


def test_registers_are_those_of_neighbors_and_the_start_is_forgotten_when_all_are_told_of() -> None:
    crowd = Crowd(rule, 6, on(TREE))
    crowd.run(50.0, steps=1)
    assert all("start/x" in crowd.hosts[leaf].vector.registers for leaf in (0, 2, 4, 5))
    crowd.run(50.0, steps=nx.diameter(TREE) + 1)
    for node, host in enumerate(crowd.hosts):
        named = {f"from/{crowd.ids[other]}" for other in TREE[node]}
        assert host.vector.registers.keys() == {"x", "out", "total", *named}


@WEATHERS
def test_all_end_with_the_weight_they_brought_and_keep_nothing(weather: NetworkConfig) -> None:
    crowd = Crowd(rule, 7, LiveTopology("tree", 3), weather, steps=9)
    crowd.run(1000.0)
    assert {host.protocol.phase for host in crowd.hosts} == {Phase.QUIET}
    assert sum(host.ledger.weight for host in crowd.hosts) == 7 * ONE
    assert not any(host.vector.snapshots or host.protocol.kept for host in crowd.hosts)
    assert not any(witnessed.halts for witnessed in crowd.rules.values())


def refusals(crowd: Crowd) -> list[str]:
    crowd.run(20.0)
    return [reason for witnessed in crowd.rules.values() for reason in witnessed.halts]


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (nx.cycle_graph(5), "and here is a cycle: p00 was told of 6 models, and there are 4 other"),
        (nx.lollipop_graph(3, 3), "relaysgd needs a tree, and here is a cycle: p0"),
        (
            nx.Graph([(0, 1), (2, 3), (3, 4)]),
            "and here it is in parts: p00 can be told of 1 models, and there are 4 others; use a",
        ),
        (nx.DiGraph([(0, 1), (1, 0), (1, 2), (2, 0)]), "relaysgd needs edges that go both ways"),
    ],
    ids=["cycle", "tail", "parts", "one way"],
)
def test_what_is_no_tree_is_refused(graph: nx.Graph, words: str) -> None:
    class Rows:
        """Edges as pushes, and what each mixes from."""

        __call__ = staticmethod(on(graph))

        def weights(self, live: Sequence[PeerId], peer: PeerId, round: int) -> Mapping[str, float]:
            into = [live[a] for a, b in graph.edges if live[b] == peer]
            both = [*into, *self(live, peer, round)] if not graph.is_directed() else into
            return dict.fromkeys([peer, *both], 0.25)

    assert words in " ".join(refusals(Crowd(rule, len(graph), Rows())))


def test_a_tree_that_changes_is_refused() -> None:
    reasons = refusals(Crowd(rule, 6, LiveTopology("random-matching", 3)))
    assert "relaysgd needs the same tree in every round, and the neighbors of p0" in reasons[0]


def test_a_peer_with_another_rule_is_named() -> None:
    rules: dict[str, type[Rule]] = {"p00": DPSGD, "p01": RelaySGD}
    crowd = Crowd(lambda peer: rules[peer](), 2, complete)
    refusals(crowd)
    told = ["a share of p00 carries no sum: give all peers the same rule, relaysgd"]
    assert crowd.rules["p01"].halts == told


def test_before_a_run_a_graph_is_asked_for_where_that_matters() -> None:
    def never() -> bool:
        raise AssertionError("nobody needs to know")

    require_topology(make_rule("relaysgd"), "path", lambda: True)
    require_topology(make_rule("dpsgd"), "ring", never)
    words = r"topology is 'ring': rule 'relaysgd' needs a tree, such as path, star, tree or spanni"
    with pytest.raises(ConfigError, match=words):
        require_topology(make_rule("relaysgd"), "ring", lambda: False)
