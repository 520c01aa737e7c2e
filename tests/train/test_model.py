"""A module's tensors by plain names: wrapped, tied, frozen."""

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor
from torch.testing._internal.two_tensor import TwoTensor

from rumor.gossip import ConfigError, TrainingError
from rumor.train.model import (
    deep_copy,
    frozen_tensors,
    memory_order,
    named_tensors,
    plain_names,
    sort_out,
    state_dict,
    with_own_names,
)
from rumor.train.tensors.vector import Vector

from .loop.group.processes import fake_process_group


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def compiled(module: nn.Module) -> Any:
    return torch.compile(module, backend="eager")


def test_plain_names_skip_wrappers_at_any_depth() -> None:
    model = layers()
    model[0] = compiled(nn.Sequential(compiled(nn.Linear(6, 8))))
    whole = compiled(model)
    names = ["0._orig_mod.0._orig_mod.weight", "2.bias"]
    plain = plain_names(whole)
    assert [plain(f"_orig_mod.{name}") for name in names] == ["0.0.weight", "2.bias"]
    assert "0.0.weight" in named_tensors(whole) and "2.bias" in state_dict(whole)
    travelling = {named.name for named in sort_out(whole)[0]}
    assert travelling == {"0.0.weight", "0.0.bias", "2.weight", "2.bias"}


def test_a_wrapped_model_loads_a_plain_state_dict() -> None:
    whole, plain = compiled(layers()), layers()
    whole.load_state_dict(with_own_names(whole, plain.state_dict()))
    assert state_dict(Extra(2, 2))["_extra_state"] == {"version": 3}, "extra state is kept"
    assert all(map(torch.equal, whole.parameters(), plain.parameters()))


def saved_bytes(value: object) -> int:
    file = io.BytesIO()
    torch.save(value, file)
    return len(file.getvalue())


def test_tensors_of_a_state_dict_own_their_memory() -> None:
    model: Any = nn.Sequential(nn.Linear(100, 100), nn.Conv2d(4, 4, 3))
    model.to(memory_format=torch.channels_last)
    before = copy.deepcopy(model.state_dict())
    Vector(model)
    # The bias is a view, with which torch saves the whole storage.
    assert saved_bytes(model[0].bias.data) > 40_000
    state = state_dict(model)
    assert saved_bytes(state["0.bias"]) < 4_000
    for name, tensor in state.items():
        assert torch.equal(tensor, before[name]) and tensor.stride() == before[name].stride()
        assert tensor.untyped_storage().nbytes() == tensor.nbytes and not tensor.requires_grad
    state["0.bias"].zero_()
    assert model[0].bias.any()


class Extra(nn.Linear):
    def get_extra_state(self) -> Any:
        return {"version": 3}

    def set_extra_state(self, state: Any) -> None:
        raise AssertionError("it is not loaded here")


@pytest.mark.parametrize(
    ("tensor", "order"),
    [
        (torch.zeros(2, 3), ()),
        (torch.zeros(()), ()),
        (torch.zeros(2, 0, 3).permute(2, 1, 0), ()),
        (torch.zeros(3, 2).t(), (1, 0)),
        (torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last), (0, 2, 3, 1)),
        # Axes of size 1 may stand in any order.
        (torch.zeros(2, 3, 1, 1).to(memory_format=torch.channels_last), ()),
        (torch.zeros(3, 1, 2).permute(2, 1, 0), (2, 0)),
        (torch.zeros(4, 6)[:, ::2], None),
        (torch.zeros(3, 1).expand(3, 5), None),
    ],
)
def test_memory_order_is_the_order_of_axes_in_memory(
    tensor: Tensor, order: tuple[int, ...] | None
) -> None:
    assert memory_order(tensor) == order


class Two(nn.Module):
    """Two layers of one shape, a frozen one, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.kept: Tensor
        self.register_buffer("kept", torch.ones(4, 4), persistent=False)


def test_tensors_tied_by_data_are_shared_once_with_all_aliases() -> None:
    model = Two()
    for tensor in (model.second.weight, model.frozen.weight):
        tensor.data = model.first.weight.data
    model.kept = model.first.weight.data
    shared, _ = sort_out(model)
    by_name = {named.name: set(named.aliases) for named in shared}
    copied: Any = deep_copy(model)
    weights = (copied.first.weight, copied.second.weight, model.first.weight)
    first, second, original = (weight.data_ptr() for weight in weights)
    assert first == second != original and weights[0] is not weights[1]
    assert by_name == {
        "first.weight": {"second.weight", "frozen.weight", "kept"},
        "first.bias": set(),
        "second.bias": set(),
    }


@pytest.mark.parametrize(
    "overlap",
    [
        lambda model: setattr(model.second.bias, "data", model.first.weight.data[1]),
        lambda model: setattr(model.second.weight, "data", model.first.weight.data.t()),
        lambda model: setattr(model, "kept", model.first.weight.data.view(-1)),
        lambda model: setattr(model.frozen.bias, "data", model.second.weight.data[0]),
    ],
)
def test_a_parameter_that_overlaps_another_tensor_is_refused(overlap: Any) -> None:
    model = Two()
    overlap(model)
    with pytest.raises(TrainingError, match=r"(first|second)\.weight.* overlap in memory"):
        sort_out(model)


def test_a_parameter_of_several_tensors_is_compared_but_cannot_be_trained() -> None:
    def model(value: float, *, trained: bool) -> nn.Module:
        made = nn.Linear(2, 2)
        codes = TwoTensor(torch.ones(3), torch.full((3,), value))
        made.codes = nn.Parameter(codes, requires_grad=trained)
        return made

    one, two = (frozen_tensors(model(value, trained=False), set()) for value in (1.0, 2.0))
    assert one[0].name == "codes" and one != two
    assert one == frozen_tensors(model(1.0, trained=False), set())
    with pytest.raises(TrainingError, match="codes is a TwoTensor, which is more than one tensor"):
        sort_out(model(1.0, trained=True))


@pytest.mark.parametrize("encode", [Tensor.to_sparse_coo, Tensor.to_sparse_csc])
@pytest.mark.filterwarnings("ignore:Sparse.*beta state")
def test_frozen_parameters_may_be_sparse_but_averaged_tensors_may_not(encode: Any) -> None:
    def model(value: float) -> nn.Module:
        made: Any = nn.Linear(2, 2)
        made.codes = nn.Parameter(encode(torch.eye(3) * value), requires_grad=False)
        return nn.Sequential(made)

    one, two, again = (frozen_tensors(model(value), set()) for value in (1.0, 2.0, 1.0))
    assert one == again != two
    assert len(Vector(model(1.0)).schema.tensors) == 2
    made: Any = model(1.0)
    made.register_buffer("table", made[0].codes.detach())
    with pytest.raises(TrainingError, match="table is sparse"):
        sort_out(made)


def test_frozen_parameters_are_compared_by_name_shape_dtype_and_bits() -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    plain, wrapped = frozen_tensors(model, set()), frozen_tensors(compiled(model), set())
    assert plain == wrapped and [each.name for each in plain] == ["0.weight", "0.bias"]
    assert (plain[0].shape, plain[0].dtype) == ((2, 3), "float32")
    turned = copy.deepcopy(model)
    turned[0].weight.data = turned[0].weight.data.t().contiguous().t()
    assert frozen_tensors(turned, set()) == plain
    turned[0].weight.data[1, 2] += 1e-6
    changed = frozen_tensors(turned, set())
    assert changed[0] != plain[0] and changed[1] == plain[1]


def test_a_frozen_tensor_that_is_averaged_under_another_name_is_not_compared() -> None:
    model = Two()
    model.frozen.weight.data = model.first.weight.data
    vector = Vector(model)
    vector.compare_frozen()
    assert [each.name for each in vector.schema.frozen] == ["frozen.bias"]


def test_thousands_of_frozen_parameters_are_compared_as_one() -> None:
    numbers = (torch.tensor(float(i)) for i in range(4097))
    model = nn.ParameterList([nn.Parameter(each, requires_grad=False) for each in numbers])
    (found,) = frozen_tensors(model, set())
    assert (found.name, found.shape) == ("any", (4097,))
    model[4000].data += 1
    assert frozen_tensors(model, set()) != (found,)


def test_tensors_on_the_meta_device_are_refused() -> None:
    model = layers()
    model[2].requires_grad_(False).to_empty(device="meta")
    with pytest.raises(
        TrainingError, match=r"2\.weight lies on the meta device.*frozen_may_differ"
    ):
        frozen_tensors(model, set())
    assert [named.name for named in sort_out(model)[0]] == ["0.weight", "0.bias"]
    with pytest.raises(TrainingError, match=r"weight lies on the meta device.*to_empty"):
        sort_out(nn.BatchNorm1d(3, device="meta"))
    with pytest.raises(TrainingError, match=r"running_mean lies on the meta device"):
        sort_out(nn.BatchNorm1d(3, device="meta", affine=False))


class Teaching(nn.Module):
    """A trained student, a teacher that the loop moves, a queue, and scratch memory."""

    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Linear(3, 2)
        self.teacher = nn.Linear(3, 2).requires_grad_(False)
        self.register_buffer("queue", torch.randn(4, 2))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)


def test_local_tensors_are_neither_averaged_nor_compared() -> None:
    vector = Vector(Teaching(), local=("teacher", "queue", "scratch", "student.bias"))
    vector.compare_frozen()
    shared = [spec.name for spec in vector.schema.tensors if spec.shared]
    local = [spec.name for spec in vector.schema.tensors if not spec.shared]
    assert shared == ["student.weight"] and not vector.schema.frozen
    assert local == ["student.bias", "teacher.weight", "teacher.bias", "queue", "scratch"]


def test_an_unknown_or_half_tied_local_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"local has 'quue'.*did you mean 'queue'"):
        Vector(Teaching(), local=("quue",))
    for tie in ("weight", "data"):
        model = Teaching().requires_grad_()
        if tie == "weight":
            model.teacher.weight = model.student.weight
        else:
            model.teacher.weight.data = model.student.weight.data
        with pytest.raises(ConfigError, match=r"teacher\.weight, which is tied to student\.weight"):
            Vector(model, local=("teacher",))
    with pytest.raises(TrainingError, match="requires gradients and is not local"):
        Vector(nn.Linear(2, 2), local=("weight", "bias"))


def test_a_tensor_on_several_processes_is_refused() -> None:
    with fake_process_group(2):
        spread = distribute_tensor(torch.zeros(4), init_device_mesh("cpu", (2,)))
    model = nn.Linear(4, 1, bias=False)
    model.weight = nn.Parameter(spread)
    with pytest.raises(TrainingError, match=r"weight is a DTensor.*without FSDP"):
        sort_out(model)
