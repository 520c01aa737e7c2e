"""What rules for unequal data are good for, and several registers in a round."""

import pytest

from rumor.gossip.effects.events import ShareRefused
from rumor.gossip.errors import ConfigError
from rumor.gossip.protocol.rule import require_lr
from rumor.gossip.rules.heterogeneous.tracking import GradientTracking
from rumor.gossip.wire.formats import Form

from ...scene import Scene, a_push


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
