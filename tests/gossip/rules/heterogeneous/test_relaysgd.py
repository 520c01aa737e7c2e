"""RelaySGD keeps the sums from its neighbors, and refuses graphs that are not trees."""

from collections.abc import Callable, Sequence

import networkx as nx
import pytest

from rumor.gossip.errors import ConfigError
from rumor.gossip.protocol.rule import Rule, require_topology
from rumor.gossip.rules.heterogeneous.relaysgd import RelaySGD
from rumor.gossip.rules.registry import make_rule
from rumor.gossip.types import PeerId

from ...crowd import Crowd


def rule(peer: PeerId) -> Rule:
    return RelaySGD()


TREE = nx.Graph([(0, 1), (1, 2), (1, 3), (3, 4), (3, 5)])


def neighbors_in(graph: nx.Graph) -> Callable[[Sequence[PeerId], PeerId, int], tuple[PeerId, ...]]:
    def neighbors(live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
        return tuple(live[node] for node in sorted(graph[live.index(peer)]))

    return neighbors


def test_each_neighbor_has_a_register_and_the_start_is_dropped_eventually() -> None:
    crowd = Crowd(rule, 6, neighbors_in(TREE))
    crowd.run(50.0, steps=1)
    assert all("start/x" in crowd.hosts[leaf].vector.registers for leaf in (0, 2, 4, 5))
    crowd.run(50.0, steps=nx.diameter(TREE) + 1)
    for node, host in enumerate(crowd.hosts):
        from_registers = {f"from/{crowd.ids[other]}" for other in TREE[node]}
        assert host.vector.registers.keys() == {"x", "out", "total", *from_registers}


def test_rules_that_need_a_tree_check_the_topology_before_a_run() -> None:
    def never() -> bool:
        raise AssertionError("the topology must not be checked")

    require_topology(make_rule("relaysgd"), "path", lambda: True)
    require_topology(make_rule("dpsgd"), "ring", never)
    message = (
        r"topology is 'ring': rule 'relaysgd' needs a tree, such as path, star, tree or spanni"
    )
    with pytest.raises(ConfigError, match=message):
        require_topology(make_rule("relaysgd"), "ring", lambda: False)
