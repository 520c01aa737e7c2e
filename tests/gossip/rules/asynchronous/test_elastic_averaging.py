"""Elastic averaging: models are tied to gossiped centers, or to one center in shared memory."""

from collections.abc import Callable

import numpy as np
import pytest

from rumor.gossip.effects.effects import Exchange, Halt, Snapshot
from rumor.gossip.errors import ConfigError
from rumor.gossip.protocol.rule import Rule
from rumor.gossip.rules.asynchronous.elastic_averaging import EASGD, SEASGD
from rumor.gossip.types import PeerId
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Phase
from rumor.sim import Swarm, simulate
from rumor.sim.fuzz.peers import complete, ring
from rumor.sim.fuzz.vector import Values
from rumor.train.faults.schedule import Fault

from ...crowd import BAD, LR, Crowd, gradient, starts
from ...scene import ANCHOR, Scene

HERE, THERE = b"here-is-a-machine", b"there-is-another."

EXCHANGE = Exchange("x", "center", 0.2, 0.2, ANCHOR)
FOLLOW = Exchange("x", "center", 0.2, 0.0, ANCHOR)
READ = Exchange("x", "center", 1.0, 0.0, ANCHOR)


def center_of(crowd: Crowd) -> Values:
    (segment,) = crowd.swarm.segments.values()
    return segment


@pytest.mark.parametrize(("alpha", "every", "n"), [(0.2, 1, 5), (0.9, 3, 2), (1.0, 1, 1)])
def test_exchanges_in_time_order_match_the_published_update(
    alpha: float, every: int, n: int
) -> None:
    crowd = Crowd(lambda peer: SEASGD(alpha=alpha, every=every), n, complete, BAD, same_start=True)
    order: list[int] = []
    crowd.on_step = lambda peer: order.append(crowd.ids.index(peer))
    crowd.run(2000.0, steps=25)
    x, steps = starts(1).repeat(n, 0), [0] * n
    center = x[0].copy()
    for index in order:
        x[index] -= LR * gradient(index, x[index])
        steps[index] += 1
        if steps[index] % every == 0:
            pull = alpha * (x[index] - center)
            x[index], center = x[index] - pull, center + pull
    np.testing.assert_allclose(crowd.models, x, rtol=0, atol=1e-12)
    np.testing.assert_allclose(center_of(crowd), center, rtol=0, atol=1e-12)
    assert not any(recorded.waits for recorded in crowd.rules.values())


def test_models_end_at_the_center_and_no_weight_is_lost() -> None:
    """The network loses 15 % of all messages, which matters only once the peers merge."""
    crowd = Crowd(lambda peer: SEASGD(), 6, ring, BAD, steps=lambda peer: 20 + 9 * int(peer[1:]))
    crowd.swarm.run(3000.0, lambda: not crowd.swarm.running())
    assert {host.protocol.phase for host in crowd.hosts} == {Phase.QUIET}
    assert sum(host.ledger.weight for host in crowd.hosts) == 6 * ONE
    center = center_of(crowd)
    assert all(np.array_equal(model, center) for model in crowd.models)


def test_a_newcomer_is_drawn_to_the_existing_center() -> None:
    crowd = Crowd(lambda peer: SEASGD(), 3, complete, newcomers=("late",))
    crowd.run(2000.0, steps=30)
    center = center_of(crowd).copy()
    crowd.launch("late", crowd.ids[:1])
    crowd.stop_training()
    crowd.swarm.run(crowd.swarm.now + 60.0)
    newcomer = crowd.swarm.peers["late"]
    assert newcomer.protocol.phase is Phase.TRAINING
    np.testing.assert_allclose(newcomer.vector.x, center_of(crowd), rtol=0, atol=1e-6)
    assert np.linalg.norm(center_of(crowd) - center) < np.linalg.norm(starts(1)[0] - center)


def test_a_center_disappears_with_its_last_user() -> None:
    """A later swarm begins with its own model, never with an old center."""
    crowd = Crowd(lambda peer: SEASGD(), 2, complete, newcomers=("late",))
    crowd.run(2000.0, steps=20)
    before = center_of(crowd).copy()
    for peer in crowd.ids:
        crowd.crash(peer)
    crowd.launch("late", ())
    crowd.swarm.run(crowd.swarm.now + 5.0)
    np.testing.assert_array_equal(center_of(crowd), crowd.swarm.peers["late"].vector.x)
    assert not np.allclose(center_of(crowd), before)


def founded(*rules: Rule, hosts: tuple[bytes, ...]) -> Scene:
    scene = Scene()
    for id, rule, host in zip("abc"[: len(hosts)], rules, hosts, strict=True):
        scene.enter(id, rule=rule, host=host)
    scene.found(*scene.peers)
    return scene


def test_a_peer_exchanges_while_training_then_follows_then_reads() -> None:
    scene = founded(SEASGD(), SEASGD(), hosts=(HERE, HERE))
    assert EXCHANGE in scene.step("a")
    assert EXCHANGE not in scene.step("a", trained=False)
    scene.finish("a")
    assert FOLLOW in scene.step("a", trained=False)
    scene.finish("b")
    scene.deliver()
    effects = scene.step("a", trained=False)
    assert READ in effects and any(isinstance(effect, Snapshot) for effect in effects)
    assert READ not in scene.step("a", trained=False)


def test_a_swarm_on_two_machines_is_refused() -> None:
    scene = founded(SEASGD(), SEASGD(), SEASGD(), hosts=(HERE, HERE, THERE))
    for id, other in (("a", "c"), ("c", "a")):
        (halt,) = (effect for effect in scene.step(id) if isinstance(effect, Halt))
        assert f"{other} runs on another machine" in halt.reason and "\n" not in halt.reason


def test_a_simulated_swarm_on_several_hosts_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"topology is 'hosts:sizes=2x2': rule .* one machine"):
        simulate(task="consensus", workers=4, rule="seasgd", topology="hosts:sizes=2x2", steps=3)
    with pytest.raises(ConfigError, match="rule seasgd needs all peers on one machine"):
        Swarm("quadratic", peers=4, rule="seasgd", topology="hosts:sizes=2x2")
    simulate(task="consensus", workers=4, rule="easgd", topology="hosts:sizes=2x2", steps=3)


def run_to_end(rule: Callable[[], Rule], steps: dict[PeerId, int], *faults: Fault) -> Crowd:
    """Run four peers, some with a given number of steps, until all have ended."""
    unlimited = 10**9
    crowd = Crowd(
        lambda peer: rule(), 4, ring, steps=lambda p: steps.get(p, unlimited), faults=faults
    )
    crowd.swarm.run(600.0, lambda: not crowd.swarm.running())
    return crowd


def test_training_ends_with_the_fastest_peer() -> None:
    crowd = run_to_end(lambda: SEASGD(progress="fastest"), {"p02": 40})
    steps_taken = {peer: len(before) for peer, before in crowd.before.items()}
    assert not crowd.swarm.running() and steps_taken["p02"] == 40
    # All end within a second, since peers exchange views twice a second here.
    assert all(30 < steps < 70 for steps in steps_taken.values())
    assert sum(host.ledger.weight for host in crowd.hosts) == 4 * ONE


def test_training_ends_only_with_the_master() -> None:
    crowd = run_to_end(lambda: SEASGD(progress="master", master="p02"), {"p02": 60, "p00": 10})
    steps_taken = {peer: len(before) for peer, before in crowd.before.items()}
    assert steps_taken["p00"] == 10 and steps_taken["p02"] == 60
    assert all(50 < steps_taken[peer] < 90 for peer in ("p01", "p03"))


@pytest.mark.extended
def test_the_death_of_the_master_stops_no_peer() -> None:
    crash = Fault(at_s=2.0, kind="crash", peer="p02")
    steps = dict.fromkeys(("p00", "p01", "p03"), 80)
    crowd = run_to_end(lambda: SEASGD(progress="master", master="p02"), steps, crash)
    assert [len(crowd.before[peer]) for peer in steps] == [80, 80, 80]


def test_workers_with_a_shared_view_end_at_once() -> None:
    own, fastest = (
        simulate(task="consensus", workers=4, steps=100, slow=("0:2",), rule=f"seasgd:{progress}")
        for progress in ("progress=own", "progress=fastest")
    )
    assert own.summary["steps"] == 400 > fastest.summary["steps"] >= 100


@pytest.mark.parametrize(("alpha", "every"), [(0.5, 1), (0.9, 3), (1.0, 2), (0.0, 1)])
def test_a_lone_peer_follows_the_published_update(alpha: float, every: int) -> None:
    crowd = Crowd(lambda peer: EASGD(alpha=alpha, every=every), 1, complete)
    found = crowd.history(12)
    x = starts(1)[0]
    center = x.copy()
    for step in range(12):
        x = x - LR * gradient(0, x)
        if (step + 1) % every == 0:
            pull = alpha * (x - center)
            x, center = x - pull, center + pull
        np.testing.assert_allclose(found[step][0], x, rtol=0, atol=1e-12)


def test_mixing_centers_keeps_their_weighted_mean() -> None:
    """With alpha 0 models do not pull on the centers: there are only pushes and mixes."""
    crowd = Crowd(lambda peer: EASGD(alpha=0.0, every=1), 5, complete, descend=False, steps=30)
    crowd.swarm.run(3000.0, lambda: not crowd.swarm.running())
    mean = starts(5).mean(axis=0)[None].repeat(5, 0)
    np.testing.assert_allclose(crowd.models, mean, rtol=0, atol=1e-6)
