"""CHOCO-SGD: all peers add the same q, in any format."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from rumor.gossip.effects.effects import Combine, Effect, Send
from rumor.gossip.effects.events import Event
from rumor.gossip.protocol.rule import Rule
from rumor.gossip.rules.compressed.choco import ESTIMATE, MEAN, Choco
from rumor.gossip.rules.synchronous.rounds import EPOCH
from rumor.gossip.types import PeerId, ShareId
from rumor.gossip.wire.formats import Form
from rumor.gossip.wire.messages import Offer, Push
from rumor.sim.fuzz.peers import complete, ring
from rumor.sim.fuzz.vector import Values
from rumor.sim.kernel.worker import Worker
from rumor.topology.live import LiveTopology
from rumor.train.faults.schedule import Fault

from ...crowd import BAD, CONFIG, Crowd
from ...scene import Scene, a_push


def choco(gamma: float = 0.3) -> Callable[[PeerId], Rule]:
    return lambda peer: Choco(gamma=gamma)


@pytest.mark.parametrize(
    ("wire", "gammas"),
    [("float32", [1.0, 1.0]), ("int8", [1.0, 1.0]), ("topk:0.25", [1.0, 0.5])],
)
def test_the_default_gamma_depends_on_the_format(wire: str, gammas: list[float]) -> None:
    crowd = Crowd(lambda peer: Choco(), 3, complete, config=replace(CONFIG, wire=wire))
    used_gammas = list[float]()

    def look(worker: Worker, effect: Effect | Event) -> None:
        if isinstance(effect, Combine) and effect.register == "x":
            used_gammas.append(effect.terms[1][0])

    observe(crowd, look)
    crowd.run(20.0, steps=4)
    assert used_gammas[:3] == [gammas[0]] * 3 and set(used_gammas[3:]) == {gammas[1]}


def observe(crowd: Crowd, look: Callable[[Worker, Effect | Event], None]) -> None:
    """Call *look* for each executed effect."""
    carried = crowd.swarm.carried

    def both(worker: Worker, effect: Effect | Event) -> None:
        look(worker, effect)
        carried(worker, effect)

    crowd.swarm.carried = both  # type: ignore[method-assign]


FAULTS = (
    Fault(at_s=1.0, kind="pause", peer="p02", for_s=2.0),
    Fault(at_s=2.0, kind="partition", groups=(("p00", "p01"),), for_s=3.0),
    Fault(at_s=7.0, kind="cut", peer="p04", for_s=1.0),
)


@pytest.mark.extended
@pytest.mark.parametrize("wire", ["int8", "topk:0.3"])
def test_a_senders_estimate_equals_the_sums_of_its_receivers(wire: str) -> None:
    """They are equal to the last bit, even if messages are lost, late or repeated."""
    config = replace(CONFIG, wire=wire)
    crowd = Crowd(choco(), 6, LiveTopology("ring", 3), BAD, config=config, faults=FAULTS)
    estimates: dict[PeerId, list[Values]] = defaultdict(list)
    sums_by_sender: dict[tuple[PeerId, PeerId], list[Values]] = defaultdict(list)
    sent: dict[tuple[PeerId, int], set[int | None]] = defaultdict(set)
    pushes: dict[tuple[PeerId, PeerId, int], set[int]] = defaultdict(set)

    def look(worker: Worker, effect: Effect | Event) -> None:
        me, vector = worker.id, crowd.swarm.peers[worker.id].vector
        match effect:
            case Combine(register) if register == ESTIMATE:
                estimates[me].append(vector.registers[ESTIMATE].copy())
            case Combine(register, terms) if register == MEAN:
                for _, term in terms:
                    if isinstance(term, ShareId):
                        sums = sums_by_sender[me, term.sender]
                        sums.append((sums[-1] if sums else 0.0) + vector.staged_values(term))
            case Send(envelope, snapshot) if isinstance(envelope.body, Offer | Push):
                body = envelope.body
                if body.epoch == EPOCH:
                    sent[me, body.round].add(snapshot)
                    pushes[me, envelope.destination, body.round].add(body.seq)

    observe(crowd, look)
    crowd.run(60.0, steps=30)
    assert len(sums_by_sender) == 12 and min(map(len, sums_by_sender.values())) >= 30
    for (_, sender), sums in sums_by_sender.items():
        assert all(map(np.array_equal, sums, estimates[sender]))
    assert all(len(snapshots) == 1 for snapshots in sent.values())
    assert sum(len(seqs) > 1 for seqs in pushes.values()) > 10
    for host in crowd.hosts:
        known = [
            sums_by_sender[host.id, p][len(estimates[host.id]) - 1]
            for p in ring(crowd.ids, host.id, 0)
        ]
        mean = (estimates[host.id][-1] + sum(known)) / 3
        np.testing.assert_allclose(host.vector.registers[MEAN], mean, rtol=0, atol=1e-12)


def test_a_peer_with_another_wire_format_is_named() -> None:
    scene = Scene(config=replace(CONFIG, wire="int8"))
    rule = Choco()
    scene.founded("a", "b", rules={"a": Choco(), "b": rule})
    for trained in (True, False):
        scene.step("a", trained=trained)
        scene.step("b", trained=trained)
        scene.deliver()
    scene.step("b")
    form = Form("float16", bare=True)
    size = form.size_bytes(scene.peers["b"].state.schema, 0)
    push = a_push(seq=7, size_bytes=size, form=form, epoch=1, round=1, step=1)
    scene.tell("a", "b", push, frame_bytes=size)
    effects = scene.step("b", trained=False)
    assert "is float16, and int8 here: give all peers the same wire" in str(effects[-1])
