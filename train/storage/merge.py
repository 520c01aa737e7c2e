"""Merge and compare the models that peers left on disk, and name them by a digest.

Tensors are read one at a time, so merging takes the memory of one model for any number of peers.
"""

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise, zip_longest
from math import prod, sqrt
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ...gossip.errors import ConfigError, TrainingError
from ...gossip.weight import UNIT, from_units, in_floats, in_units
from ...gossip.wire.fields import FieldError, Fields
from ...gossip.wire.messages import is_name
from ...gossip.wire.schema import ALIGNMENT_BYTES, Schema
from .files import drafted, json_of

__all__ = [
    "Merged",
    "SavedModel",
    "consensus_distance",
    "digest",
    "merge",
    "merge_models",
    "merging_weights",
    "open_model",
    "read_schema",
    "save_model",
    "swarms_of",
    "write_schema",
]

# Each founder brings 2^40 units to each shard. A float64 could not hold larger sums of weights.
_WEIGHT_MAX: Final = UNIT << 128

_ID: Final = attrgetter("id")


_SCHEMA: Final = Fields(Schema)


class _Run(NamedTuple):
    """A slice of one flattened tensor, in its memory order, that lies in one shard."""

    start: int
    stop: int
    shard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedModel:
    """One peer's ``model.safetensors``: its parsed header, with the tensors still on disk."""

    path: Path
    id: str
    """The peer's id; the name of the file's folder if the header lacks it."""
    weight: int
    """Final weight over all shards; 0 if the header lacks it."""
    shard_weights: tuple[int, ...]
    """Final weight of each shard; one for an unsharded vector."""
    schema: Schema | None
    """Schema of what peers exchange of it; None if the header lacks it."""
    tensors: tuple[tuple[str, str], ...]
    """Name of each tensor, and its shape and dtype in words, in the file's order."""
    swarm: str = ""
    """Hash of its swarm's first model; empty if the header lacks it."""
    met: frozenset[tuple[str, int]] = frozenset()
    """Incarnations that its peer was in one swarm with, its own included; empty if the header lacks
    them."""

    @property
    def local(self) -> set[str]:
        """Names of tensors that are the peer's own, and not averaged."""
        specs = () if self.schema is None else self.schema.tensors
        return {name for spec in specs if not spec.shared for name in (spec.name, *spec.aliases)}


def open_model(path: Path) -> SavedModel:
    """Read the header of a saved model, or raise TrainingError."""
    try:
        with _opened(path) as file:
            header = file.metadata() or {}
            parts = {name: file.get_slice(name) for name in file.keys()}
            shapes = {name: tuple(part.get_shape()) for name, part in parts.items()}
            tensors = tuple((n, f"{shapes[n]} {parts[n].get_dtype()}") for n in parts)
        id = header.get("peer", path.parent.name)
        if "peer" in header and not is_name(id):
            raise ValueError(f"{reprlib.repr(id)} is not a peer's name")
        told = header.get("weight_units", "0")
        whole, *by_shard = map(_weight, (told, *header.get("shard_units", told).split(",")))
        schema = read_schema(json_of(header["schema"])) if "schema" in header else None
        if schema is not None and schema.shards != len(by_shard):
            raise ValueError(f"it has {len(by_shard)} weights for {schema.shards} shards")
        for spec in schema.tensors if schema is not None else ():
            for name in (spec.name, *spec.aliases):
                if shapes.get(name, spec.shape) != spec.shape:
                    raise ValueError(f"its schema has another shape of {name}")
            if sorted(spec.axes) != list(range(len(spec.shape))):
                raise ValueError(f"its order of axes is not that of {spec.name}")
        return SavedModel(
            path=path,
            id=id,
            weight=whole,
            shard_weights=tuple(by_shard),
            schema=schema,
            tensors=tensors,
            swarm=header.get("swarm", ""),
            met=frozenset((str(id), int(n)) for id, n in json_of(header.get("met", "[]"))),
        )
    except (TypeError, AttributeError, ValueError, FieldError) as error:
        raise TrainingError(f"{path} cannot be read as a model: {error}") from error


def _weight(told: str) -> int:
    weight = from_units(told)
    if weight >= _WEIGHT_MAX:
        raise ValueError(f"a weight of {reprlib.repr(told)} units is more than all peers can hold")
    return weight


def write_schema(schema: Schema) -> Any:
    """Return a schema as JSON values."""
    return _SCHEMA.write(schema)


def read_schema(value: Any) -> Schema:
    """Return a schema from JSON values; raise `FieldError` unless `write_schema` made them."""
    schema: Schema = _SCHEMA.read(_tuples(value))
    return schema


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _runs_of(schema: Schema) -> dict[str, tuple[list[_Run], tuple[int, ...]]]:
    """Map the shards of a vector to its tensors, by each of their names: runs that are all of the
    tensor, and its axes, the outermost in memory first."""
    owners = np.empty(schema.share_bytes // ALIGNMENT_BYTES, np.int32)
    for shard in range(schema.shards):
        owners[schema.lines(shard)] = shard
    found, line = dict[str, tuple[list[_Run], tuple[int, ...]]](), 0
    for tensor in schema.tensors:
        if not tensor.shared:
            continue
        n_numbers, n_lines = prod(tensor.shape), tensor.room_bytes // ALIGNMENT_BYTES
        per_line = ALIGNMENT_BYTES * n_numbers // tensor.size_bytes if n_numbers else 1
        here = owners[line : line + n_lines]
        starts = np.flatnonzero(np.diff(here, prepend=-1))
        stops = [*(starts[1:] * per_line).tolist(), n_numbers]
        each = zip((starts * per_line).tolist(), stops, here[starts].tolist(), strict=False)
        runs = [_Run(*run) for run in each]
        found |= dict.fromkeys((tensor.name, *tensor.aliases), (runs, tensor.axes))
        line += n_lines
    return found


def merging_weights(models: Sequence[SavedModel]) -> dict[str, int]:
    """Return the weight of each model that counts in the merged one, by peer, sorted.

    Raises:
        ConfigError: *models* is empty, or has two of one peer.
    """
    ids = sorted(model.id for model in models)
    if not ids:
        raise ConfigError("there is no model to merge: give at least one peer's folder")
    for first, second in pairwise(ids):
        if first == second:
            raise ConfigError(f"peer {first} was given twice: merge each peer's model once")
    weights = {model.id: model.weight for model in sorted(models, key=_ID)}
    # All peers have left if none has weight: then each counts the same.
    return {peer: held for peer, held in weights.items() if held > 0} or dict.fromkeys(ids, UNIT)


def swarms_of(models: Sequence[SavedModel]) -> list[list[SavedModel]]:
    """Group models by the swarm in which they were trained, in the order of their ids.

    A model without a record of met peers may be of any swarm with the same first model.
    """
    # Two swarms may begin with the same model, as after a resume in which peers did not find each
    # other: only those whose peers have met, or have met the same third peer, are one.
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
    swarms = [sorted(members, key=_ID) for _, _, members in groups]
    return sorted(swarms, key=lambda members: members[0].id)


def merge(models: Sequence[SavedModel]) -> dict[str, Tensor]:
    """Average models in float64, each weighted by its peer's weight, and each shard by its own.

    Returns:
        A state_dict, rounded once to the tensors' own dtypes.

    Raises:
        ConfigError: *models* is empty, two are of one peer, or they differ in a tensor's name,
            shape or dtype (the message names the first).
        TrainingError: A file has become unreadable.
    """
    weights = merging_weights(models)
    _check_alike(models)
    # A fixed order, since sums of floats depend on it.
    chosen = sorted((model for model in models if model.id in weights), key=_ID)
    whole = [weights[model.id] for model in chosen]
    one, merged, cut = models[0], dict[str, Tensor](), {}
    if one.schema is not None and one.schema.shards > 1:
        cut = _runs_of(one.schema)
    local = one.local
    with _readers(chosen) as readers:
        heaviest = readers[whole.index(max(whole))]
        for name, _ in one.tensors:
            if name in local or not readers[0](name).is_floating_point():
                # A mean of counters or of queues is meaningless.
                merged[name] = heaviest(name)
                continue
            cuts, axes = [(slice(None), whole)], None
            if name in cut:
                runs, axes = cut[name]
                cuts = [
                    (slice(run.start, run.stop), [each.shard_weights[run.shard] for each in chosen])
                    for run in runs
                ]
            merged[name] = _mean(name, readers, cuts, axes)
    return merged


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The model that several peers' models were merged into."""

    state: dict[str, Tensor]
    weights: dict[str, int]
    """Weight of each peer, by id; one unit each if no peer held any."""
    consensus_distance: float
    digest: str

    def save(self, path: Path) -> None:
        """Write the model; see `save_model`."""
        held = ",".join(f"{peer}:{in_units(weight)}" for peer, weight in self.weights.items())
        save_model(path, self.state, {"merged_from": held, "digest": self.digest})


def merge_models(models: Sequence[SavedModel]) -> Merged:
    """Merge models of one swarm, and measure how far those that count are apart; see `merge`.

    Raises:
        TrainingError: They are of several swarms, whose average would be meaningless; or a file
            has become unreadable.
    """
    weights = merging_weights(models)
    chosen = [model for model in models if model.id in weights]
    swarms = swarms_of(chosen)
    if len(swarms) > 1:
        named = "; ".join(", ".join(model.id for model in swarm) for swarm in swarms)
        first = " ".join(str(model.path.parent) for model in swarms[0])
        raise TrainingError(
            f"these peers trained in {len(swarms)} swarms, whose models cannot be averaged: "
            f"{named}. Merge each swarm by itself, as in `rumor merge {first} -o one.safetensors`"
        )
    state = merge(models)
    return Merged(
        state=state,
        weights=weights,
        consensus_distance=consensus_distance(chosen),
        digest=digest(state),
    )


def consensus_distance(models: Sequence[SavedModel]) -> float:
    """Return the consensus distance of models, sqrt(mean_i |x_i - mean|^2) / |mean|, unweighted.

    It is that of the tensors in their schema; without one, of all finite floating ones. Raises as
    `merge` does.
    """
    _check_alike(models)
    spread, size, schema = 0.0, 0.0, models[0].schema
    specs = () if schema is None else schema.tensors
    shared = {spec.name for spec in specs if spec.shared}
    with _readers(sorted(models, key=_ID)) as readers:
        for name, _ in models[0].tensors:
            if schema is not None and name not in shared:
                continue
            rows = [read(name) for read in readers]
            if not rows[0].is_floating_point():
                continue
            values = torch.stack(rows).double()
            if schema is None and not values.isfinite().all():
                # Masks of -inf have no distance.
                continue
            mean = values.mean(dim=0)
            spread += float((values - mean).square().sum()) / len(rows)
            size += float(mean.square().sum())
    return sqrt(spread) / sqrt(size) if size > 0 else sqrt(spread)


def digest(state: Mapping[str, Tensor]) -> str:
    """Return a digest of a model's names, shapes, dtypes and bits: 32 hexadecimal digits."""
    hash = blake2b(digest_size=16)
    for name in sorted(state):
        value = state[name].detach().cpu().contiguous()
        hash.update(f"{name} {tuple(value.shape)} {value.dtype}\n".encode())
        hash.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return hash.hexdigest()


def save_model(path: Path, state: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Atomically write, or replace, a file of CPU tensors that share no memory, with a header."""
    try:
        with drafted(path) as draft:
            save_file(dict(state), draft, metadata=dict(metadata))
    except SafetensorError as error:
        raise OSError(f"{path} cannot be written: {error}") from error


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a safetensors file, or raise TrainingError."""
    try:
        file = safe_open(path, "pt")
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"{path} cannot be read as a model: {error}") from error
    with file:
        yield file


@contextmanager
def _readers(models: Sequence[SavedModel]) -> Iterator[list[Callable[[str], Tensor]]]:
    """Yield functions that read a tensor by name, one for each model."""
    with ExitStack() as stack:
        yield [stack.enter_context(_opened(model.path)).get_tensor for model in models]


def _mean(
    name: str,
    readers: Sequence[Callable[[str], Tensor]],
    cuts: Sequence[tuple[slice, Sequence[int]]],
    axes: tuple[int, ...] | None,
) -> Tensor:
    """Average one tensor; *cuts* are slices of it, in memory order, with the models' weights."""
    first = readers[0](name)
    # If no model has weight in a shard, because all have left, each counts the same.
    parts = [(part, *in_floats(w if any(w) else [UNIT] * len(readers))) for part, w in cuts]
    axes = axes or tuple(range(first.dim()))
    total = torch.zeros(first.numel(), dtype=torch.float64, device="cpu")
    alike = True
    for index, read in enumerate(readers):
        value = read(name)
        alike = alike and torch.equal(value, first)
        for part, weights, _ in parts:
            total[part] += value.permute(axes).reshape(-1)[part].double() * weights[index]
    # Frozen tensors, such as masks of -inf, must not change.
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
        for index, pair in enumerate(zip_longest(one.tensors, other.tensors, fillvalue=())):
            ours, theirs = (" ".join(tensor) or "absent" for tensor in pair)
            if ours != theirs:
                raise ConfigError(
                    f"{one.path} and {other.path} hold different models: tensor {index} is "
                    f"{ours} in the first and {theirs} in the second"
                )
        if other.schema != one.schema:
            raise ConfigError(
                f"{one.path} and {other.path} were exchanged in different ways, as in other "
                "shards or memory formats: merge models of one swarm"
            )
