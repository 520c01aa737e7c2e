"""Extra state of modules travels to newcomers."""

from typing import Any

import pytest
import torch
from torch import nn

from rumor.gossip import ConfigError, TrainingError
from rumor.gossip.wire.formats import Form
from rumor.train.tensors.state import ExtraState
from rumor.train.tensors.vector import Vector


class Scaled(nn.Linear):
    """A layer with extra state of any kind."""

    def __init__(self, extra: object = None) -> None:
        super().__init__(3, 2)
        self.extra = extra

    def get_extra_state(self) -> Any:
        return self.extra

    def set_extra_state(self, state: object) -> None:
        self.extra = state


def test_a_copy_brings_the_extra_state_of_every_module() -> None:
    donor: Any
    newcomer: Any
    donor, newcomer = (nn.Sequential(Scaled(x), nn.ReLU(), Scaled({x})) for x in ("old", "new"))
    donor[0].extra = {"amax": torch.tensor([1.0, 2.0]), "steps": 3}
    one, two = (Vector(each, carries_extra_state=True) for each in (donor, newcomer))
    assert one.schema == two.schema
    two.mix(one.snapshot(form=Form(copy=True)), 1.0, Form(copy=True))
    assert two.extra_state is not None
    two.extra_state.unpack()
    two.extra_state.unpack()  # nothing has come since
    assert newcomer[0].extra["steps"] == 3 and newcomer[2].extra == {"old"}
    assert torch.equal(newcomer[0].extra["amax"], donor[0].extra["amax"])


def test_without_extra_state_a_copy_is_what_it_was() -> None:
    plain = Vector(nn.Linear(3, 2), carries_extra_state=True)
    assert plain.extra_state is None and plain.schema == Vector(nn.Linear(3, 2)).schema


def test_a_state_that_has_outgrown_its_room_is_an_error_of_the_newcomer() -> None:
    model = Scaled(b"")
    extra = ExtraState(model)
    model.extra = bytes(1 << 17)
    extra.pack()
    with pytest.raises(TrainingError, match=r"extra state has .* room for 65528: let get_extra"):
        extra.unpack()
    assert ExtraState(model).room.numel() > 1 << 18


def test_a_state_that_cannot_be_kept_is_refused_at_the_start_by_its_place() -> None:
    model = nn.Sequential(nn.Linear(2, 2), Scaled({"a": [object()]}))
    with pytest.raises(ConfigError, match=r"1\._extra_state\.a\.0 is a .*let get_extra_state"):
        Vector(model, carries_extra_state=True)
