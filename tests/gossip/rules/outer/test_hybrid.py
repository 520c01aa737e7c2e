"""Under hybrid, the peers of a machine act as one, and machines gossip."""

from typing import Any

import numpy as np
import pytest

from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.share import Share
from rumor.gossip.rules.outer.elastic import Came
from rumor.gossip.rules.outer.hybrid import Hybrid
from rumor.gossip.types import PeerId
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Phase
from rumor.sim import NetworkConfig, Swarm, simulate
from rumor.sim.fuzz.peers import complete
from rumor.sim.fuzz.swarm import CALM
from rumor.sim.fuzz.vector import Values

from ...crowd import BAD, LR, MORTAL, Crowd, gradient, starts

HOSTS: dict[str, Any] = {"topology": "hosts:sizes=3x3", "workers": 6, "rule": "hybrid"}


def of_three(peer: PeerId) -> bytes:
    """Three machines, with three peers, two, and one."""
    return bytes([1, 1, 1, 2, 2, 3, 1][int(peer[1:])] for _ in range(16))


def hybrid(peer: PeerId) -> Hybrid:
    return Hybrid()


class Logged(Hybrid):
    """Records what happens, in order."""

    def __init__(self, log: list[tuple[Any, ...]], between: float) -> None:
        super().__init__(between=between)
        self.log = log

    def hear(self, context: RuleContext, share: Share) -> None:
        weights = context.weight, share.weight
        self.log.append(("hear", context.me, (share.sender, context.me, share.id.seq), weights))
        super().hear(context, share)

    def tell(self, context: RuleContext) -> None:
        transfers = context._state.shard_states[0].outbox.transfers
        before = set(transfers)
        super().tell(context)
        for peer in set(transfers) - before:
            self.log.append(("tell", context.me, (context.me, peer, transfers[peer].offer.seq)))

    def take(self, context: RuleContext, came: Came, sent: str) -> None:
        self.log.append(("take", context.me))
        super().take(context, came, sent)


def replayed(log: list[tuple[Any, ...]], machines: list[list[int]]) -> dict[int, list[Values]]:
    """Compute by hand each machine's model after each of its rounds, by leader."""
    leads = {f"p{places[0]:02}": places for places in machines}
    before = {id: starts(6)[places] for id, places in leads.items()}
    group = {id: rows.copy() for id, rows in before.items()}
    pushed: dict[tuple[PeerId, PeerId, int], Values] = {}
    history: dict[int, list[Values]] = {places[0]: [] for places in machines}
    for what, id, *rest in log:
        if id not in leads:
            continue
        if what == "hear":
            mine, theirs = rest[1]
            part = theirs / (mine + theirs)
            group[id] = (1 - part) * group[id] + part * pushed[rest[0]]
        elif what == "tell":
            pushed[rest[0]] = group[id][0].copy()
        else:
            places = leads[id]
            stepped = [x - LR * gradient(at, x) for at, x in zip(places, before[id], strict=True)]
            # In the first round each peer has its own model, and the leader's is the one to move.
            model = np.mean(stepped, axis=0) + group[id][0] - before[id][0]
            history[places[0]].append(model)
            before[id] = model[None].repeat(len(places), 0)
            group[id] = before[id].copy()
    return history


@pytest.mark.extended
@pytest.mark.parametrize("weather", [CALM, BAD], ids=["calm", "bad"])
@pytest.mark.parametrize("between", [1.0, 0.3, 0.0])
def test_models_are_those_of_the_equation(between: float, weather: NetworkConfig) -> None:
    log: list[tuple[Any, ...]] = []
    crowd = Crowd(lambda peer: Logged(log, between), 6, complete, weather, host=of_three)
    models = crowd.history(15)
    machines = [[0, 1, 2], [3, 4], [5]]
    history = replayed(log, machines)
    for places in machines:
        for at in places:
            expected = history[places[0]][:15]
            np.testing.assert_allclose(models[:, at], expected, rtol=0, atol=1e-12)
    assert any(what == "hear" for what, *_ in log) == (between > 0)


@pytest.mark.extended
def test_machines_agree_and_no_weight_is_lost() -> None:
    crowd = Crowd(hybrid, 6, complete, BAD, host=of_three)
    crowd.run(2000.0, steps=10)
    crowd.agree()
    crowd.swarm.finish()
    crowd.swarm.run(3000.0, lambda: not crowd.swarm.running())
    assert {host.protocol.phase for host in crowd.hosts} == {Phase.QUIET}
    assert sum(host.ledger.weight for host in crowd.hosts) == 6 * ONE


@pytest.mark.extended
def test_when_a_leader_dies_another_leads_and_newcomers_take_part() -> None:
    crowd = Crowd(hybrid, 6, complete, BAD, config=MORTAL, host=of_three, newcomers=("p06",))
    crowd.run(2000.0, steps=10)
    crowd.crash("p00")
    steps = len(crowd.before["p01"])
    crowd.launch("p06", ["p03"])
    crowd.swarm.run(crowd.swarm.now + 60.0)
    assert len(crowd.before["p01"]) > steps + 20
    newcomer = crowd.swarm.peers["p06"]
    assert newcomer.protocol.phase is Phase.TRAINING
    crowd.agree()
    assert len(crowd.swarm.running()) == 6


def test_a_peer_that_reaches_no_other_on_its_machine_is_a_machine_by_itself() -> None:
    """Both peers of the second machine only dial out, and one of three on the first."""
    dialling = frozenset({"p00", "p03", "p04"})
    crowd = Crowd(hybrid, 6, complete, host=of_three, dials_out=dialling)
    crowd.run(2000.0, steps=10)
    crowd.agree()


@pytest.mark.extended
def test_a_machine_that_has_finished_still_follows_the_others() -> None:
    steps = {"p03": 5, "p04": 5}
    crowd = Crowd(hybrid, 6, complete, host=of_three, steps=lambda peer: steps.get(peer, 10**6))
    crowd.run(60.0)
    crowd.agree()
    assert [host.protocol.phase for host in crowd.hosts].count(Phase.FINISHED) == 2


@pytest.mark.extended
def test_hosts_of_a_topology_are_machines() -> None:
    """Each of three peers pushes to the two others after a step, and one also to the other machine.

    A machine that has finished follows a few more rounds, as it hears from the other.
    """
    run = simulate(task="digits", steps=20, **HOSTS)
    assert 6 * 2 * 20 + 20 < run.summary["pushes"] < (6 * 2 + 2) * 20 + 30
    assert run.summary["weight_units_total"] == run.summary["weight_units_expected"]
    again = simulate(task="digits", steps=20, window=7, engine="dense", **HOSTS)
    assert again.summary["digest"] == run.summary["digest"]
    one = simulate(task="digits", steps=20, **HOSTS | {"topology": "complete"})
    assert one.summary["pushes"] == 6 * 5 * 20


@pytest.mark.extended
def test_in_a_swarm_hosts_are_machines_too() -> None:
    swarm = Swarm("quadratic", peers=4, rule="hybrid", topology="hosts:sizes=2x2", network="lan")
    swarm.run(5.0)
    between = [swarm._find(f"peer-{place}").pushes for place in range(4)]
    assert min(between[0], between[2]) > max(between[1], between[3]) > 10
    late = swarm.join()
    swarm.run_until(lambda: late in swarm.weights())
    assert swarm.finish() and swarm.audit().balanced
