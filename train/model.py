"""A module as peers see it: its tensors by plain names, its frozen parameters, its state dict.

Wrappers (`torch.compile`, `DistributedDataParallel`, activation checkpointing) add prefixes to
names. Plain names have none, so peers that wrap a model and peers that do not train the same one.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Final, NamedTuple
from zlib import crc32

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..gossip.errors import ConfigError, TrainingError, did_you_mean
from ..gossip.wire.schema import FrozenTensor, Schema

__all__ = [
    "NamedTensor",
    "deep_copy",
    "fingerprint",
    "frozen_names",
    "frozen_tensors",
    "inner_module",
    "is_plain",
    "memory_order",
    "named_state",
    "named_tensors",
    "parts_of",
    "plain_names",
    "sort_out",
    "state_dict",
    "tie_again",
    "tied_names",
    "travelling_tensors",
    "with_extra_state",
    "with_own_names",
]

# Classes by name, since importing them takes a second. CheckpointWrapper strips its own prefix if
# it is the outermost module.
_WRAPPED: Final = {
    "OptimizedModule": "_orig_mod",
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
}

_Named = list[tuple[str, Tensor]]
_Memory = tuple[object, ...]

# A full schema must fit into one message, of at most 1 MiB.
_FROZEN_MAX: Final = 4096


def _wrapped(module: nn.Module) -> str | None:
    """Return the attribute with the module inside a wrapper; None for any other module."""
    names = (each.__name__ for each in type(module).__mro__)
    return next((_WRAPPED[name] for name in names if name in _WRAPPED), None)


def inner_module(module: nn.Module) -> nn.Module:
    """Return the module without the wrappers around it."""
    while (wrapped := _wrapped(module)) is not None:
        module = getattr(module, wrapped)
    return module


def plain_names(module: nn.Module) -> Callable[[str], str]:
    """Return a function from names of *module*'s tensors to those without wrappers.

    >>> plain_names(torch.compile(nn.Linear(2, 2), backend="eager"))("_orig_mod.weight")
    'weight'
    """
    inner = {}
    for path, part in module.named_modules():
        if (wrapped := _wrapped(part)) is not None:
            before = f"{path}." if path else ""
            inner[f"{before}{wrapped}."] = before

    def plain(name: str) -> str:
        # Inner wrappers come later, with the prefixes of the outer ones still before their own.
        for prefix, before in reversed(inner.items()):
            if name.startswith(prefix):
                name = before + name.removeprefix(prefix)
        return name

    return plain


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return all buffers and parameters by plain name, tied ones once."""
    plain = plain_names(module)
    named = (*module.named_buffers(), *module.named_parameters())
    return {plain(name): tensor for name, tensor in named}


def travelling_tensors(model: nn.Module, schema: Schema) -> dict[str, Tensor]:
    """Return the tensors of *model* that peers exchange by name, in the order of its *schema*."""
    named = named_tensors(model)
    # The schema also lists extra state, which is not a tensor of the model.
    return {each.name: named[each.name] for each in schema.tensors if each.name in named}


def with_extra_state(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules with extra state, see `nn.Module.get_extra_state`, by plain name."""
    plain, found = plain_names(model), {}
    for name, part in model.named_modules():
        if type(part).get_extra_state is not nn.Module.get_extra_state:
            found[plain(f"{name}.").removesuffix(".")] = part
    return found


def named_state(model: nn.Module) -> dict[str, Any]:
    """Return the model's state dict, without copying, by plain names."""
    plain = plain_names(model)
    return {plain(name): value for name, value in model.state_dict().items()}


def with_own_names(model: nn.Module, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return *state*, whose names are plain, with the names that the wrapped model uses."""
    plain = plain_names(model)
    own = {plain(name): name for name in model.state_dict()}
    return {own.get(name, name): value for name, value in state.items()}


def state_dict(model: nn.Module) -> dict[str, Any]:
    """Return the model's state dict, of tensors that each own their memory."""
    return {
        name: value.detach().clone() if isinstance(value, Tensor) else value
        for name, value in named_state(model).items()
    }


def fingerprint(tensors: Iterable[Tensor]) -> tuple[int, ...]:
    """Return the CRC-32 of the bytes of each tensor, on any device.

    >>> fingerprint([torch.zeros(2)]) == fingerprint([torch.zeros(1, 2)])
    True
    """
    return tuple(
        crc32(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        for tensor in tensors
    )


def tied_names(module: nn.Module) -> dict[str, tuple[str, ...]]:
    """Return the other names in the state dict of each tied tensor, by any of its plain names."""
    groups: dict[_Memory, list[str]] = {}
    for name, value in named_state(module).items():
        if isinstance(value, Tensor) and (memory := _memory(value)) is not None:
            groups.setdefault(memory, []).append(name)
    tied = [names for names in groups.values() if len(names) > 1]
    return {name: tuple(o for o in names if o != name) for names in tied for name in names}


def frozen_names(module: nn.Module, moving: Iterable[Tensor]) -> frozenset[str]:
    """Return the plain names of the parameters not among *moving*, all names of tied ones.

    >>> sorted(frozen_names(nn.Linear(2, 1), ()))
    ['bias', 'weight']
    """
    plain, ids = plain_names(module), {id(tensor) for tensor in moving}
    named = module.named_parameters(remove_duplicate=False)
    return frozenset(plain(name) for name, one in named if id(one) not in ids)


def frozen_tensors(module: nn.Module, moving: Collection[int]) -> tuple[FrozenTensor, ...]:
    """Return the tensors that all peers must share although they are never sent, with values.

    *moving* has the addresses of exchanged tensors, for which frozen ones may be other names. Very
    many parameters have a single entry.

    Raises:
        TrainingError: A parameter has no values yet.
    """
    plain = plain_names(module)
    found = []
    for name, parameter in module.named_parameters():
        if parameter.requires_grad or is_lazy(parameter):
            continue
        if parameter.is_meta:
            raise TrainingError(
                f"{plain(name)} lies on the meta device, and its values cannot be compared with "
                "those of other peers: load it before Peer(model), or set frozen_may_differ"
            )
        if _memory(parameter) is not None and parameter.data_ptr() in moving:
            continue
        checksum = crc32(b"".join(each.to_bytes(4) for each in fingerprint(parts_of(parameter))))
        dtype = str(parameter.dtype).removeprefix("torch.")
        found.append(FrozenTensor(plain(name), tuple(parameter.shape), dtype, checksum))
    if len(found) > _FROZEN_MAX:
        text = "\n".join(map(str, found))
        found = [FrozenTensor("any", (len(found),), "parameters", crc32(text.encode()))]
    return tuple(found)


class NamedTensor(NamedTuple):
    """A tensor of a module by its plain name."""

    name: str
    tensor: Tensor
    aliases: dict[str, Tensor]
    """Other tensor objects with the same memory, such as by ``.data``."""


def sort_out(
    module: nn.Module, own: Collection[str] = ()
) -> tuple[list[NamedTensor], list[NamedTensor]]:
    """Split a module's tensors into averaged ones and ones sent only in a copy, each in order.

    *own* names tensors, or modules with all their tensors, that are sent only in a copy.

    Raises:
        ConfigError: A name in *own* is not in the module.
        TrainingError: A tensor has no values yet, or not plain numbers; or a parameter overlaps in
            memory with another tensor.
    """
    plain = plain_names(module)
    saved = {plain(name) for name in module.state_dict()}
    own_ids = _own_ids(module, own) if own else set()
    trained: _Named = []
    averaged: _Named = []
    local: _Named = []
    others: _Named = []
    for name, parameter in module.named_parameters():
        kind = trained if parameter.requires_grad else others
        (local if id(parameter) in own_ids else kind).append((plain(name), parameter))
    for name, buffer in module.named_buffers():
        kind = others
        if plain(name) in saved:
            kind = averaged if _is_averaged(buffer) else local
        (local if id(buffer) in own_ids else kind).append((plain(name), buffer))
    shared = [(name, _with_values(name, tensor)) for name, tensor in (*trained, *averaged)]
    _require_apart(shared[: len(trained)], [*shared[len(trained) :], *local, *others])
    copied = [NamedTensor(name, _with_values(name, tensor), {}) for name, tensor in local]
    tied = _tied(shared, [*others, *local])
    for named in tied:
        for name in {name for name, _ in local} & named.aliases.keys():
            raise _half_own(name, named.name)
    return tied, copied


def _own_ids(module: nn.Module, own: Collection[str]) -> set[int]:
    """Return the ids of tensors with these names, and of all tensors in modules with them."""
    plain, by_name = plain_names(module), dict[str, int]()
    for named in (module.named_parameters, module.named_buffers):
        by_name |= {plain(name): id(one) for name, one in named(remove_duplicate=False)}
    chosen: dict[int, str] = {}
    for each in own:
        found = {name: i for name, i in by_name.items() if f"{name}.".startswith(f"{each}.")}
        if not found:
            hint = did_you_mean(each, by_name, ": name tensors, or modules that have any")
            raise ConfigError(f"local has {each!r}, which is not in the model{hint}")
        chosen |= {i: name for name, i in found.items()}
    for name, one in by_name.items():
        if one in chosen and not any(f"{name}.".startswith(f"{each}.") for each in own):
            raise _half_own(chosen[one], name)
    return set(chosen)


def _half_own(name: str, other: str) -> ConfigError:
    return ConfigError(f"local has {name}, which is tied to {other}: name both, or neither")


def tie_again(module: nn.Module, aliases: Mapping[str, Collection[str]]) -> None:
    """Tie again the tensors of *aliases*, by first name, after *module* was moved or copied."""
    named = named_tensors(module) if any(aliases.values()) else {}
    for name, others in aliases.items():
        for other in others:
            named[other].data = named[name].data


def deep_copy(module: nn.Module) -> nn.Module:
    """Copy a module and its ties; `copy.deepcopy` separates tensors tied by ``.data``."""
    copied = deepcopy(module)
    tie_again(copied, {named.name: list(named.aliases) for named in sort_out(module)[0]})
    return copied


def memory_order(tensor: Tensor) -> tuple[int, ...] | None:
    """Return the axes of more than one element, the outermost in memory first.

    The tuple is empty if they are in the order of the shape; None stands for gaps or overlaps.

    >>> memory_order(torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last))
    (0, 2, 3, 1)
    """
    if tensor.is_contiguous():
        return ()
    axes = [axis for axis in range(tensor.dim()) if tensor.shape[axis] > 1]
    axes.sort(key=tensor.stride, reverse=True)
    dense = 1
    for axis in reversed(axes):
        if tensor.stride(axis) != dense:
            return None
        dense *= tensor.shape[axis]
    return tuple(axes)


def _is_averaged(buffer: Tensor) -> bool:
    if is_lazy(buffer) or _is_empty(buffer) or not is_plain(buffer):
        return True  # would be, if it could
    # A mask of -inf is not a statistic: averaging it can give NaN.
    return buffer.is_floating_point() and bool(torch.isfinite(buffer).all())


def _is_empty(tensor: Tensor) -> bool:
    return tensor.is_meta and type(tensor) in (Tensor, nn.Parameter)


def _with_values(name: str, tensor: Tensor) -> Tensor:
    """Return a tensor to exchange, or raise a `TrainingError` that says why it cannot be."""
    if is_lazy(tensor):
        raise TrainingError(
            f"{name} has no shape yet, as its module is a lazy one: run one batch through the "
            "model first, model(inputs)"
        )
    if _is_empty(tensor):
        raise TrainingError(
            f"{name} lies on the meta device and has no values: call model.to_empty(device=...) "
            "and load them before Peer(model)"
        )
    if not is_plain(tensor):
        kind = f"a {type(tensor).__name__}" if _is_subclass(tensor) else "sparse"
        raise TrainingError(
            f"{name} is {kind}, which is more than one tensor of numbers: make it a plain tensor "
            "(peers average whole models, without FSDP), or freeze it with requires_grad_(False), "
            "or let a buffer be persistent=False"
        )
    return tensor


def _memory(tensor: Tensor) -> _Memory | None:
    """Return a key that tensors of the same memory share; None for a tensor without memory."""
    if is_lazy(tensor) or not is_plain(tensor) or tensor.is_meta or not tensor.numel():
        return None
    return tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _tied(shared: _Named, others: _Named) -> list[NamedTensor]:
    """Return each memory of the tensors in *shared* once, with the other tensors in it."""
    kept: dict[object, NamedTensor] = {}
    for name, tensor in shared:
        first = kept.setdefault(_memory(tensor) or name, NamedTensor(name, tensor, {}))
        if first.name != name:
            first.aliases[name] = tensor
    for name, tensor in others:
        if (memory := _memory(tensor)) in kept:
            kept[memory].aliases[name] = tensor
    return list(kept.values())


def _require_apart(trained: _Named, others: _Named) -> None:
    """Check that no parameter overlaps partly in memory with another tensor."""
    # Moving one into a vector would silently separate the two.
    places: dict[_Memory, tuple[str, int, int, bool, str]] = {}
    for is_trained, named in ((True, trained), (False, others)):
        for name, tensor in named:
            memory = _memory(tensor)
            if memory is None or memory_order(tensor) is None:
                continue
            start, size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
            place = str(tensor.device), start, start + size, is_trained, name
            places.setdefault(memory, place)
    device, stop, is_one_trained, one = "", 0, False, ""
    for on, start, end, is_trained, name in sorted(places.values()):
        if on == device and start < stop and (is_trained or is_one_trained):
            raise TrainingError(
                f"{one} and {name} overlap in memory and are not the same tensor: tie whole "
                "parameters, or give each its own memory with .data = .data.clone()"
            )
        if on != device or end > stop:
            device, stop, is_one_trained, one = on, end, is_trained, name


def parts_of(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the plain tensors that a tensor consists of, such as codes and scales."""
    whole: Any = tensor
    if _is_subclass(tensor):
        for name in whole.__tensor_flatten__()[0]:
            yield from parts_of(getattr(whole, name))
    elif tensor.layout is not torch.strided:
        once = tensor.detach().to_sparse_coo().coalesce()
        yield from (once.indices(), once.values())
    else:
        yield tensor


def is_plain(tensor: Tensor) -> bool:
    """True for one dense tensor of numbers, not for a subclass that consists of others."""
    return tensor.layout is torch.strided and not _is_subclass(tensor)


def _is_subclass(tensor: Tensor) -> bool:
    return hasattr(tensor, "__tensor_flatten__")
