"""Partitions: the samples that each peer trains on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ...gossip.errors import ConfigError
from ...gossip.rules.plugin import as_raised, function_of
from ...gossip.specs.parameter import Parameter
from ...gossip.specs.spec import make
from ...gossip.types import stream

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    *("PARTITIONS", "Split", "dirichlet", "partition_module", "shards", "split"),
]

Indices = NDArray[np.int64]

# Real-valued targets are binned by quantile before Dirichlet proportions are drawn.
N_BINS = 10


def split(
    partition: str,
    targets: "NDArray[Any] | Tensor | None",
    n: int,
    seed: int,
    *,
    n_samples: int | None = None,
) -> list[Indices]:
    """Assign samples to *n* peers.

    ``shared``: every peer has all samples. The next three give each sample to exactly one peer,
    with sizes as equal as possible and none empty. ``iid``: at random. ``dirichlet:ALPHA``: a
    peer's proportions of the classes are drawn from Dirichlet(ALPHA * overall proportions); the
    smaller ALPHA, the fewer classes per peer. ``shards:K``: samples are sorted by target and cut
    into n * K pieces, K for each peer.

    If targets are real numbers, ``shards`` sorts by value, and ``dirichlet`` uses the deciles of
    the targets as classes.

    ``module:function`` calls a function with the targets as an array (None without targets), the
    number of peers and the seed; it returns a list of indices for each peer. Peers may share
    samples, and samples may be left out; a sample listed twice is used twice in each pass.

    Args:
        partition: One of these forms.
        targets: First axis ``n_samples``. ``dirichlet`` and ``shards`` need one value each.
        n: Number of peers.
        seed: The run's seed.
        n_samples: Number of samples; default: the number of targets.

    Returns:
        The indices of each peer's samples: int64, axes ``(n_own,)``; sorted, except for those from
        a function.

    Raises:
        ConfigError: The partition is of no known form, there are too few samples for it, or a list
            is empty or has an invalid index (the message names the peer).

    Source: Hsu, Qi and Brown 2019, section 3 (dirichlet); McMahan et al., AISTATS 2017,
    section 3 (shards).

    >>> [part.tolist() for part in split("shards:1", np.array([7, 3, 7, 3]), 2, seed=0)]
    [[0, 2], [1, 3]]
    """
    if n < 1:
        raise ConfigError(f"the number of peers is {n}: it must be 1 or more")
    if n_samples is None:
        n_samples = 0 if targets is None else len(targets)
    if partition_module(partition) is not None:
        return _listed(partition, targets, n, seed, n_samples)
    form = make(
        "partition",
        partition,
        PARTITIONS,
        ", or module:function, a function of yours that returns lists",
    )
    if form.draw is None:
        everything = np.arange(n_samples)
        everything.flags.writeable = False
        # One array for all: separate arrays for ten thousand workers would take a hundred
        # megabytes.
        return [everything] * n
    if n * form.pieces > n_samples:
        raise ConfigError(
            f"partition {partition!r} cuts {n_samples} samples into {n * form.pieces} pieces for "
            f"{n} peers: use fewer, or partition shared"
        )
    values = _values(partition, targets) if form.by_targets else np.empty(n_samples)
    parts = form.draw(values, n, stream(seed, "swarm", "partition"))
    return [np.sort(part) for part in parts]


def partition_module(partition: str) -> str | None:
    """Return the module of the function that a spec names, or None.

    >>> partition_module("mine.parts:by_writer"), partition_module("dirichlet:0.1")
    ('mine.parts', None)
    """
    module, _, attribute = partition.partition(":")
    return module if module not in PARTITIONS and attribute.isidentifier() else None


def _listed(
    partition: str, targets: "NDArray[Any] | Tensor | None", n: int, seed: int, n_samples: int
) -> list[Indices]:
    function = function_of(partition, "partition")
    try:
        lists = function(_array(targets), n, seed)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"partition {partition} raised {as_raised(error)}") from error
    if isinstance(lists, str) or not hasattr(lists, "__len__") or len(lists) != n:
        size = f" of {len(lists)}" if hasattr(lists, "__len__") else ""
        raise ConfigError(
            f"partition {partition} returned a {type(lists).__name__}{size}: it must return a list "
            f"of indices for each of {n} peers"
        )
    return [_checked(partition, peer, part, n_samples) for peer, part in enumerate(lists)]


def _checked(name: str, peer: int, part: Any, n_samples: int) -> Indices:
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
    """A way to split samples."""

    draw: Callable[[NDArray[Any], int, np.random.Generator], list[Indices]] | None = None
    """Returns each peer's samples from targets and the number of peers; None for all samples."""

    by_targets: bool = False
    """True if targets matter; otherwise they may be any numbers."""

    pieces: int = 1
    """Number of pieces per peer into which samples are cut."""


def dirichlet(
    alpha: Annotated[
        float, Parameter("the smaller, the fewer classes at a peer.", above=0, is_bare=True)
    ],
) -> Split:
    """Each peer has its own proportions of the classes."""
    return Split(
        lambda values, n, rng: _dirichlet(_classes(values), n, alpha, rng), by_targets=True
    )


def shards(
    k: Annotated[int, Parameter("pieces for each peer.", low=1, is_bare=True)],
) -> Split:
    """Samples sorted by target, K pieces for each peer."""
    return Split(lambda values, n, rng: _shards(values, n, k, rng), by_targets=True, pieces=k)


def _iid(values: NDArray[Any], n: int, rng: np.random.Generator) -> list[Indices]:
    return np.array_split(rng.permutation(len(values)), n)


PARTITIONS: Mapping[str, Callable[..., Split]] = MappingProxyType(
    {
        "shared": lambda: Split(),
        "iid": lambda: Split(_iid),
        "dirichlet": dirichlet,
        "shards": shards,
    }
)
"""All partitions, by the name that users type."""


def _values(spec: str, targets: "NDArray[Any] | Tensor | None") -> NDArray[Any]:
    """Return one number per sample, or raise if targets have more."""
    if targets is None:
        raise ConfigError(
            f"partition {spec!r} needs one target per sample, and there are none: give the task "
            "targets, or use iid or shared"
        )
    values: NDArray[Any] = _array(targets)
    if values.size != len(values):
        raise ConfigError(
            f"partition {spec!r} needs one target per sample, and these have shape "
            f"{values.shape}: use iid or shared"
        )
    return values.reshape(-1)


def _array(targets: Any) -> Any:
    # Imported late, because settings are read without torch.
    from torch import Tensor

    if not isinstance(targets, Tensor):
        return targets
    targets = targets.detach().cpu()
    # Numpy lacks bfloat16.
    return (targets.double() if targets.is_floating_point() else targets).numpy()


def _classes(values: NDArray[Any]) -> Indices:
    """Number the classes from 0."""
    if values.dtype.kind == "f":
        edges = np.quantile(values, np.linspace(0, 1, N_BINS + 1)[1:-1])
        values = np.searchsorted(edges, values)
    _, classes = np.unique(values, return_inverse=True)
    return classes


def _shards(values: NDArray[Any], n: int, n_each: int, rng: np.random.Generator) -> list[Indices]:
    # Shuffle first, so that the order on file does not decide which samples of a class share a
    # shard.
    shuffled = rng.permutation(len(values))
    by_value = shuffled[np.argsort(values[shuffled], kind="stable")]
    shards = np.array_split(by_value, n * n_each)
    hands = rng.permutation(n * n_each).reshape(n, n_each)
    return [np.concatenate([shards[shard] for shard in hand]) for hand in hands]


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
    """Decide how many samples of each class each peer gets, with none left over.

    Args:
        sizes: Samples per peer, axes ``(peer,)``.
        in_all: Samples per class, axes ``(class,)``, with the same sum.
        wanted: Each peer's proportions, axes ``(peer, class)``.

    Returns:
        Samples of each class for each peer, axes ``(peer, class)``.
    """
    need, left, counts = sizes.copy(), in_all.copy(), np.zeros(wanted.shape, np.int64)
    # Peers request at the same time, since the last of a queue would get the leftovers. A class
    # with too many requests is divided at random and used up: there are as many rounds as classes.
    while need.any():
        odds = wanted * (left > 0)
        # A peer whose classes are all used up takes from the remaining ones.
        odds[odds.sum(axis=1) <= 0] = left
        asked = rng.multinomial(need, odds / odds.sum(axis=1, keepdims=True))
        for label in np.flatnonzero(asked.sum(axis=0) > left):
            asked[:, label] = rng.multivariate_hypergeometric(asked[:, label], left[label])
        counts += asked
        need -= asked.sum(axis=1)
        left -= asked.sum(axis=0)
    return counts
