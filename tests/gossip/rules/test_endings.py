"""Each rule ends a swarm with all weight and no leftovers, or with a reason."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from rumor.gossip.protocol.rule import requirements_of
from rumor.gossip.rules.registry import RULES, make_rule
from rumor.gossip.types import PeerId
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Phase
from rumor.sim import NetworkConfig
from rumor.sim.fuzz.peers import spread
from rumor.sim.fuzz.swarm import CALM
from rumor.topology.live import LiveTopology

from ...rules import spec_of, topology_of
from ..crowd import BAD, CONFIG, Crowd, starts

WAITING = {"dpsgd", "allreduce", "swap", "relaysgd", "choco", "sparseloco"}
WAITING |= {"d2", "gradient-tracking", "momentum-tracking", "qg-dsgdm", "decentlam"}
WAITING |= {"local-sgd", "diloco", "gasloc", "noloco", "hybrid"}
"""Rules whose rounds wait for other peers."""


@pytest.mark.extended
@pytest.mark.parametrize("weather", [CALM, BAD], ids=["calm", "bad"])
@pytest.mark.parametrize("name", [*RULES, "gosgd:p=0.5,layers=3", "sgp:robust=clip"])
def test_all_peers_end_with_their_weight_and_no_leftovers(
    name: str, weather: NetworkConfig
) -> None:
    pace = {"p01": 0.3}
    make = partial(make_rule, spec_of(name))
    config = replace(CONFIG, wire="int8") if name in ("choco", "sparseloco") else CONFIG
    crowd = Crowd(
        lambda peer: make(),
        5,
        LiveTopology(topology_of(name, "ring"), 3),
        weather,
        steps=12,
        step_s=lambda peer: pace.get(peer, 0.05),
        config=config,
        size=20,
    )
    crowd.run(2000.0)
    assert not crowd.swarm.running()
    assert {host.protocol.phase for host in crowd.hosts} == {Phase.QUIET}
    for shard in range(requirements_of(make()).shards):
        assert sum(host.ledgers[shard].weight for host in crowd.hosts) == 5 * ONE
    assert not any(host.vector.snapshots or len(host.protocol.state.kept) for host in crowd.hosts)
    assert not any(recorded.halts for recorded in crowd.rules.values())
    assert name in WAITING or not any(recorded.waits for recorded in crowd.rules.values())
    assert spread(crowd.hosts) < np.ptp(starts(5, 20), axis=0).max()


def halts(crowd: Crowd, until_s: float = 30.0) -> dict[PeerId, list[str]]:
    """Return the reasons of each peer that halted."""
    crowd.run(until_s)
    return {peer: recorded.halts for peer, recorded in crowd.rules.items()}


SAME = "give all peers the same rule"


@pytest.mark.parametrize(
    ("theirs", "mine", "message"),
    [
        ("dpsgd", "choco", f"carries no difference, which choco needs: {SAME}"),
        ("dpsgd", "sparseloco:h=1", f"carries no difference, which sparseloco needs: {SAME}"),
        ("dpsgd", "relaysgd", f"carries no sum: {SAME}, relaysgd"),
        (
            "dpsgd",
            "gradient-tracking",
            f"carries 1 of the 2 registers that gradient-tracking needs: {SAME}",
        ),
    ],
)
def test_a_peer_with_another_rule_is_named(theirs: str, mine: str, message: str) -> None:
    specs = {"p00": theirs, "p01": mine}
    crowd = Crowd(lambda peer: make_rule(specs[peer]), 2, LiveTopology("complete", 0))
    reasons = [why for each in halts(crowd).values() for why in each]
    assert any("p00" in why and why.endswith(message) for why in reasons)


@pytest.mark.parametrize(
    ("spec", "topology", "message"),
    [
        ("swap", "ring", "swap needs at most 1 neighbor in a round, and p0"),
        ("d2", "exponential", "needs edges that go both ways, and that of p00 and p0"),
        ("decentlam", "exponential", "needs edges that go both ways, and that of p00 and p0"),
        ("choco", "random-matching", "choco needs the same weights in every round, and those of p"),
    ],
)
def test_an_unsuitable_topology_is_refused(spec: str, topology: str, message: str) -> None:
    crowd = Crowd(lambda peer: make_rule(spec), 7, LiveTopology(topology, 3))
    assert any(message in why for reasons in halts(crowd, 20.0).values() for why in reasons)


@pytest.mark.parametrize(
    ("spec", "steps", "others", "round"),
    [("dpsgd", 4, 9, 4), ("sparseloco:h=3", 8, 9, 2)],
)
def test_a_peer_with_fewer_steps_is_named(spec: str, steps: int, others: int, round: int) -> None:
    crowd = Crowd(
        lambda peer: make_rule(spec),
        3,
        LiveTopology("complete", 0),
        steps=lambda peer: steps if peer == "p00" else others,
    )
    name = spec.partition(":")[0]
    message = f"p00 has finished after {steps} steps, and {name} needs it in round {round}: "
    reasons = halts(crowd)
    assert not reasons.pop("p00")
    assert all(first.startswith(message) for first, *_ in reasons.values())
