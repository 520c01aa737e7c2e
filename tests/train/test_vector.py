"""A module laid into flat tensors, copied out and mixed."""

import copy

import pytest
import torch
from torch import Tensor, nn

from rumor.gossip import TrainingError
from rumor.train.vector import Vector, is_finite


class Mixed(nn.Module):
    """Two dtypes, batch statistics, an integer buffer, a mask and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 7)
        self.norm = nn.BatchNorm1d(7)
        self.second = nn.Linear(7, 3).double()
        self.frozen = nn.Linear(3, 3).requires_grad_(False)
        self.mask: Tensor
        self.register_buffer("mask", torch.full((4,), float("-inf")))
        self.scratch: Tensor
        self.register_buffer("scratch", torch.ones(3), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.second(self.norm(self.first(inputs)).double())
        return out


def test_parameters_and_floating_buffers_are_shared_and_the_rest_is_not() -> None:
    schema = Vector(Mixed()).schema
    shared = [tensor.name for tensor in schema.tensors if tensor.shared]
    local = [tensor.name for tensor in schema.tensors if not tensor.shared]
    assert shared == [
        *("first.weight", "first.bias", "norm.weight", "norm.bias"),
        *("norm.running_mean", "norm.running_var"),
        *("second.weight", "second.bias"),
    ]
    assert local == ["mask", "norm.num_batches_tracked"]


def test_tensors_keep_their_identity_and_become_views() -> None:
    model = Mixed()
    before = {name: (id(p), p.detach().clone()) for name, p in model.named_parameters()}
    vector = Vector(model)
    for name, parameter in model.named_parameters():
        assert id(parameter) == before[name][0]
        assert torch.equal(parameter, before[name][1])
    vector.flats[0].zero_()
    assert not model.first.weight.any()
    assert not model.state_dict()["norm.running_var"].any()
    assert model.frozen.weight.any()


def test_every_tensor_begins_a_cache_line() -> None:
    model = Mixed()
    Vector(model)
    for parameter in (*model.first.parameters(), *model.second.parameters()):
        assert parameter.data_ptr() % 64 == 0


def test_an_optimizer_made_before_goes_on_working() -> None:
    torch.manual_seed(0)
    plain = Mixed()
    laid = copy.deepcopy(plain)
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (plain, laid)]
    inputs = torch.randn(8, 5)
    for step in range(6):
        if step == 3:
            Vector(laid)
        for model, optimizer in zip((plain, laid), optimizers, strict=True):
            optimizer.zero_grad()
            model(inputs).square().sum().backward()
            optimizer.step()
    for ours, theirs in zip(laid.state_dict().values(), plain.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


def test_mixing_is_the_weighted_average_and_allocates_nothing_lasting() -> None:
    torch.manual_seed(0)
    ours, theirs = Mixed(), Mixed()
    receiver, sender = Vector(ours), Vector(theirs)
    expected = [0.75 * a + 0.25 * b for a, b in zip(receiver.flats, sender.flats, strict=True)]
    places = [flat.data_ptr() for flat in receiver.flats]
    receiver.mix(sender.snapshot(), 0.25)
    for flat, mean in zip(receiver.flats, expected, strict=True):
        torch.testing.assert_close(flat, mean)
    assert [flat.data_ptr() for flat in receiver.flats] == places


def test_a_fraction_of_one_copies_bit_for_bit_with_integer_buffers() -> None:
    torch.manual_seed(0)
    donor, newcomer = Mixed(), Mixed()
    donor(torch.randn(8, 5))
    share = Vector(donor).snapshot(copy=True)
    vector = Vector(newcomer)
    assert share.numel() == vector.schema.copy_bytes
    vector.mix(share, 1.0, copy=True)
    for name in ("first.weight", "second.bias", "norm.running_mean", "norm.num_batches_tracked"):
        assert torch.equal(newcomer.state_dict()[name], donor.state_dict()[name])
    assert newcomer.state_dict()["norm.num_batches_tracked"].item() == 1
    assert not torch.equal(newcomer.frozen.weight, donor.frozen.weight)


def test_integer_buffers_stay_local_in_an_ordinary_share() -> None:
    donor, receiver = Mixed(), Mixed()
    donor(torch.randn(8, 5))
    Vector(receiver).mix(Vector(donor).snapshot(), 1.0)
    assert receiver.state_dict()["norm.num_batches_tracked"].item() == 0


def test_a_snapshot_does_not_follow_the_model() -> None:
    model = nn.Linear(3, 2)
    vector = Vector(model)
    share = vector.snapshot()
    before = share.clone()
    vector.flats[0].add_(1)
    assert torch.equal(share, before)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_never_copied_out(value: float) -> None:
    model = Mixed()
    vector = Vector(model)
    with torch.no_grad():
        model.second.bias[1] = value
    with pytest.raises(TrainingError, match="not finite"):
        vector.snapshot()


def test_a_sum_that_overflows_is_looked_at_exactly() -> None:
    assert is_finite(torch.full((4,), 3e38))
    assert is_finite(torch.full((4,), 6e4, dtype=torch.float16))
    assert not is_finite(torch.tensor([3e38, 3e38, float("nan")]))


def test_registers_combine_with_shares() -> None:
    torch.manual_seed(0)
    vector = Vector(nn.Linear(3, 2), registers=("before",))
    share = Vector(nn.Linear(3, 2)).snapshot()
    start = vector.flats[0].clone()
    vector.combine("before", [(1.0, "x")])
    vector.combine("x", [(2.0, "before"), (-1.0, share)])
    torch.testing.assert_close(vector.flats[0], 2 * start - share.view(torch.float32))
    assert torch.equal(vector.snapshot("before").view(torch.float32), start)


def test_the_anchor_names_the_values() -> None:
    torch.manual_seed(0)
    one, two = nn.Linear(3, 2), nn.Linear(3, 2)
    twin = copy.deepcopy(one)
    assert Vector(one).anchor() == Vector(twin).anchor() != Vector(two).anchor()


def test_tied_weights_travel_once() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    names = [tensor.name for tensor in Vector(model).schema.tensors]
    assert names == ["0.weight", "0.bias", "1.bias"]
    assert model[1].weight is model[0].weight


def test_a_model_that_was_converted_afterwards_is_noticed() -> None:
    model = nn.Linear(3, 2)
    vector = Vector(model)
    model.double()
    with pytest.raises(TrainingError, match="before Peer"):
        vector.snapshot()


def test_a_model_with_nothing_to_share_is_refused() -> None:
    with pytest.raises(TrainingError, match="requires gradients"):
        Vector(nn.Linear(2, 2).requires_grad_(False))


def test_a_dtype_that_cannot_travel_is_named() -> None:
    with pytest.raises(TrainingError, match=r"weight is complex64"):
        Vector(nn.Linear(2, 2, dtype=torch.complex64))
