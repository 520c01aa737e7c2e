"""Modules in flat tensors: snapshots, mixing and registers."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rumor.gossip import ConfigError, TrainingError
from rumor.gossip.errors import LocalProtocolError
from rumor.gossip.types import stream
from rumor.gossip.wire.formats import WIRES, Form
from rumor.train.tensors.vector import Vector

COPY = Form(copy=True)
LOSSY = ("bfloat16", "float16", "int8", "topk:0.2")


class Mixed(nn.Module):
    """Two dtypes, a single number, statistics, an integer buffer, a mask and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))
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
        "scale",
        "first.weight",
        "first.bias",
        "norm.weight",
        "norm.bias",
        "norm.running_mean",
        "norm.running_var",
        "second.weight",
        "second.bias",
    ]
    assert local == ["mask", "norm.num_batches_tracked"]


def test_tensors_keep_their_identity_and_become_cache_aligned_views() -> None:
    model = Mixed()
    before = {name: (id(p), p.detach().clone()) for name, p in model.named_parameters()}
    vector = Vector(model)
    for name, parameter in model.named_parameters():
        assert id(parameter) == before[name][0]
        assert torch.equal(parameter, before[name][1])
        assert parameter.data_ptr() % 64 == 0 or not parameter.requires_grad
    # `view()` without arguments fails, so a scalar needs its own case.
    assert model.scale.shape == ()
    vector.flats[0].zero_()
    assert not model.first.weight.any() and not model.scale
    assert not model.state_dict()["norm.running_var"].any()
    assert model.frozen.weight.any()


def test_an_existing_optimizer_keeps_working_even_on_tied_tensors() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(5, 5), Mixed(), nn.Linear(3, 5).double(), nn.Linear(5, 5))
    plain.to(torch.float64)
    laid = copy.deepcopy(plain)
    for model in (plain, laid):
        model[3].weight.data = model[0].weight.data
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (plain, laid)]
    inputs = torch.randn(8, 5).double()
    for step in range(6):
        if step == 3:
            Vector(laid)
        for model, optimizer in zip((plain, laid), optimizers, strict=True):
            optimizer.zero_grad()
            model(inputs).square().sum().backward()
            optimizer.step()
    for ours, theirs in zip(laid.state_dict().values(), plain.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("wire", ["float32", *LOSSY])
def test_two_byte_numbers_are_sent_unconverted_in_any_format(wire: str) -> None:
    sender, receiver = (Vector(nn.Linear(9, 7, dtype=torch.bfloat16)) for _ in range(2))
    share = sender.snapshot("x", Form(wire))
    assert share.numel() == sender.schema.share_bytes
    receiver.mix(share, 1.0, Form(wire))
    assert torch.equal(all_bytes(receiver), all_bytes(sender))


@pytest.mark.parametrize(
    ("model", "shards", "error", "message"),
    [
        (nn.Linear(2, 2).requires_grad_(False), 1, TrainingError, "requires gradients"),
        (nn.Linear(2, 2, dtype=torch.complex64), 1, TrainingError, "weight is complex64"),
        (nn.Linear(8, 2), 9, ConfigError, "shards is 9"),
    ],
)
def test_an_unsuitable_model_is_refused(
    model: nn.Module, shards: int, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Vector(model, shards=shards)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: nn.Sequential(nn.Linear(3, 4), nn.LazyLinear(2)), "1.weight"),
        (lambda: nn.LazyBatchNorm1d(affine=False), "running_mean"),
    ],
)
def test_a_lazy_model_is_refused_before_its_first_batch(
    make: Callable[[], nn.Module], name: str
) -> None:
    model = make()
    with pytest.raises(TrainingError, match=f"{name} has no shape yet.* run one batch through"):
        Vector(model)
    model(torch.zeros(2, 3))
    trained = any(parameter.requires_grad for parameter in model.parameters())
    assert not trained or Vector(model).n_params > 0


def mixed(seed: int) -> Mixed:
    torch.manual_seed(seed)
    return Mixed()


def all_bytes(vector: Vector) -> Tensor:
    """All bytes of a vector."""
    return torch.cat([flat.view(torch.uint8) for flat in vector.flats])


@settings(deadline=None, max_examples=30)
@given(
    shards=st.integers(1, 8),
    scattered=st.booleans(),
    fraction=st.sampled_from([0.3, 1.0]),
    data=st.data(),
)
def test_mixing_a_shard_changes_only_its_own_lines(
    shards: int, scattered: bool, fraction: float, data: st.DataObject
) -> None:
    shard = data.draw(st.integers(0, shards - 1))
    options: dict[str, Any] = {"shards": shards, "scattered": scattered}
    whole, cut = Vector(mixed(0)), Vector(mixed(0), **options)
    before = all_bytes(cut).view(-1, 64)
    whole.mix(Vector(mixed(1)).snapshot(), fraction)
    payload = Vector(mixed(1), **options).snapshot(shard=shard)
    if scattered:
        lines = torch.from_numpy(cut.schema.lines(shard)).long()
    else:
        lines = torch.arange(*(bound // 64 for bound in cut.schema.shard_bounds(shard)))
    assert payload.numel() == 64 * len(lines) == Form().size_bytes(cut.schema, shard)
    cut.mix(payload, fraction, shard=shard)
    after = all_bytes(cut).view(-1, 64)
    assert torch.equal(after[lines], all_bytes(whole).view(-1, 64)[lines])
    before[lines] = after[lines]
    assert torch.equal(before, after)


@pytest.mark.parametrize(("shards", "scattered"), [(1, False), (3, False), (3, True)])
@pytest.mark.parametrize("wire", LOSSY)
def test_a_lossy_share_moves_the_receiver_toward_the_sender(
    wire: str, shards: int, scattered: bool
) -> None:
    start = mixed(0)
    options: dict[str, Any] = {
        "shards": shards, "scattered": scattered, "keeps_anchor": True, "sends_topk": True
    }  # fmt: skip
    form = Form(wire)
    sender, receiver = (Vector(copy.deepcopy(start), **options) for _ in range(2))
    with torch.no_grad():
        for flat in sender.flats:
            flat.add_(torch.randn_like(flat), alpha=0.01)
    before = distance(sender, receiver)
    for shard in range(shards):
        payload = sender.snapshot("x", form, shard, stream(0, "a", f"rounding:{shard}"))
        assert payload.numel() == form.size_bytes(sender.schema, shard)
        assert receiver.is_finite(payload, form, shard)
        receiver.mix(payload, 1.0, form, shard)
    assert distance(sender, receiver) < (0.8 if wire.startswith("topk") else 0.02) * before


def distance(one: Vector, two: Vector) -> float:
    pairs = zip(one.flats, two.flats, strict=True)
    return sum(float((a - b).norm()) for a, b in pairs)


@pytest.mark.parametrize(("shards", "scattered"), [(1, False), (3, False), (3, True)])
def test_a_copy_includes_local_buffers_and_anchor_for_any_shard_count(
    shards: int, scattered: bool
) -> None:
    kept: dict[str, Any] = {"scattered": scattered, "keeps_anchor": True, "sends_topk": True}
    donor_module = mixed(0)
    donor = Vector(donor_module, shards=shards, **kept)
    name = donor.anchor()
    donor_module(torch.randn(8, 5))
    donor.flats[0].add_(0.5)
    newcomer_module = mixed(1)
    newcomer = Vector(newcomer_module, shards=shards, **kept)
    assert newcomer.kept_anchor() != name
    form = Form(copy=True, anchor=True)
    for shard in range(shards):
        payload = donor.snapshot("x", form, shard)
        assert payload.numel() == form.size_bytes(donor.schema, shard)
        assert newcomer.is_finite(payload, form, shard)
        assert newcomer.anchor_matches(payload, form, shard, name)
        newcomer.mix(payload, 1.0, form, shard)
    assert newcomer.kept_anchor() == donor.kept_anchor() == name
    assert torch.equal(all_bytes(newcomer), all_bytes(donor))
    assert newcomer_module.state_dict()["norm.num_batches_tracked"].item() == 1
    assert not torch.equal(newcomer_module.frozen.weight, donor_module.frozen.weight)


def test_a_copy_can_include_registers_local_buffers_and_anchor() -> None:
    donor_module, newcomer_module = mixed(0), mixed(1)
    donor = Vector(donor_module, ("y",), keeps_anchor=True, sends_topk=True)
    donor_module(torch.randn(8, 5))
    donor.combine("y", [(3.0, "x")])
    newcomer = Vector(newcomer_module, ("y",), keeps_anchor=True, sends_topk=True)
    form = Form(copy=True, anchor=True, registers=2)
    payload = donor.snapshot(("x", "y"), form)
    assert newcomer.anchor_matches(payload, form, 0, donor.kept_anchor())
    newcomer.combine("y", [(1.0, (payload, form, 1))])
    newcomer.mix(payload, 1.0, form)
    assert torch.equal(all_bytes(newcomer), all_bytes(donor))
    assert torch.equal(newcomer.snapshot("y"), donor.snapshot("y"))
    assert newcomer.kept_anchor() == donor.kept_anchor()
    assert newcomer_module.state_dict()["norm.num_batches_tracked"].item() == 1
    # A copy that arrives late is mixed like any other share.
    donor.flats[0].add_(1.0)
    donor.keep_anchor()
    donor_module(torch.randn(8, 5))
    late = donor.snapshot(("x", "y"), form)
    means = [(own + theirs) / 2 for own, theirs in zip(newcomer.flats, donor.flats, strict=True)]
    newcomer.mix(late, 0.5, form)
    torch.testing.assert_close(list(newcomer.flats), means)
    assert torch.equal(newcomer.snapshot("y"), donor.snapshot("y"))
    assert newcomer.kept_anchor() != donor.kept_anchor()
    assert newcomer_module.state_dict()["norm.num_batches_tracked"].item() == 1


def test_gaps_between_local_buffers_are_zeroed() -> None:
    vector = Vector(mixed(0))
    vector.memory.lend(vector.schema.copy_bytes).fill_(0x55)
    payload = vector.snapshot(form=COPY)[vector.schema.share_bytes :]
    assert payload.numel() == 128
    assert not payload[16:64].any()
    assert not payload[72:].any()


def test_the_anchor_identifies_the_values_and_can_be_replaced() -> None:
    vector = Vector(mixed(0), keeps_anchor=True)
    assert vector.anchor() == Vector(mixed(0)).anchor() != Vector(mixed(1)).anchor()
    vector.flats[0].add_(1)
    assert vector.kept_anchor() != vector.anchor()
    vector.keep_anchor()
    assert vector.kept_anchor() == vector.anchor()


def test_a_new_copy_has_no_earlier_moves_to_send() -> None:
    donor, newcomer = Vector(nn.Linear(8, 2, bias=False)), nn.Linear(8, 2, bias=False)
    vector = Vector(newcomer, sends_topk=True)
    vector.mix(donor.snapshot(form=COPY), 1.0, COPY)
    with torch.no_grad():
        newcomer.weight[0, 5] += 1
    payload = vector.snapshot("x", Form("topk:0.01"))
    assert payload.view(torch.int32)[0] == 5


@pytest.mark.parametrize(
    ("register", "form", "sends_topk", "message"),
    [
        ("x", Form("bfloat16"), False, "anchor is not kept"),
        ("x", Form(anchor=True), False, "anchor is not kept"),
        ("x", Form("topk:0.5"), False, "last sent of 'x'"),
        ("y", Form("topk:0.5"), True, "last sent of 'y'"),
        ("x", Form(registers=2), False, "registers in a share of"),
        (("x", "y"), Form(), False, "registers in a share of"),
    ],
)
def test_a_form_that_the_vector_cannot_serve_is_refused(
    register: Any, form: Form, sends_topk: bool, message: str
) -> None:
    vector = Vector(nn.Linear(8, 2), ("y",), sends_topk=sends_topk)
    with pytest.raises(LocalProtocolError, match=message):
        vector.snapshot(register, form)


def test_aligned_frames_and_the_anchor_of_a_copy_are_checked() -> None:
    vector = Vector(mixed(0), keeps_anchor=True)
    payload, size = vector.snapshot(form=COPY), vector.schema.share_bytes
    payload[size - 64 : size] = 0xFF
    assert vector.look(payload[0 : size - 64], COPY, 0, 0)
    assert vector.look(payload[size - 64 : size], COPY, 0, size - 64) is False
    # The mask of -inf that follows is not averaged.
    assert vector.look(payload[size : payload.numel()], COPY, 0, size)
    assert vector.look(payload[0:100], COPY, 0, 0) is None
    assert vector.look(payload[0:64], Form("bfloat16"), 0, 0) is None
    form = Form(copy=True, anchor=True)
    payload = vector.snapshot("x", form)
    payload[-64:] = 0xFF
    assert not vector.is_finite(payload, form)


@pytest.mark.parametrize("wire", [w for w in WIRES if not w.startswith("topk")])
def test_registers_in_one_share_stay_separate_in_any_dense_format(wire: str) -> None:
    """The first is sent as its difference from the anchor; the second, which is small, as it is."""
    start, form = mixed(0), Form(wire, registers=2)
    sender = Vector(copy.deepcopy(start), ("small",), keeps_anchor=True)
    receiver = Vector(copy.deepcopy(start), ("first", "second"), keeps_anchor=True)
    torch.manual_seed(1)
    with torch.no_grad():
        for flat in sender.flats:
            flat.add_(torch.randn_like(flat), alpha=0.01)
    # Far smaller than the model: as a difference from the anchor, it would be lost.
    sender.combine("small", [(1e-3, "x")])
    rng = stream(0, "a", "rounding")
    share = sender.snapshot(("x", "small"), form, rng=rng)
    assert share.numel() == form.size_bytes(sender.schema, 0)
    assert receiver.is_finite(share, form)
    receiver.combine("first", [(1.0, (share, form, 0))])
    receiver.combine("second", [(1.0, (share, form, 1)), (0.0, "x")])
    for name, of, tolerance in (("first", "x", 0.01), ("second", "small", 0.01 * 1e-3)):
        there, here = (
            vector.snapshot(register) for vector, register in ((receiver, name), (sender, of))
        )
        off = (numbers(there, sender) - numbers(here, sender)).abs().max()
        assert off <= (0 if wire == "float32" else tolerance)
        assert numbers(here, sender).abs().max() > 40 * tolerance


def numbers(payload: Tensor, vector: Vector) -> Tensor:
    """A native payload as one tensor of float64."""
    parts = vector.plan(Form()).numbers
    return torch.cat([payload[part.slot].view(part.dtype).double() for part in parts])


def test_non_finite_numbers_in_any_register_are_detected() -> None:
    vector, form = Vector(nn.Linear(8, 2), ("y",)), Form(registers=2)
    share = vector.snapshot(("x", "y"), form).clone()
    size = vector.schema.share_bytes
    assert vector.is_finite(share, form) and vector.look(share[size : 2 * size], form, 0, size)
    share[size:].view(torch.float32)[3] = float("nan")
    assert not vector.is_finite(share, form)
    assert vector.look(share[0:size], form, 0, 0)
    assert vector.look(share[size : 2 * size], form, 0, size) is False
    vector.combine("y", [(float("inf"), "x")])
    with pytest.raises(TrainingError, match="not finite"):
        vector.snapshot(("x", "y"), form)


def test_a_register_on_demand_exists_until_it_is_cleared() -> None:
    vector = Vector(nn.Linear(8, 2), ("from/*", "y"))
    vector.combine("y", [(1.0, "from/ada"), (2.0, "x")])
    y, x = (numbers(vector.snapshot(name), vector) for name in "yx")
    assert torch.equal(y, x * 2)
    vector.combine("from/bob", [(3.0, "x"), (1.0, "from/bob")])
    assert numbers(vector.snapshot("from/bob"), vector).any()
    assert {"from/ada", "from/bob"} < vector._registers.keys()
    for name in ("from/bob", "from/bob", "from/cyd", "y"):
        vector.combine(name, ())
    # A permanent register is set to zeros.
    assert vector._registers.keys() == {"x", "y", "from/ada"}
    assert not numbers(vector.snapshot("y"), vector).any()
    assert not numbers(vector.snapshot("from/bob"), vector).any()
    with pytest.raises(KeyError, match="of/ada"):
        vector.combine("of/ada", [(1.0, "x")])


CHANGES: dict[str, Callable[[Vector, Tensor], object]] = {
    "mixed": lambda vector, payload: vector.mix(payload, 0.5),
    "copied": lambda vector, payload: vector.mix(payload, 1.0),
    "combined": lambda vector, payload: vector.combine("x", [(0.5, "x"), (0.5, "y")]),
    "exchanged": lambda vector, payload: vector.exchange(
        "x", tuple(torch.zeros_like(flat) for flat in vector.flats), taken=0.5, given=0.0
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_backward_through_changed_parameters_is_refused(change: Any) -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    model[2].weight.data = model[2].weight.data.t().contiguous().t()
    vector = Vector(model, ("y",))
    payload = vector.snapshot()
    loss = model(torch.ones(2, 4)).sum()
    change(vector, payload)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    model(torch.ones(2, 4)).sum().backward()


def test_mixing_a_shard_leaves_graphs_through_other_shards_alone() -> None:
    torch.manual_seed(0)
    first, second = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
    vector = Vector(nn.Sequential(first, second), shards=2)
    loss = (first.weight.square().sum(), second.weight.square().sum())
    vector.mix(vector.snapshot(shard=1), 0.5, shard=1)
    loss[0].backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss[1].backward()


def test_host_memory_ignores_the_default_device() -> None:
    def mix_own_snapshot(wire: str) -> Vector:
        sender = Vector(nn.Linear(50, 20, device="cpu"), keeps_anchor=True, sends_topk=True)
        with torch.no_grad():
            sender.layout.module.weight.add_(1e-3)  # type: ignore[operator]
        payload = sender.snapshot("x", Form(wire), rng=stream(0, "a", "b"))
        sender.mix(payload, 0.5, Form(wire))
        return sender

    for wire in ("float32", *LOSSY):
        with torch.device("meta"):
            vector = mix_own_snapshot(wire)
        assert vector.flats[0].device.type == "cpu"


def test_mixing_is_the_weighted_average_in_place() -> None:
    torch.manual_seed(0)
    ours, theirs = Mixed(), Mixed()
    receiver, sender = Vector(ours), Vector(theirs)
    expected = [0.75 * a + 0.25 * b for a, b in zip(receiver.flats, sender.flats, strict=True)]
    places = [flat.data_ptr() for flat in receiver.flats]
    receiver.mix(sender.snapshot(), 0.25)
    for flat, mean in zip(receiver.flats, expected, strict=True):
        torch.testing.assert_close(flat, mean)
    assert [flat.data_ptr() for flat in receiver.flats] == places


def test_the_largest_unsent_moves_are_sent_next() -> None:
    module = nn.Linear(8, 2, bias=False)
    vector = Vector(module, sends_topk=True)
    with torch.no_grad():
        module.weight.view(-1).add_(torch.arange(1.0, 17.0))
    form = Form("topk:0.25")
    indices = []
    for _ in range(4):
        indices += vector.snapshot("x", form).view(torch.int32)[:4].tolist()
    assert indices == [*range(12, 16), *range(8, 12), *range(4, 8), *range(4)]


@pytest.mark.parametrize("scattered", [False, True])
def test_shared_tensors_are_views_into_any_flats_of_equal_layout(scattered: bool) -> None:
    module = nn.Sequential(nn.Linear(9, 5), nn.BatchNorm1d(5)).double()
    module[0].bias.data = module[0].bias.data.float()
    vector = Vector(module, shards=2, scattered=scattered)
    other = tuple(flat + 1 for flat in vector.flats)
    own, found = vector.layout.tensors(vector.flats), vector.layout.tensors(other)
    named = dict(module.named_parameters()) | dict(module.named_buffers())
    names = ("weight", "bias", "running_mean", "running_var")
    assert set(own) == {"0.weight", "0.bias", *(f"1.{name}" for name in names)}
    for name, tensor in own.items():
        assert tensor.data_ptr() == named[name].data_ptr() and torch.equal(tensor, named[name])
        assert torch.equal(found[name], named[name] + 1)
