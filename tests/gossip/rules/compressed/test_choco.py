"""CHOCO-SGD does what its equation says in any format, and everybody counts the same q."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from rumor.gossip.effects.effects import Combine, Effect, Send
from rumor.gossip.effects.events import Event, ShareRefused
from rumor.gossip.errors import ConfigError
from rumor.gossip.protocol.rule import Rule
from rumor.gossip.rules.compressed.choco import ESTIMATE, MEAN, Choco
from rumor.gossip.rules.registry import make_rule
from rumor.gossip.rules.synchronous.dpsgd import DPSGD
from rumor.gossip.rules.synchronous.letters import EPOCH
from rumor.gossip.types import PeerId, ShareId
from rumor.gossip.weight import ONE
from rumor.gossip.wire.formats import Form, parse_wire
from rumor.gossip.wire.messages import Offer, Phase, Push
from rumor.sim import NetworkConfig
from rumor.sim.fuzz.peers import complete, ring
from rumor.sim.fuzz.swarm import CALM
from rumor.sim.fuzz.vector import SIZE, Values, decoded, encoded
from rumor.sim.kernel.worker import Worker
from rumor.topology import LiveTopology, over
from rumor.train.faults.schedule import Fault

from ...crowd import BAD, CONFIG, LR, Crowd, gradient, starts
from ...scene import Scene, a_push

ROUNDS = 7
WIRES = ("float32", "bfloat16", "float16", "int8", "topk:0.3")
EVERY_WIRE = pytest.mark.parametrize("wire", WIRES)


def choco(gamma: float = 0.3) -> Callable[[PeerId], Rule]:
    return lambda peer: Choco(gamma=gamma)


def rounded(wire: str, x: Values) -> Values:
    """What a receiver makes of the numbers, of which the toy rounds none by chance."""
    format, room = parse_wire(wire), np.zeros(2 * SIZE)
    room[:SIZE] = x
    return decoded(format, encoded(format, room, None), np.zeros(SIZE))


def expected(matrix: Values, x: Values, rounds: int, wire: str, gamma: float) -> list[Values]:
    """Algorithm 2 of the paper, with every xhat; the first q is exact."""
    xhat, models = np.zeros_like(x), list[Values]()
    for round in range(rounds):
        x = np.array([row - LR * gradient(place, row) for place, row in enumerate(x)])
        q = x - xhat
        xhat = xhat + (np.array([rounded(wire, row) for row in q]) if round else q)
        x = x + gamma * (matrix @ xhat - xhat)
        models.append(x)
    return models


@pytest.mark.extended
@pytest.mark.parametrize(("spec", "weather"), [("star", CALM), ("ring", BAD)], ids=["calm", "bad"])
@EVERY_WIRE
def test_models_are_those_of_the_equation(wire: str, spec: str, weather: NetworkConfig) -> None:
    crowd = Crowd(choco(), 6, LiveTopology(spec, 3), weather, config=replace(CONFIG, wire=wire))
    models = crowd.history(ROUNDS)
    matrix = over(spec, 3, crowd.ids).matrix(0).toarray()
    found = expected(matrix, starts(6), ROUNDS, wire, 0.3)
    np.testing.assert_allclose(models, found, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("wire", "gammas"),
    [("float32", [1.0, 1.0]), ("int8", [1.0, 1.0]), ("topk:0.25", [1.0, 0.5])],
)
def test_unless_it_is_given_gamma_suits_the_format(wire: str, gammas: list[float]) -> None:
    crowd = Crowd(lambda peer: Choco(), 3, complete, config=replace(CONFIG, wire=wire))
    taken = list[float]()

    def look(worker: Worker, effect: Effect | Event) -> None:
        if isinstance(effect, Combine) and effect.register == "x":
            taken.append(effect.terms[1][0])

    watched(crowd, look)
    crowd.run(20.0, steps=4)
    assert taken[:3] == [gammas[0]] * 3 and set(taken[3:]) == {gammas[1]}


def test_of_exact_shares_with_gamma_1_it_is_dpsgd() -> None:
    mine, theirs = (
        Crowd(rule, 5, LiveTopology("ring", 3)).history(8)
        for rule in (choco(1.0), lambda peer: DPSGD())
    )
    np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)


def test_alone_it_is_plain_descent() -> None:
    crowd = Crowd(choco(), 1, complete, steps=5)
    x = starts(1)
    for model in crowd.history(4):
        x = np.array([x[0] - LR * gradient(0, x[0])])
        assert (model == x).all()
    crowd.run(1000.0)
    assert not crowd.swarm.running() and crowd.hosts[0].protocol.kept == 0


@pytest.mark.parametrize("wire", ["int8", "topk:0.3"])
def test_all_come_to_agree_though_little_of_each_difference_is_sent(wire: str) -> None:
    config = replace(CONFIG, wire=wire)
    models = Crowd(choco(0.4), 4, ring, config=config, descend=False).history(60)
    assert np.ptp(models[0], axis=0).max() > 1
    assert np.ptp(models[-1], axis=0).max() < 1e-4
    # W is doubly stochastic: the mean of all models stays as it was.
    np.testing.assert_allclose(models[-1].mean(0), starts(4).mean(0), rtol=0, atol=1e-12)


def watched(crowd: Crowd, look: Callable[[Worker, Effect | Event], None]) -> None:
    """Look at each effect that was carried out."""
    carried = crowd.swarm.carried

    def both(worker: Worker, effect: Effect | Event) -> None:
        look(worker, effect)
        carried(worker, effect)

    crowd.swarm.carried = both  # type: ignore[method-assign]


HARM = (
    Fault(at_s=1.0, kind="pause", peer="p02", for_s=2.0),
    Fault(at_s=2.0, kind="partition", groups=(("p00", "p01"),), for_s=3.0),
    Fault(at_s=7.0, kind="cut", peer="p04", for_s=1.0),
)


@pytest.mark.extended
@pytest.mark.parametrize("wire", ["int8", "topk:0.3"])
def test_what_a_sender_believes_is_what_its_receivers_have_added_up(wire: str) -> None:
    """To the last bit, whatever gets lost, late or sent again."""
    crowd = Crowd(
        choco(), 6, LiveTopology("ring", 3), BAD, config=replace(CONFIG, wire=wire), faults=HARM
    )
    told: dict[PeerId, list[Values]] = defaultdict(list)
    heard: dict[tuple[PeerId, PeerId], list[Values]] = defaultdict(list)
    sent: dict[tuple[PeerId, int], set[int | None]] = defaultdict(set)
    pushes: dict[tuple[PeerId, PeerId, int], set[int]] = defaultdict(set)

    def look(worker: Worker, effect: Effect | Event) -> None:
        me, vector = worker.id, crowd.swarm.peers[worker.id].vector
        match effect:
            case Combine(register) if register == ESTIMATE:
                told[me].append(vector.registers[ESTIMATE].copy())
            case Combine(register, terms) if register == MEAN:
                for _, term in terms:
                    if isinstance(term, ShareId):
                        sums = heard[me, term.sender]
                        sums.append((sums[-1] if sums else 0.0) + vector.staged_values(term))
            case Send(envelope, snapshot) if isinstance(envelope.body, Offer | Push):
                body = envelope.body
                if body.epoch == EPOCH:
                    sent[me, body.round].add(snapshot)
                    pushes[me, envelope.destination, body.round].add(body.seq)

    watched(crowd, look)
    crowd.run(60.0, steps=30)
    assert len(heard) == 12 and min(map(len, heard.values())) >= 30
    for (_, sender), sums in heard.items():
        assert all(map(np.array_equal, sums, told[sender]))
    assert all(len(snapshots) == 1 for snapshots in sent.values())
    assert sum(len(seqs) > 1 for seqs in pushes.values()) > 10
    for host in crowd.hosts:
        known = [
            heard[host.id, other][len(told[host.id]) - 1] for other in ring(crowd.ids, host.id, 0)
        ]
        mean = (told[host.id][-1] + sum(known)) / 3
        np.testing.assert_allclose(host.vector.registers[MEAN], mean, rtol=0, atol=1e-12)


@pytest.mark.parametrize("weather", [CALM, BAD], ids=["calm", "bad"])
def test_all_end_with_the_weight_they_brought_and_keep_nothing(weather: NetworkConfig) -> None:
    crowd = Crowd(choco(), 5, ring, weather, steps=9, config=replace(CONFIG, wire="int8"))
    crowd.run(1000.0)
    assert {host.protocol.phase for host in crowd.hosts} == {Phase.QUIET}
    assert sum(host.ledger.weight for host in crowd.hosts) == 5 * ONE
    assert not any(host.vector.snapshots or host.protocol.kept for host in crowd.hosts)
    assert not any(witnessed.halts for witnessed in crowd.rules.values())


def halts(crowd: Crowd, peer: PeerId) -> list[str]:
    crowd.run(20.0)
    return crowd.rules[peer].halts


def test_weights_that_change_are_refused() -> None:
    reasons = halts(Crowd(choco(), 6, LiveTopology("random-matching", 3)), "p00")
    assert reasons == [
        "choco needs the same weights in every round, and those of p00 change in round 1: use a "
        "topology such as ring, torus or complete"
    ]


def test_a_peer_that_was_told_something_else_is_named() -> None:
    rules = {"p00": DPSGD, "p01": Choco}
    crowd = Crowd(lambda peer: rules[peer](), 2, complete)
    what = "a share of p00 carries no difference, which choco needs: give all peers the same rule"
    assert halts(crowd, "p01") == [what]
    scene = Scene(config=replace(CONFIG, wire="int8"))
    rule = Choco()
    scene.founded("a", "b", rules={"a": Choco(), "b": rule})
    for trained in (True, False):
        scene.step("a", trained=trained)
        scene.step("b", trained=trained)
        scene.deliver()
    scene.step("b")
    form = Form("float16", bare=True)
    size = form.size_bytes(scene.peers["b"]._state.schema, 0)
    push = a_push(seq=7, size_bytes=size, form=form, epoch=1, round=1, step=1)
    scene.receive(scene.letter("a", "b", push, frame_bytes=size))
    effects = scene.step("b", trained=False)
    assert "is float16, and int8 here: give all peers the same wire" in str(effects[-1])


def test_a_difference_that_belongs_to_no_round_is_sent_back() -> None:
    scene = Scene()
    scene.founded("a", "b", rules={peer: Choco() for peer in "ab"})
    form = Form(bare=True)
    push = a_push(form=form)
    scene.receive(scene.letter("a", "b", push, frame_bytes=64))
    effects = scene.step("b", trained=False)
    assert ShareRefused("a", "of a difference, and of no round") in effects


@pytest.mark.parametrize("gamma", ["-0.1", "1.5", "nan", "much"])
def test_gamma_is_a_part_of_the_way(gamma: str) -> None:
    with pytest.raises(ConfigError, match=r"gamma"):
        make_rule(f"choco:gamma={gamma}")
