"""GoSGD with ``layers``: pieces of the model are pushed during the step."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from rumor.gossip.effects.effects import Effect, Mix, Send, Snapshot
from rumor.gossip.effects.events import Event, PushSkipped
from rumor.gossip.errors import ConfigError
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.rule import hook_of, outstanding_max_of, requirements_of
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.rules.asynchronous.sgp import SGP
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Envelope, Push
from rumor.sim.fuzz.peers import Peers
from rumor.sim.fuzz.swarm import FuzzSwarm
from rumor.sim.kernel.fleet import Fleet
from rumor.sim.kernel.plan import FleetPlan
from rumor.sim.kernel.worker import Payload, Worker
from rumor.sim.models.links import Links
from rumor.sim.models.network import NetworkConfig
from rumor.train import PeerConfig

from ...scene import Scene


def scene_of(make: Callable[[], GoSGD], shards: int = 3) -> Scene:
    return Scene().founded(
        *"ab", rules={"a": make(), "b": GoSGD(0.0, layers=shards)}, shards=shards
    )


def train_shard(scene: Scene, shard: int, id: str = "a") -> list[Effect | Event]:
    return scene._do(id, "trains on", lambda p, now: p.trained_shard(shard, now))


def pushed(effects: list[Effect | Event]) -> list[int]:
    """Return the shards of all pushes."""
    bodies = [e.envelope for e in effects if isinstance(e, Send)]
    return [envelope.shard for envelope in bodies if isinstance(envelope.body, Push)]


def test_the_rule_declares_that_it_pushes_during_a_step() -> None:
    layered = requirements_of(GoSGD(layers=4))
    assert layered.overlaps and layered.shards == 4
    assert not requirements_of(GoSGD()).overlaps and outstanding_max_of(GoSGD()) == 2
    assert outstanding_max_of(GoSGD(layers=4)) == 8
    name = "trained_shard"
    assert hook_of(GoSGD(), name) is not None and hook_of(SGP(), name) is None
    with pytest.raises(ConfigError, match="layers is 0: it must be an integer"):
        GoSGD(layers=0)
    with pytest.raises(ConfigError, match="shards is 2: rule 'gosgd' itself cuts"):
        PeerConfig(rule="gosgd:layers=4", shards=2)


def test_a_ready_piece_is_pushed_once_and_the_rest_after_the_step() -> None:
    scene = scene_of(partial(GoSGD, 1.0, layers=3))
    assert pushed(train_shard(scene, 2)) == [2]
    assert pushed(train_shard(scene, 2)) == []
    assert pushed(scene.step("a")) == [0, 1]
    assert [account.weight for account in scene.peers["a"].accounts] == [ONE // 2] * 3
    # A push carries the step of its values even though that step is not over.
    scene.deliver(Push)
    scene.step("b")
    scene.deliver()
    train_shard(scene, 0)
    assert {envelope.body.step for envelope in scene.mail if isinstance(envelope.body, Push)} == {2}


def test_a_step_mixes_no_share_and_limits_pushes_to_a_lagging_neighbor() -> None:
    scene = scene_of(partial(GoSGD, 1.0, layers=3))
    assert pushed(scene.step("a")) == [0, 1, 2]
    scene.deliver(Push)
    assert not any(isinstance(effect, Mix) for effect in train_shard(scene, 1, "b"))
    # b mixes arrived shares at its next step boundary and gets no more until then.
    assert PushSkipped("no neighbor free") in train_shard(scene, 2)
    assert pushed(scene.step("a")) == []
    mixed = [effect.share.shard for effect in scene.step("b") if isinstance(effect, Mix)]
    assert sorted(mixed) == [0, 1, 2]
    scene.deliver(Ack)
    assert pushed(scene.step("a")) == [0, 1, 2]


def test_finished_peers_and_other_rules_push_nothing_during_a_step() -> None:
    scene = scene_of(partial(GoSGD, 1.0, layers=3))
    scene.finish("a")
    assert train_shard(scene, 2) == []
    scene = Scene().founded("a", "b")
    assert train_shard(scene, 0) == []


def test_a_piece_with_too_little_weight_is_not_pushed() -> None:
    scene = scene_of(partial(GoSGD, 1.0, layers=3))
    state = scene.peers["a"].state
    state.shard_states[1].log.account.weight = 5
    assert pushed(scene.step("a")) == [0, 2]


def test_no_piece_is_pushed_without_a_due_push() -> None:
    scene = scene_of(partial(GoSGD, 0.0, layers=3))
    assert not any(isinstance(e, Snapshot) for e in [*train_shard(scene, 2), *scene.step("a")])


def sent_s(plan: FleetPlan) -> list[tuple[float, int]]:
    """Return the time at which the first worker sent each shard."""
    fleet, found = Fleet(plan), list[tuple[float, int]]()
    send = fleet.executor._send

    def recording(worker: Worker, envelope: Envelope, payload: Payload) -> None:
        if worker.index == 0 and isinstance(envelope.body, Push):
            found.append((fleet.now, envelope.shard))
        send(worker, envelope, payload)

    fleet.executor._send = recording
    fleet.run(1e6, 10**9)
    return found


def test_simulated_layers_are_sent_in_reverse_during_the_backward_pass() -> None:
    peers = Peers(rule=lambda peer: GoSGD(1.0, layers=3), size=20)
    ids = ("a", "b")
    base = FuzzSwarm(0, peers, ids, 2).fleet._plan
    links = partial(Links, NetworkConfig(latency_s=1e-6), ids, 0)
    plan = replace(base, fault_plan=None, steps=1, links=links)
    sent = sent_s(plan)
    end_s = plan.pace.step_s(0, 0)
    assert [shard for _, shard in sent][:3] == [2, 1, 0]
    for nth, (time_s, _) in enumerate(sent[:3], 1):
        assert time_s == pytest.approx(end_s * (1 / 3 + 2 / 3 * nth / 3))


def test_a_context_within_a_step_sees_no_shares() -> None:
    scene = Scene().founded("a", "b")
    scene.push("a", "b", ONE // 2)
    scene.deliver(Push)
    state = scene.peers["b"].state
    called_s, make = state.called_s, partial(RuleContext, state, 99.0, trained=False, merging=False)
    assert make(within_step=True).shares() == ()
    assert state.called_s == called_s
    assert len(make().shares()) == 1
