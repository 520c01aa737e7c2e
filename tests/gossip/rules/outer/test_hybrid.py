"""With hybrid the peers of one machine act as one peer, and machines gossip."""

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


def machine_of(peer: PeerId) -> bytes:
    """Return the machine of a peer: three founders on the first, two and one on the others."""
    return bytes([1, 1, 1, 2, 2, 3, 1][int(peer[1:])] for _ in range(16))


def hybrid(peer: PeerId) -> Hybrid:
    return Hybrid()


class Logged(Hybrid):
    """A hybrid rule that records its calls in order."""

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


def replay(log: list[tuple[Any, ...]], machines: list[list[int]]) -> dict[int, list[Values]]:
    """Compute each machine's model after each of its rounds, by leader."""
    leads = {f"p{indices[0]:02}": indices for indices in machines}
    before = {id: starts(6)[indices] for id, indices in leads.items()}
    group = {id: rows.copy() for id, rows in before.items()}
    pushed: dict[tuple[PeerId, PeerId, int], Values] = {}
    history: dict[int, list[Values]] = {indices[0]: [] for indices in machines}
    for event, id, *rest in log:
        if id not in leads:
            continue
        if event == "hear":
            mine, theirs = rest[1]
            part = theirs / (mine + theirs)
            group[id] = (1 - part) * group[id] + part * pushed[rest[0]]
        elif event == "tell":
            pushed[rest[0]] = group[id][0].copy()
        else:
            indices = leads[id]
            stepped = [
                x - LR * gradient(index, x) for index, x in zip(indices, before[id], strict=True)
            ]
            # In the first round each peer has its own model, and only the leader's model moves.
            model = np.mean(stepped, axis=0) + group[id][0] - before[id][0]
            history[indices[0]].append(model)
            before[id] = model[None].repeat(len(indices), 0)
            group[id] = before[id].copy()
    return history


@pytest.mark.extended
@pytest.mark.parametrize("weather", [CALM, BAD], ids=["calm", "bad"])
@pytest.mark.parametrize("between", [1.0, 0.3, 0.0])
def test_models_follow_the_equation(between: float, weather: NetworkConfig) -> None:
    log: list[tuple[Any, ...]] = []
    crowd = Crowd(lambda peer: Logged(log, between), 6, complete, weather, host=machine_of)
    models = crowd.history(15)
    machines = [[0, 1, 2], [3, 4], [5]]
    history = replay(log, machines)
    for indices in machines:
        for index in indices:
            expected = history[indices[0]][:15]
            np.testing.assert_allclose(models[:, index], expected, rtol=0, atol=1e-12)
    assert any(event == "hear" for event, *_ in log) == (between > 0)


@pytest.mark.extended
def test_machines_agree_and_no_weight_is_lost() -> None:
    crowd = Crowd(hybrid, 6, complete, BAD, host=machine_of)
    crowd.run(2000.0, steps=10)
    crowd.agree()
    crowd.swarm.finish()
    crowd.swarm.run(3000.0, lambda: not crowd.swarm.running())
    assert {host.protocol.phase for host in crowd.hosts} == {Phase.QUIET}
    assert sum(host.ledger.weight for host in crowd.hosts) == 6 * ONE


@pytest.mark.extended
def test_a_new_leader_replaces_a_dead_one_and_newcomers_train() -> None:
    crowd = Crowd(hybrid, 6, complete, BAD, config=MORTAL, host=machine_of, newcomers=("p06",))
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


def test_a_peer_without_reachable_local_peers_is_its_own_machine() -> None:
    """One peer of the first machine and both peers of the second machine only dial out."""
    dial_only = frozenset({"p00", "p03", "p04"})
    crowd = Crowd(hybrid, 6, complete, host=machine_of, dials_out=dial_only)
    crowd.run(2000.0, steps=10)
    crowd.agree()


@pytest.mark.extended
def test_a_finished_machine_still_follows_the_others() -> None:
    steps = {"p03": 5, "p04": 5}
    crowd = Crowd(hybrid, 6, complete, host=machine_of, steps=lambda peer: steps.get(peer, 10**6))
    crowd.run(60.0)
    crowd.agree()
    assert [host.protocol.phase for host in crowd.hosts].count(Phase.FINISHED) == 2


@pytest.mark.extended
def test_each_host_of_a_topology_is_a_machine() -> None:
    """Each peer pushes to the two others of its machine, and one also to the other machine.

    A finished machine follows a few more rounds while it receives shares of the other machine.
    """
    run = simulate(task="digits", steps=20, **HOSTS)
    assert 6 * 2 * 20 + 20 < run.summary["pushes"] < (6 * 2 + 2) * 20 + 30
    assert run.summary["weight_units_total"] == run.summary["weight_units_expected"]
    again = simulate(task="digits", steps=20, window=7, engine="dense", **HOSTS)
    assert again.summary["digest"] == run.summary["digest"]
    one = simulate(task="digits", steps=20, **HOSTS | {"topology": "complete"})
    assert one.summary["pushes"] == 6 * 5 * 20


@pytest.mark.extended
def test_each_host_of_a_simulated_swarm_is_a_machine() -> None:
    swarm = Swarm("quadratic", peers=4, rule="hybrid", topology="hosts:sizes=2x2", network="lan")
    swarm.run(5.0)
    between = [swarm._find(f"peer-{index}").pushes for index in range(4)]
    assert min(between[0], between[2]) > max(between[1], between[3]) > 10
    late = swarm.join()
    swarm.run_until(lambda: late in swarm.weights())
    assert swarm.finish() and swarm.audit().balanced
