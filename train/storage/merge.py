"""The models that peers left on disk: merged into one, compared, and named by a digest.

Tensors are read one at a time, so that merging takes the memory of one model, however many
peers there are.
"""

import json
import reprlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise, zip_longest
from math import prod, sqrt
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ...gossip.errors import ConfigError, TrainingError
from ...gossip.weight import UNIT, from_units, in_floats
from ...gossip.wire.messages import is_name
from ...gossip.wire.schema import ALIGNMENT_BYTES, Schema
from .files import drafted, json_of

__all__ = [
    "Run",
    "Runs",
    "SavedModel",
    "as_text",
    "consensus_distance",
    "digest",
    "merge",
    "merging_weights",
    "open_model",
    "require_one_swarm",
    "runs_of",
    "save_model",
    "swarms_of",
    "with_aliases",
]

DIGEST_BYTES: Final = 16

# Each founder brings 2^40 units to each shard. Beyond, float64 would not hold sums of weights.
_WEIGHT_MAX: Final = UNIT << 128

_T = TypeVar("_T")


class Run(NamedTuple):
    """Numbers of one tensor, flattened, that lie in one shard."""

    start: int
    stop: int
    shard: int


Runs = Mapping[str, tuple[Run, ...]]
"""By tensor; in order, and together all of it."""


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

    Raises:
        TrainingError: There is no such file, it is not a safetensors file, or its header is
            invalid; the message says why.
    """
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            parts = {name: file.get_slice(name) for name in file.keys()}
            shapes = {name: part.get_shape() for name, part in parts.items()}
            tensors = tuple((n, f"{tuple(shapes[n])} {parts[n].get_dtype()}") for n in parts)
        id = header.get("peer", path.parent.name)
        if "peer" in header and not is_name(id):
            raise ValueError(f"{reprlib.repr(id)} is no name of a peer")
        told = header.get("weight_units", "0")
        weights = map(_weight, (told, *header.get("shard_units", told).split(",")))
        whole, *by_shard = weights
        local = json_of(header.get("local", "[]"))
        if not isinstance(local, list):
            raise ValueError("its local tensors must be a list of names")
        runs = {
            name: tuple(Run(*run) for run in several)
            for name, several in json_of(header.get("shard_runs", "{}")).items()
        }
        orders = {n: tuple(axes) for n, axes in json_of(header.get("shard_orders", "{}")).items()}
        for name, shape in shapes.items():
            _require_fit(name, shape, runs.get(name), len(by_shard))
            if sorted(orders.get(name, range(len(shape)))) != list(range(len(shape))):
                raise ValueError(f"its order of axes is not that of {name}")
        return SavedModel(
            path=path,
            id=id,
            weight=whole,
            shard_weights=tuple(by_shard),
            runs=runs,
            local=frozenset(local),
            orders=orders,
            tensors=tensors,
            swarm=header.get("swarm", ""),
            met=frozenset((str(id), int(n)) for id, n in json_of(header.get("met", "[]"))),
        )
    except (OSError, SafetensorError, TypeError, AttributeError, ValueError) as error:
        raise TrainingError(f"{path} cannot be read as a model: {error}") from error


def _weight(told: str) -> int:
    weight = from_units(told)
    if weight >= _WEIGHT_MAX:
        raise ValueError(f"a weight of {reprlib.repr(told)} units is more than all peers can hold")
    return weight


def _require_fit(name: str, shape: Sequence[int], runs: Sequence[Run] | None, shards: int) -> None:
    if runs is None:
        return
    ends = [0, *(run.stop for run in runs)]
    starts = [*(run.start for run in runs), prod(shape)]
    if starts != ends or any(a > b for a, b in pairwise(ends)):
        raise ValueError(f"its shards are not all of {name}, in order")
    if not all(0 <= run.shard < shards for run in runs):
        raise ValueError("it names more shards than weights")


def runs_of(schema: Schema) -> Runs:
    """Lay the shards of a vector over its tensors."""
    owners = np.empty(schema.share_bytes // ALIGNMENT_BYTES, np.int32)
    for shard in range(schema.shards):
        owners[schema.lines(shard)] = shard
    found, line = {}, 0
    for tensor in schema.tensors:
        if not tensor.shared:
            continue
        n_numbers, n_lines = prod(tensor.shape), tensor.room_bytes // ALIGNMENT_BYTES
        per_line = ALIGNMENT_BYTES * n_numbers // tensor.size_bytes if n_numbers else 1
        here = owners[line : line + n_lines]
        starts = np.flatnonzero(np.diff(here, prepend=-1))
        stops = [*(starts[1:] * per_line).tolist(), n_numbers]
        each = zip((starts * per_line).tolist(), stops, here[starts].tolist(), strict=False)
        found[tensor.name] = tuple(Run(*run) for run in each)
        line += n_lines
    return found


def with_aliases(told: Mapping[str, _T], state: Mapping[str, Any]) -> dict[str, _T]:
    """Give every name of a tied tensor in a state dict the entry of the shared one."""
    by_place = {state[name].data_ptr(): each for name, each in told.items() if name in state}
    found = dict(told)
    for name, tensor in state.items():
        if isinstance(tensor, Tensor) and tensor.data_ptr() in by_place:
            found.setdefault(name, by_place[tensor.data_ptr()])
    return found


def as_text(told: Mapping[str, tuple[Run, ...] | tuple[int, ...]]) -> str:
    """Runs, or orders of axes, by tensor, for the header of a file."""
    return json.dumps(told, separators=(",", ":"))


def merging_weights(models: Sequence[SavedModel]) -> dict[str, int]:
    """How much each model counts in the merged one, by peer, sorted: the weights of the peers that
    hold some. Where none does, because all of them left, a unit for each.

    Raises:
        ConfigError: There are no models, or two of one peer.
    """
    ids = sorted(model.id for model in models)
    if not ids:
        raise ConfigError("there is no model to merge: give at least one peer's folder")
    for first, second in pairwise(ids):
        if first == second:
            raise ConfigError(f"peer {first} was given twice: merge each peer's model once")
    weights = {model.id: model.weight for model in sorted(models, key=_id)}
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
    swarms = [sorted(members, key=_id) for _, _, members in groups]
    return sorted(swarms, key=lambda members: members[0].id)


def _id(model: SavedModel) -> str:
    return model.id


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
        TrainingError: A file has become unreadable.
    """
    weights = merging_weights(models)
    _check_alike(models)
    chosen = sorted((model for model in models if model.id in weights), key=_id)
    whole = [weights[model.id] for model in chosen]
    one, merged = models[0], {}
    with _readers(chosen) as readers:
        heaviest = readers[whole.index(max(whole))]
        for name, _ in one.tensors:
            if name in one.local or not readers[0](name).is_floating_point():
                merged[name] = heaviest(name)
                continue
            cuts = [(slice(None), whole)]
            if name in one.runs:
                cuts = [
                    (slice(run.start, run.stop), [each.shard_weights[run.shard] for each in chosen])
                    for run in one.runs[name]
                ]
            merged[name] = _mean(name, readers, cuts, one.orders.get(name))
    return merged


def consensus_distance(models: Sequence[SavedModel], names: Collection[str] | None = None) -> float:
    """Measure how far the models are from one another: sqrt(mean_i |x_i - mean|^2) / |mean|.

    Args:
        models: Alike in names, shapes and dtypes; the mean is the plain one.
        names: The tensors that travel, see `travelling`; default: all finite floating ones.

    Returns:
        Dimensionless, 0 for identical models and for a single one.

    Raises:
        ConfigError: There are no models, or they differ in a tensor's name, shape or dtype.
        TrainingError: A file has become unreadable.
    """
    _check_alike(models)
    spread = size = 0.0
    with _readers(sorted(models, key=_id)) as readers:
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
    """Write tensors on the CPU that share no memory, and words for the header, whole or not at
    all; a file that is there is replaced.

    Raises:
        OSError: The folder is not there or cannot be written; no draft is left behind.
    """
    try:
        with drafted(path) as draft:
            save_file(dict(state), draft, metadata=dict(metadata))
    except SafetensorError as error:
        raise OSError(f"{path} cannot be written: {error}") from error


@contextmanager
def _readers(models: Sequence[SavedModel]) -> Iterator[list[Callable[[str], Tensor]]]:
    """What reads the tensors of each model."""
    with ExitStack() as stack:
        found = []
        for model in models:
            try:
                found.append(stack.enter_context(safe_open(model.path, "pt")).get_tensor)
            except (OSError, SafetensorError) as error:
                raise TrainingError(f"{model.path} cannot be read as a model: {error}") from error
        yield found


def _mean(
    name: str,
    readers: Sequence[Callable[[str], Tensor]],
    cuts: Sequence[tuple[slice, Sequence[int]]],
    axes: tuple[int, ...] | None,
) -> Tensor:
    """Average one tensor; *cuts* are numbers of it, in memory order, with the models' weights."""
    first = readers[0](name)
    # A shard whose weight no model holds, because all have left: each counts the same.
    parts = [(part, *in_floats(w if any(w) else [UNIT] * len(readers))) for part, w in cuts]
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
        for index, pair in enumerate(zip_longest(one.tensors, other.tensors, fillvalue=())):
            ours, theirs = (" ".join(tensor) or "absent" for tensor in pair)
            if ours != theirs:
                raise ConfigError(
                    f"{one.path} and {other.path} hold different models: tensor {index} is "
                    f"{ours} in the first and {theirs} in the second"
                )
