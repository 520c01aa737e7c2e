"""How a swarm ends under each rule: with all weight and no leftovers, or with a reason."""

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
"""Rules whose rounds wait for others."""


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
    assert not any(witnessed.halts for witnessed in crowd.rules.values())
    assert name in WAITING or not any(witnessed.waits for witnessed in crowd.rules.values())
    assert spread(crowd.hosts) < np.ptp(starts(5, 20), axis=0).max()


def halts(crowd: Crowd, until_s: float = 30.0) -> dict[PeerId, list[str]]:
    """What the peers said why they cannot go on."""
    crowd.run(until_s)
    return {peer: witnessed.halts for peer, witnessed in crowd.rules.items()}


SAME = "give all peers the same rule"


@pytest.mark.parametrize(
    ("theirs", "mine", "words"),
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
def test_a_peer_with_another_rule_is_named(theirs: str, mine: str, words: str) -> None:
    specs = {"p00": theirs, "p01": mine}
    crowd = Crowd(lambda peer: make_rule(specs[peer]), 2, LiveTopology("complete", 0))
    reasons = [why for said in halts(crowd).values() for why in said]
    assert any("p00" in why and why.endswith(words) for why in reasons)


@pytest.mark.parametrize(
    ("spec", "topology", "words"),
    [
        ("swap", "ring", "swap needs at most 1 neighbor in a round, and p0"),
        ("d2", "exponential", "needs edges that go both ways, and that of p00 and p0"),
        ("decentlam", "exponential", "needs edges that go both ways, and that of p00 and p0"),
        ("choco", "random-matching", "choco needs the same weights in every round, and those of p"),
    ],
)
def test_a_topology_that_does_not_fit_is_refused(spec: str, topology: str, words: str) -> None:
    crowd = Crowd(lambda peer: make_rule(spec), 7, LiveTopology(topology, 3))
    assert any(words in why for said in halts(crowd, 20.0).values() for why in said)


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
    words = f"p00 has finished after {steps} steps, and {name} needs it in round {round}: "
    said = halts(crowd)
    assert not said.pop("p00")
    assert all(first.startswith(words) for first, *_ in said.values())
