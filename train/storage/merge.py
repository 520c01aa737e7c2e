"""The models that peers left on disk: merged into one, compared, and named by a digest.

Tensors are read one at a time, so that merging takes the memory of one model, however many
peers there are.
"""

import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise, zip_longest
from math import prod, sqrt
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ...gossip.errors import ConfigError, TrainingError
from ...gossip.weight import UNIT, from_units, in_floats
from ...gossip.wire.messages import is_name
from .files import drafted, json_of
from .shard_runs import Runs, from_text, orders_from_text

__all__ = [
    "SavedModel",
    "consensus_distance",
    "digest",
    "merge",
    "merging_weights",
    "open_model",
    "require_one_swarm",
    "save_model",
    "swarms_of",
]

DIGEST_BYTES = 16

# Each founder brings 2^40 units to each shard. Beyond, float64 would not hold sums of weights.
_WEIGHT_MAX = UNIT << 128


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedModel:
    """One peer's ``model.safetensors``: what its header says, the tensors still on disk."""

    path: Path
    id: str
    """The peer's id; the name of the file's folder where the header has none."""
    weight: int
    """What it ended with, of all shards; 0 where the header has none."""
    shard_weights: tuple[int, ...]
    """The same by shard; one for a vector that was not cut."""
    runs: Runs
    """Which numbers belong to which shard, in the order in which they lay in memory; empty for a
    vector that was not cut."""
    local: frozenset[str]
    """Tensors that are the peer's own, and not averaged."""
    orders: Mapping[str, tuple[int, ...]]
    """All axes of a tensor, the outermost in memory first, where those are not in their order."""
    tensors: tuple[tuple[str, str], ...]
    """Name of each tensor, and its shape and dtype in words, in the file's order."""
    swarm: str = ""
    """Hash of its swarm's first model; empty where the header has none."""
    met: frozenset[tuple[str, int]] = frozenset()
    """Incarnations that its peer was in one swarm with, its own included; empty where the header
    has none."""


def open_model(path: Path) -> SavedModel:
    """Read the header of a saved model.

    Args:
        path: A ``model.safetensors``.

    Raises:
        TrainingError: There is no such file, it is no safetensors file, or its header says what
            cannot be; the message says what.
    """
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = tuple((name, _shape(file.get_slice(name))) for name in file.keys())
            shapes = {name: file.get_slice(name).get_shape() for name, _ in tensors}
            sizes = {name: prod(shape) for name, shape in shapes.items()}
        # A peer's folder may come from anybody.
        id = metadata.get("peer")
        if id is not None and not is_name(id):
            raise ValueError(f"{reprlib.repr(id)} is no name of a peer")
        told = metadata.get("weight_units", "0")
        whole, *by_shard = map(_weight, (told, *metadata.get("shard_units", told).split(",")))
        runs = from_text(metadata.get("shard_runs", "{}"))
        orders = orders_from_text(metadata.get("shard_orders", "{}"))
        met = frozenset((str(id), int(number)) for id, number in json_of(metadata.get("met", "[]")))
        local = json_of(metadata.get("local", "[]"))
        if not isinstance(local, list) or not all(isinstance(name, str) for name in local):
            raise ValueError("its local tensors must be a list of names")
        _require_fit(runs, sizes, len(by_shard))
        if any(len(orders.get(name, shape)) != len(shape) for name, shape in shapes.items()):
            raise ValueError("an order of axes is not that of a tensor's")
    except (OSError, RecursionError, SafetensorError, TypeError, ValueError) as error:
        raise TrainingError(f"{path} cannot be read as a model: {error}") from error
    return SavedModel(
        path=path,
        id=path.parent.name if id is None else id,
        weight=whole,
        shard_weights=tuple(by_shard),
        runs=runs,
        local=frozenset(local),
        orders=orders,
        tensors=tensors,
        swarm=metadata.get("swarm", ""),
        met=met,
    )


def _weight(told: str) -> int:
    weight = from_units(told)
    if weight >= _WEIGHT_MAX:
        raise ValueError(f"a weight of {reprlib.repr(told)} units is more than all peers can hold")
    return weight


def _require_fit(runs: Runs, sizes: Mapping[str, int], shards: int) -> None:
    for name, several in runs.items():
        # What a module's own state_dict leaves out is in no file.
        if name in sizes and (several[-1].stop if several else 0) != sizes[name]:
            raise ValueError(f"its shards are not all of {name}")
        if any(run.shard >= shards for run in several):
            raise ValueError("it names more shards than weights")


def merging_weights(models: Sequence[SavedModel]) -> dict[str, int]:
    """Say how much each model counts in the merged one.

    Args:
        models: Of different peers.

    Returns:
        By peer, sorted: what those hold that hold some. Where nobody does, because all
        of them left, a unit for each.

    Raises:
        ConfigError: There are no models, or two of one peer.
    """
    ids = sorted(model.id for model in models)
    if not ids:
        raise ConfigError("there is no model to merge: give at least one peer's folder")
    for first, second in pairwise(ids):
        if first == second:
            raise ConfigError(f"peer {first} was given twice: merge each peer's model once")
    weights = {model.id: model.weight for model in sorted(models, key=lambda m: m.id)}
    return {peer: held for peer, held in weights.items() if held > 0} or dict.fromkeys(ids, UNIT)


def swarms_of(models: Sequence[SavedModel]) -> list[list[SavedModel]]:
    """Group models by the swarm in which they were trained, in the order of their ids.

    Two swarms may begin with the same model, as after a resume in which peers did not find one
    another: those whose peers have met, or have met the same third one, are of one swarm. A model
    that does not say whom its peer has met may be of any swarm that begins as its own does.
    """
    groups: list[tuple[str, set[tuple[str, int]], list[SavedModel]]] = []
    for model in sorted(models, key=lambda each: (not each.met, each.id)):
        swarm, met, members = model.swarm, set(model.met), [model]
        apart = []
        for group in groups:
            same = not group[0] or not swarm or group[0] == swarm
            if same and (not met or not group[1] or group[1] & met):
                swarm, members = swarm or group[0], [*group[2], *members]
                met |= group[1]
            else:
                apart.append(group)
        groups = [*apart, (swarm, met, members)]
    return sorted(
        (sorted(members, key=lambda each: each.id) for _, _, members in groups),
        key=lambda members: members[0].id,
    )


def require_one_swarm(models: Sequence[SavedModel]) -> None:
    """See that models can be averaged: those of two swarms have nothing to do with each other.

    Raises:
        TrainingError: They are of several swarms; it names the peers of each.
    """
    swarms = swarms_of(models)
    if len(swarms) > 1:
        named = "; ".join(", ".join(model.id for model in swarm) for swarm in swarms)
        first = " ".join(str(model.path.parent) for model in swarms[0])
        raise TrainingError(
            f"these peers trained in {len(swarms)} swarms, whose models cannot be averaged: "
            f"{named}. Merge each swarm by itself, as in `rumor merge {first} -o one.safetensors`"
        )


def merge(models: Sequence[SavedModel]) -> dict[str, Tensor]:
    """Average models, each weighted by what its peer holds; each shard by its own weights.

    Floating tensors are averaged in float64 and rounded to their own dtype once, those that all
    models agree on taken as they are. Integer and local ones are the heaviest peer's (of two, the
    first by id), because a mean of counters or of queues means nothing.

    Args:
        models: Of different peers, in any order: they are summed in the order of their ids.

    Returns:
        A state_dict.

    Raises:
        ConfigError: There are none, two are of one peer, or they differ in a tensor's name, shape
            or dtype (the message names the first).
        TrainingError: A file has become unreadable, or has a dtype that cannot be averaged.
    """
    weights = merging_weights(models)
    _check_alike(models)
    chosen = sorted((model for model in models if model.id in weights), key=lambda m: m.id)
    whole = [weights[model.id] for model in chosen]
    with ExitStack() as stack:
        readers = [_reader(stack, model) for model in chosen]
        merged = {}
        for name, words in models[0].tensors:
            try:
                if name in models[0].local:
                    merged[name] = readers[whole.index(max(whole))](name)
                    continue
                axes = models[0].orders.get(name)
                merged[name] = _mean(name, readers, whole, _cuts(name, chosen), axes)
            except (NotImplementedError, SafetensorError) as error:
                # Float4 and its like: torch holds such numbers, and cannot convert them.
                raise TrainingError(f"{name}, {words}, cannot be averaged: {error}") from None
        return merged


def consensus_distance(models: Sequence[SavedModel], names: Collection[str] | None = None) -> float:
    """Measure how far the models are from one another: sqrt(mean_i |x_i - mean|^2) / |mean|.

    Args:
        models: Alike in names, shapes and dtypes; the mean is the plain one.
        names: The tensors that travel, see `travelling`; all finite floating ones unless given.

    Returns:
        Dimensionless, 0 for identical models and for a single one.

    Raises:
        ConfigError: There are no models, or they differ in a tensor's name, shape or dtype.
        TrainingError: A file has become unreadable.
    """
    _check_alike(models)
    spread = size = 0.0
    with ExitStack() as stack:
        readers = [_reader(stack, model) for model in sorted(models, key=lambda m: m.id)]
        for name, _ in models[0].tensors:
            if name in models[0].local or (names is not None and name not in names):
                continue
            rows = [read(name) for read in readers]
            if not rows[0].is_floating_point():
                continue
            values = torch.stack(rows).double()
            if names is None and not values.isfinite().all():
                continue
            mean = values.mean(dim=0)
            spread += float((values - mean).square().sum()) / len(rows)
            size += float(mean.square().sum())
    return sqrt(spread) / sqrt(size) if size > 0 else sqrt(spread)


def digest(state: Mapping[str, Tensor]) -> str:
    """Name a model by its content: the same for the same names, shapes, dtypes and bits.

    Args:
        state: A state_dict.

    Returns:
        32 hexadecimal digits (BLAKE2b over the tensors, sorted by name).
    """
    hash = blake2b(digest_size=DIGEST_BYTES)
    for name in sorted(state):
        value = state[name].detach().cpu().contiguous()
        hash.update(f"{name} {tuple(value.shape)} {value.dtype}\n".encode())
        hash.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return hash.hexdigest()


def save_model(path: Path, state: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a state_dict, whole or not at all.

    Args:
        path: Where to; a file that is there is replaced.
        state: Tensors on the CPU that share no memory.
        metadata: Words for the header.

    Raises:
        OSError: The folder is not there or cannot be written; no draft is left behind.
    """
    try:
        with drafted(path) as draft:
            save_file(dict(state), draft, metadata=dict(metadata))
    except SafetensorError as error:
        raise OSError(f"{path} cannot be written: {error}") from error


def _reader(stack: ExitStack, model: SavedModel) -> Callable[[str], Tensor]:
    try:
        file = stack.enter_context(safe_open(model.path, "pt"))
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"{model.path} cannot be read as a model: {error}") from error

    def read(name: str) -> Tensor:
        return file.get_tensor(name)  # type: ignore[no-any-return]

    return read


_Cut = tuple[slice, Sequence[int]]
"""Some numbers of a flattened tensor, and what each model weighs there."""


def _cuts(name: str, models: Sequence[SavedModel]) -> Sequence[_Cut]:
    """Where the weights of a tensor's numbers differ; nothing where they are those of the whole."""
    cuts: list[_Cut] = []
    for start, stop, shard in models[0].runs.get(name, ()):
        held = [model.shard_weights[shard] for model in models]
        # A shard whose weight nobody holds, because all have left: each counts the same.
        cuts.append((slice(start, stop), held if any(held) else [UNIT] * len(models)))
    return cuts


def _mean(
    name: str,
    readers: Sequence[Callable[[str], Tensor]],
    whole: Sequence[int],
    cuts: Sequence[_Cut],
    axes: tuple[int, ...] | None,
) -> Tensor:
    first = readers[0](name)
    if not first.is_floating_point():
        return readers[whole.index(max(whole))](name)
    parts = [(part, *in_floats(held)) for part, held in cuts or [(slice(None), whole)]]
    axes = axes or tuple(range(first.dim()))
    total = torch.zeros(first.numel(), dtype=torch.float64, device="cpu")
    alike = True
    for index, read in enumerate(readers):
        value = read(name)
        alike = alike and torch.equal(value, first)
        for part, weights, _ in parts:
            total[part] += value.permute(axes).reshape(-1)[part].double() * weights[index]
    # Frozen tensors, masks of -inf among them, must come out as they went in.
    if alike:
        return first
    for part, _, weight in parts:
        total[part] /= weight
    mean = total.to(first.dtype).view([first.shape[axis] for axis in axes])
    return mean.permute([axes.index(axis) for axis in range(len(axes))]).contiguous()


def _check_alike(models: Sequence[SavedModel]) -> None:
    if not models:
        raise ConfigError("there is no model: give at least one peer's folder")
    one = models[0]
    for other in models[1:]:
        if (other.runs, other.orders) != (one.runs, one.orders):
            raise ConfigError(
                f"{one.path} and {other.path} were cut into shards in different ways: merge "
                "models of one swarm"
            )
        for index, (ours, theirs) in enumerate(zip_longest(one.tensors, other.tensors)):
            if ours != theirs:
                raise ConfigError(
                    f"{one.path} and {other.path} hold different models: tensor {index} is "
                    f"{_words(ours)} in the first and {_words(theirs)} in the second"
                )


def _words(tensor: tuple[str, str] | None) -> str:
    return " ".join(tensor) if tensor else "absent"


def _shape(tensor: Any) -> str:
    return f"{tuple(tensor.get_shape())} {tensor.get_dtype()}"
