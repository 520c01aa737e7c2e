"""Which samples each peer trains on."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...gossip.errors import ConfigError
from ...gossip.rules.plugin import function_of, name_of, what_was_raised, where_it_was_raised
from ...gossip.specs.parameter import Parameter
from ...gossip.specs.spec import make
from ...gossip.types import stream
from ..storage.files import read_json
from .live_partition import Passes

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "PARTITIONS",
    "IndexLists",
    "Partition",
    "PartitionFunction",
    "Split",
    "dirichlet",
    "needs_targets",
    "partition_as_json",
    "partition_file",
    "partition_module",
    "partition_name",
    "shards",
    "split",
]

Indices = NDArray[np.int64]

IndexLists: TypeAlias = Sequence[Sequence[int] | NDArray[np.integer]] | NDArray[np.integer]
"""For each peer, the indices of its samples."""

PartitionFunction: TypeAlias = Callable[[Any, int, int], IndexLists]
"""The task's targets as an array (None where it does not tell them), the number of peers and the
run's seed to index lists."""

Partition: TypeAlias = str | IndexLists | PartitionFunction
"""Who trains on which samples, see `split`."""

_ALSO = (
    ", or a .json file of index lists, or module:function, a function of yours that returns them"
)

# Targets that are real numbers are binned by quantile before Dirichlet proportions are drawn.
N_BINS = 10


def split(
    partition: Partition,
    targets: "NDArray[Any] | Tensor | None",
    n: int,
    seed: int,
    *,
    n_samples: int | None = None,
) -> list[Indices]:
    """Say which samples each of *n* peers trains on.

    ``shared``: every peer has all of them. The next three give each sample to exactly one peer,
    sizes as equal as can be, nobody empty. ``iid``: at random. ``dirichlet:ALPHA``: a peer's
    proportions of the classes are drawn from Dirichlet(ALPHA * proportions in all); the smaller
    ALPHA, the fewer classes at a peer. ``shards:K``: sorted by target, cut into n * K
    pieces, K of them dealt to each peer. ``package``: all samples of one target, such as a package
    of the task ``code``, go to the same peer, sizes as equal as that allows. ``live`` and
    ``live:PASSES`` are dealt while training goes on, see `rumor.train.tasks.live_partition`: until
    then every peer has all samples.

    Where targets are real numbers, ``shards`` sorts by value, and ``dirichlet`` takes the
    tenths of the samples, smallest targets to largest, for classes.

    Lists say it outright, one for each peer: as they are, from a JSON file, or returned by a
    function, which ``module:function`` names. Peers may have samples in common, and a sample may be
    nobody's; one that stands twice in a list is taken twice in each pass.

    Args:
        partition: One of these forms.
        targets: First axis ``n_samples``. ``dirichlet`` and ``shards`` need one value each.
        n: How many peers, >= 1.
        seed: The run's seed; the same arguments give the same split.
        n_samples: Of the data; as many as there are targets unless given.

    Returns:
        For each peer the indices of its samples: int64, axes ``(n_own,)``; sorted, unless they
        were listed.

    Raises:
        ConfigError: The partition is not one of the forms, there are too few samples for it, or a
            list is empty or has what is no sample (says whose).

    Source: Hsu, Qi and Brown 2019, section 3 (dirichlet); McMahan et al., AISTATS 2017,
    section 3 (shards).

    >>> [part.tolist() for part in split("shards:1", np.array([7, 3, 7, 3]), 2, seed=0)]
    [[0, 2], [1, 3]]
    >>> [part.tolist() for part in split([[3, 0], [1, 0]], np.array([7, 3, 7, 3]), 2, seed=0)]
    [[3, 0], [1, 0]]
    """
    if n < 1:
        raise ConfigError(f"the number of peers is {n}: it must be 1 or more")
    if n_samples is None:
        n_samples = 0 if targets is None else len(targets)
    lists = _lists(partition, targets, n, seed)
    if lists is not None:
        return _checked(partition_name(partition), lists, n, n_samples)
    assert isinstance(partition, str)
    return _drawn(partition, targets, n, seed, n_samples)


def _drawn(
    spec: str, targets: "NDArray[Any] | Tensor | None", n: int, seed: int, n_samples: int
) -> list[Indices]:
    """The parts of one of the forms that have a name."""
    form = make("partition", spec, PARTITIONS, _ALSO)
    if form.draw is None:
        everything = np.arange(n_samples)
        everything.flags.writeable = False
        # One array for all: ten thousand workers would have a hundred megabytes of them.
        return [everything] * n
    if n * form.pieces > n_samples:
        raise ConfigError(
            f"partition {spec!r} cuts {n_samples} samples into {n * form.pieces} pieces for {n} "
            "peers: use fewer, or partition shared"
        )
    values = _values(spec, targets) if form.by_targets else np.empty(n_samples)
    parts = form.draw(values, n, stream(seed, "swarm", "partition"))
    return [np.sort(part) for part in parts]


def needs_targets(partition: Partition) -> bool:
    """Whether a partition goes by the samples' targets."""
    if not isinstance(partition, str) or partition.partition(":")[0] not in PARTITIONS:
        return False
    return make("partition", partition, PARTITIONS).by_targets


def partition_file(partition: Partition) -> Path | None:
    """The file that a partition is read from; None where it is none."""
    is_file = isinstance(partition, str) and partition.endswith(".json")
    return Path(str(partition)) if is_file else None


def partition_module(partition: Partition) -> str | None:
    """The module of the function that a spec names; None where it names none.

    >>> partition_module("mine.parts:by_writer"), partition_module("dirichlet:0.1")
    ('mine.parts', None)
    """
    if not isinstance(partition, str) or partition_file(partition) is not None:
        return None
    module, _, attribute = partition.partition(":")
    return module if module not in PARTITIONS and attribute.isidentifier() else None


def partition_name(partition: Partition) -> str:
    """What to call a partition in tables and files; lists of other indices have other names.

    >>> partition_name("iid"), partition_name([[0, 1], [2]])
    ('iid', 'lists:4dbdf5f6')
    """
    if isinstance(partition, str):
        return partition
    if callable(partition):
        return name_of(partition)
    told = json.dumps(partition_as_json(partition)).encode()
    return f"lists:{blake2b(told, digest_size=4).hexdigest()}"


def partition_as_json(partition: Partition) -> str | list[list[int]]:
    """A partition as files have it.

    Raises:
        ConfigError: It is a function, of which only the name can be written down.
    """
    if callable(partition):
        raise ConfigError(
            f"partition {partition_name(partition)} is a function, which cannot be written down: "
            "give its name as a text, module:function, or index lists"
        )
    if isinstance(partition, str):
        return partition
    found: list[list[int]] = json.loads(json.dumps(list(partition), default=_as_json))
    return found


def _as_json(value: Any) -> Any:
    """What JSON has for arrays, their integers and ranges."""
    if isinstance(value, np.ndarray | np.integer):
        return value.tolist()
    return list(value) if isinstance(value, Sequence) else str(value)


def _lists(
    partition: Partition, targets: "NDArray[Any] | Tensor | None", n: int, seed: int
) -> IndexLists | None:
    """The lists that a partition stands for; None where it is of a form that has a name."""
    path, module = partition_file(partition), partition_module(partition)
    if path is not None:
        return _read(path)
    if module is not None:
        partition = function_of(str(partition), "partition")
    if isinstance(partition, str):
        return None
    if not callable(partition):
        return partition
    try:
        found = partition(_array(targets), n, seed)
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"partition {partition_name(partition)} raised {what_was_raised(error)}\n"
            f"at {where_it_was_raised(error)}"
        ) from error
    if isinstance(found, str) or not hasattr(found, "__len__"):
        raise ConfigError(
            f"partition {partition_name(partition)} returned a {type(found).__name__}: it must "
            "return index lists, one for each peer"
        )
    return found


def _read(path: Path) -> IndexLists:
    try:
        found = read_json(path)
    except OSError as error:
        raise ConfigError(f"partition {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"partition {path} is no JSON: {error}") from error
    if not isinstance(found, list):
        raise ConfigError(f"partition {path} must hold a list of index lists, one for each peer")
    return found


def _checked(name: str, lists: IndexLists, n: int, n_samples: int) -> list[Indices]:
    """What was listed, as arrays of indices that there are."""
    if len(lists) != n:
        several = "1 list" if len(lists) == 1 else f"{len(lists)} lists"
        raise ConfigError(
            f"partition {name} has {several}, and the data are split among {n}: it must have one "
            "for each"
        )
    return [_checked_part(name, peer, part, n_samples) for peer, part in enumerate(lists)]


def _checked_part(name: str, peer: int, part: Any, n_samples: int) -> Indices:
    what = f"partition {name}: the part of peer {peer}"
    try:
        found = np.asarray(part)
    except ValueError:
        found = np.empty((0, 0))
    if found.size == 0 and found.ndim == 1:
        raise ConfigError(f"{what} is empty: it must have at least one sample")
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ConfigError(f"{what} must be a list of integers, indices of samples")
    wrong = found[(found < 0) | (found >= n_samples)]
    if len(wrong):
        raise ConfigError(
            f"{what} has index {wrong[0]}: there are {n_samples} samples, 0 to {n_samples - 1}"
        )
    return found.astype(np.int64)


@dataclass(frozen=True, slots=True)
class Split:
    """How samples are split."""

    draw: Callable[[NDArray[Any], int, np.random.Generator], list[Indices]] | None = None
    """Targets, number of peers and random numbers to each peer's samples; None where everybody has
    all."""

    by_targets: bool = False
    """Whether targets matter; where not, they may be any numbers."""

    pieces: int = 1
    """Into how many pieces samples are cut for each peer."""


def dirichlet(
    alpha: Annotated[
        float, Parameter("the smaller, the fewer classes at a peer.", above=0, is_bare=True)
    ],
) -> Split:
    """Classes in proportions of each peer's own."""
    return Split(
        lambda values, n, rng: _dirichlet(_classes(values), n, alpha, rng), by_targets=True
    )


def shards(
    k: Annotated[int, Parameter("pieces for each peer.", low=1, is_bare=True)],
) -> Split:
    """Sorted by target, K pieces for each peer."""
    return Split(lambda values, n, rng: _shards(values, n, k, rng), by_targets=True, pieces=k)


def _live(passes: Passes = 1) -> Split:
    return Split()


def _iid(values: NDArray[Any], n: int, rng: np.random.Generator) -> list[Indices]:
    return np.array_split(rng.permutation(len(values)), n)


PARTITIONS: Mapping[str, Callable[..., Split]] = MappingProxyType(
    {
        "shared": lambda: Split(),
        "iid": lambda: Split(_iid),
        "dirichlet": dirichlet,
        "shards": shards,
        "package": lambda: Split(_whole, by_targets=True),
        "live": _live,
    }
)
"""All partitions, by the name that people type."""


def _values(spec: str, targets: "NDArray[Any] | Tensor | None") -> NDArray[Any]:
    """One number per sample, or a refusal where the targets have more."""
    if targets is None:
        raise ConfigError(f"partition {spec!r} needs one target per sample: use iid or shared")
    values: NDArray[Any] = _array(targets)
    if values.size != len(values):
        raise ConfigError(
            f"partition {spec!r} needs one target per sample, and these have shape "
            f"{values.shape}: use iid or shared"
        )
    return values.reshape(-1)


def _array(targets: Any) -> Any:
    """Targets as numpy has them; it has no bfloat16."""
    # Imported late: settings are read without torch.
    from torch import Tensor

    if not isinstance(targets, Tensor):
        return targets
    targets = targets.detach().cpu()
    return (targets.double() if targets.is_floating_point() else targets).numpy()


def _classes(values: NDArray[Any]) -> Indices:
    """Number the classes from 0; real numbers fall into bins of about equal size."""
    if values.dtype.kind == "f":
        edges = np.quantile(values, np.linspace(0, 1, N_BINS + 1)[1:-1])
        values = np.searchsorted(edges, values)
    _, classes = np.unique(values, return_inverse=True)
    return classes


def _shards(values: NDArray[Any], n: int, n_each: int, rng: np.random.Generator) -> list[Indices]:
    # Shuffled first: which of a class's samples share a shard is no matter of their order on file.
    shuffled = rng.permutation(len(values))
    by_value = shuffled[np.argsort(values[shuffled], kind="stable")]
    shards = np.array_split(by_value, n * n_each)
    hands = rng.permutation(n * n_each).reshape(n, n_each)
    return [np.concatenate([shards[shard] for shard in hand]) for hand in hands]


def _whole(values: NDArray[Any], n: int, rng: np.random.Generator) -> list[Indices]:
    """Classes dealt out whole: the largest that is left to the peer that has the fewest samples."""
    classes = _classes(values)
    sizes = np.bincount(classes)
    if len(sizes) < n:
        raise ConfigError(
            f"partition 'package' gives each peer packages of its own, and there are {len(sizes)} "
            f"for {n} peers: use fewer peers, or another partition"
        )
    order = np.argsort(-sizes, kind="stable")
    filled, owner = np.zeros(n, np.int64), np.empty(len(sizes), np.int64)
    for label in order:
        owner[label] = np.argmin(filled)
        filled[owner[label]] += sizes[label]
    return [np.flatnonzero(owner[classes] == hand) for hand in rng.permutation(n)]


def _dirichlet(classes: Indices, n: int, alpha: float, rng: np.random.Generator) -> list[Indices]:
    in_all = np.bincount(classes)
    wanted = rng.dirichlet(alpha * in_all / in_all.sum(), size=n)
    sizes = np.array([len(part) for part in np.array_split(classes, n)])
    counts = _deal(sizes, in_all, wanted, rng)
    parts: list[list[Indices]] = [[] for _ in range(n)]
    for label, ends in enumerate(np.cumsum(counts, axis=0).T):
        samples = rng.permutation(np.flatnonzero(classes == label))
        for part, piece in zip(parts, np.split(samples, ends[:-1]), strict=True):
            part.append(piece)
    return [np.concatenate(part) for part in parts]


def _deal(
    sizes: Indices, in_all: Indices, wanted: NDArray[np.float64], rng: np.random.Generator
) -> Indices:
    """Decide how many samples of each class each peer gets, none left over.

    All peers ask at once for what they still need, each by its own proportions among the
    classes that are left. A class asked for too often is dealt to its askers at random and is
    then used up, so that there are no more rounds than classes. (Served one after another, the
    last peers would get what the others left.)

    Args:
        sizes: Samples each peer gets, axes ``(peer,)``.
        in_all: Samples there are, axes ``(class,)``, the same in sum.
        wanted: Each peer's proportions, axes ``(peer, class)``.
        rng: What the draws come from.

    Returns:
        Samples of each class for each peer, axes ``(peer, class)``.
    """
    need, left, counts = sizes.copy(), in_all.copy(), np.zeros(wanted.shape, np.int64)
    while need.any():
        odds = wanted * (left > 0)
        # Nothing that such a peer wanted is left: it takes what there is.
        odds[odds.sum(axis=1) <= 0] = left
        asked = rng.multinomial(need, odds / odds.sum(axis=1, keepdims=True))
        for label in np.flatnonzero(asked.sum(axis=0) > left):
            asked[:, label] = rng.multivariate_hypergeometric(asked[:, label], left[label])
        counts += asked
        need -= asked.sum(axis=1)
        left -= asked.sum(axis=0)
    return counts
