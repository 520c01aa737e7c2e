"""SparseLoCo does what its algorithm says in any format, and all have the same phi, bit for bit."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from rumor.gossip.errors import ConfigError
from rumor.gossip.protocol.rule import Rule
from rumor.gossip.rules.compressed.sparseloco import ERROR, PHI, SparseLoCo
from rumor.gossip.rules.synchronous.dpsgd import DPSGD
from rumor.gossip.types import PeerId
from rumor.gossip.weight import ONE
from rumor.gossip.wire.formats import parse_wire
from rumor.gossip.wire.messages import Phase
from rumor.sim import NetworkConfig
from rumor.sim.fuzz.peers import complete
from rumor.sim.fuzz.swarm import CALM
from rumor.sim.fuzz.vector import SIZE, Values, decoded, encoded

from ...crowd import BAD, CONFIG, LR, Crowd, gradient, starts

H = 3
WEATHERS = pytest.mark.parametrize("weather", [CALM, BAD], ids=["calm", "bad"])


def sparseloco(lr: float = 0.4, decay: float = 0.95) -> Callable[[PeerId], Rule]:
    return lambda peer: SparseLoCo(h=H, lr=lr, decay=decay)


def rounded(wire: str, x: Values) -> Values:
    """What a receiver makes of the numbers, of which the toy rounds none by chance."""
    format, room = parse_wire(wire), np.zeros(2 * SIZE)
    room[:SIZE] = x
    return decoded(format, encoded(format, room, None), np.zeros(SIZE))


def expected(n: int, steps: int, wire: str, lr: float, decay: float) -> Values:
    """Algorithm 1 of the paper, from the mean of all models at the end of the first round."""
    x, phi, error = starts(n), np.zeros(SIZE), np.zeros((n, SIZE))
    models = list[Values]()
    for step in range(steps):
        x = np.array([row - LR * gradient(place, row) for place, row in enumerate(x)])
        if (step + 1) % H == 0:
            if step < H:
                phi = x.mean(0)
            else:
                error = decay * error + (phi - x)
                sent = np.array([rounded(wire, row) for row in error])
                error = error - sent
                phi = phi - lr * sent.mean(0)
            x = np.tile(phi, (n, 1))
        models.append(x)
    return np.array(models)


@pytest.mark.extended
@WEATHERS
@pytest.mark.parametrize("wire", ["float32", "bfloat16", "int8", "topk:0.3"])
@pytest.mark.parametrize(("lr", "decay"), [(0.4, 0.95), (1.0, 0.0)])
def test_models_are_those_of_the_algorithm(
    wire: str, weather: NetworkConfig, lr: float, decay: float
) -> None:
    crowd = Crowd(sparseloco(lr, decay), 4, complete, weather, config=replace(CONFIG, wire=wire))
    found = expected(4, 5 * H + 1, wire, lr, decay)
    np.testing.assert_allclose(crowd.history(5 * H + 1), found, rtol=0, atol=1e-12)


@WEATHERS
def test_all_have_the_same_bits_after_a_round_however_little_is_sent(
    weather: NetworkConfig,
) -> None:
    crowd = Crowd(sparseloco(), 5, complete, weather, config=replace(CONFIG, wire="topk:0.2"))
    models = crowd.history(6 * H)
    for round in range(6):
        assert (models[round * H + H - 1] == models[round * H + H - 1][0]).all()
        assert (models[round * H] != models[round * H][0]).any()
    assert all(host.vector.registers[ERROR].any() for host in crowd.hosts)


def test_of_exact_shares_at_rate_1_it_is_local_sgd() -> None:
    """Nothing is left of what was sent, whatever the decay."""
    models = Crowd(sparseloco(lr=1.0), 3, complete).history(4 * H)
    x = starts(3)
    for step in range(4 * H):
        x = np.array([row - LR * gradient(place, row) for place, row in enumerate(x)])
        if (step + 1) % H == 0:
            x = np.tile(x.mean(0), (3, 1))
        np.testing.assert_allclose(models[step], x, rtol=0, atol=1e-12)


def test_alone_it_is_plain_descent() -> None:
    crowd = Crowd(sparseloco(), 1, complete, steps=3 * H)
    x = starts(1)
    for model in crowd.history(3 * H - 1):
        x = np.array([x[0] - LR * gradient(0, x[0])])
        assert (model == x).all()
    crowd.run(1000.0)
    assert not crowd.swarm.running() and crowd.hosts[0].protocol.kept == 0


@WEATHERS
@pytest.mark.parametrize("steps", [3 * H, 3 * H + 2])
def test_all_end_with_the_weight_they_brought_and_keep_nothing(
    weather: NetworkConfig, steps: int
) -> None:
    config = replace(CONFIG, wire="int8")
    crowd = Crowd(sparseloco(), 5, complete, weather, steps=steps, config=config)
    crowd.run(1000.0)
    assert {host.protocol.phase for host in crowd.hosts} == {Phase.QUIET}
    assert sum(host.ledger.weight for host in crowd.hosts) == 5 * ONE
    assert not any(host.vector.snapshots or host.protocol.kept for host in crowd.hosts)
    assert not any(witnessed.halts for witnessed in crowd.rules.values())
    assert all((host.vector.registers[PHI] != 0).all() for host in crowd.hosts)


def halts(
    rules: Callable[[PeerId], Rule], steps: Callable[[PeerId], int] | None = None
) -> list[str]:
    crowd = Crowd(rules, 2, complete, steps=steps)
    crowd.run(50.0)
    return [reason for each in crowd.rules.values() for reason in each.halts]


def test_a_peer_that_has_another_rule_is_named() -> None:
    rules: dict[PeerId, Rule] = {"p00": DPSGD(), "p01": SparseLoCo(h=1)}
    what = "carries no difference, which sparseloco needs: give all peers the same rule"
    assert f"a share of p00 {what}" in halts(rules.__getitem__)


def test_one_that_finished_before_the_others_is_named() -> None:
    """It took part in two rounds; the third would need one more step of it."""
    assert halts(sparseloco(), lambda peer: 9 if peer == "p01" else 8) == [
        "p00 has finished after 8 steps, and sparseloco needs it in round 2: give all peers the "
        "same number of steps"
    ]


@pytest.mark.parametrize("arguments", [{"h": 0}, {"lr": 2.1}, {"decay": -0.1}, {"decay": 1.1}])
def test_an_argument_out_of_range_is_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(arguments))} is "):
        SparseLoCo(**arguments)  # type: ignore[arg-type]
