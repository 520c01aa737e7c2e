"""What rules for unequal data are good for, and several registers in a round."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from rumor.gossip.effects.effects import Effect, Snapshot
from rumor.gossip.effects.events import Event, ShareRefused
from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.errors import ConfigError
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.rule import Rule, require_lr
from rumor.gossip.rules.heterogeneous.tracking import GradientTracking, MomentumTracking
from rumor.gossip.rules.synchronous.dpsgd import DPSGD
from rumor.gossip.rules.synchronous.mixing import BESIDE, OUT, MatrixRule, Terms, average_beside
from rumor.gossip.rules.synchronous.rounds import SYNCHRONOUS
from rumor.gossip.wire.formats import Form
from rumor.sim.kernel.worker import Worker
from rumor.topology.live import LiveTopology

from ...crowd import BAD, PATIENT, Crowd, starts
from ...scene import Scene, a_push


class Twice(MatrixRule):
    """Averages the model, and twice the model beside it."""

    name = "twice"
    registers = (*OUT, *BESIDE, "y")
    requirements = replace(SYNCHRONOUS, share_registers=2)

    def start(self, context: RuleContext) -> None:
        context.combine("y", [(2.0, "x")])

    def beside(self) -> Terms:
        return ((1.0, "y"),)

    def take(self, context: RuleContext, average: Terms) -> None:
        context.combine("y", average_beside(average))
        super().take(context, average)


def pushed(rule: Callable[[], Rule]) -> tuple[set[Form], int]:
    """What shares consist of, and how many were pushed, in some rounds on a calm network."""
    crowd = Crowd(lambda peer: rule(), 4, LiveTopology("ring", 0), steps=5, config=PATIENT)
    forms, escrows, carried = set[Form](), list[Entry](), crowd.swarm.carried

    def look(worker: Worker, effect: Effect | Event) -> None:
        if isinstance(effect, Snapshot):
            forms.add(effect.form)
        elif isinstance(effect, Entry) and effect.kind is Kind.PUSHED:
            escrows.append(effect)
        carried(worker, effect)

    crowd.swarm.carried = look  # type: ignore[method-assign]
    crowd.run(60.0, steps=4)
    return forms, len(escrows)


ROUNDS = 8


@pytest.mark.extended
@pytest.mark.parametrize("rule", [GradientTracking, MomentumTracking])
def test_two_vectors_go_in_one_share_with_one_escrow(rule: Callable[[], Rule]) -> None:
    forms, escrows = pushed(DPSGD)
    assert forms == {Form()} and escrows >= 4 * 2 * 4
    assert pushed(rule) == ({Form(registers=2)}, escrows)


@pytest.mark.parametrize("spec", ["ring", "random-matching"])
def test_what_goes_along_is_averaged_as_the_model_is(spec: str) -> None:
    crowd = Crowd(lambda peer: Twice(), 7, LiveTopology(spec, 3), BAD, descend=False)
    models = crowd.history(ROUNDS)
    assert np.abs(models[-1] - starts(7)).max() > 0.1
    for host in crowd.hosts:
        np.testing.assert_allclose(host.vector.registers["y"], 2 * host.vector.x, atol=1e-12)


def test_two_registers_that_belong_to_no_round_are_sent_back() -> None:
    """What a leaver hands on is one: whoever sends two has lost its way."""
    scene = Scene().founded("a", "b", rules={peer: GradientTracking() for peer in "ab"})
    form = Form(registers=2)
    push = a_push(size_bytes=128, form=form)
    scene.tell("a", "b", push, frame_bytes=128)
    effects = scene.step("b", trained=False)
    assert ShareRefused("a", "of several registers, and of no round") in effects


@pytest.mark.parametrize("lr", [-0.1, float("nan"), float("inf")])
def test_what_is_no_learning_rate_is_refused(lr: float) -> None:
    for fine in (None, 0.0, 0.1):
        require_lr(fine)
    with pytest.raises(ConfigError, match=r"lr is .*: a learning rate is a finite number"):
        require_lr(lr)
