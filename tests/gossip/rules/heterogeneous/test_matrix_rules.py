"""Rules for heterogeneous data refuse foreign shares and invalid learning rates."""

from collections.abc import Callable

import pytest

from rumor.gossip.effects.events import ShareRefused
from rumor.gossip.errors import ConfigError
from rumor.gossip.protocol.rule import Rule, require_lr
from rumor.gossip.rules.compressed.choco import Choco
from rumor.gossip.rules.heterogeneous.tracking import GradientTracking
from rumor.gossip.wire.formats import Form

from ...scene import Scene, a_push


@pytest.mark.parametrize(
    ("rule", "form", "content"),
    [
        (GradientTracking, Form(registers=2), "of several registers"),
        (Choco, Form(bare=True), "of a difference"),
    ],
)
def test_a_share_of_no_round_that_is_no_model_is_returned(
    rule: Callable[[], Rule], form: Form, content: str
) -> None:
    """A leaver hands on a model, so any other share of no round is an error."""
    scene = Scene().founded(rules={peer: rule() for peer in "ab"})
    size = 64 * form.registers
    scene.tell("a", "b", a_push(size_bytes=size, form=form), frame_bytes=size)
    assert ShareRefused("a", f"{content}, and of no round") in scene.step("b", trained=False)


@pytest.mark.parametrize("lr", [-0.1, float("nan"), float("inf")])
def test_invalid_learning_rates_are_refused(lr: float) -> None:
    for fine in (None, 0.0, 0.1):
        require_lr(fine)
    with pytest.raises(ConfigError, match=r"lr is .*: a learning rate is a finite number"):
        require_lr(lr)
