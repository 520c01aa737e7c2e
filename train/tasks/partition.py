"""Which samples each peer trains on."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ...gossip.errors import ConfigError
from ...gossip.rng import stream

__all__ = ["FORMS", "partition_needs_targets", "split"]

Indices = NDArray[np.int64]

FORMS = "shared, iid, dirichlet:ALPHA (ALPHA > 0) or shards:K (K >= 1)"
"""The valid specs, for messages."""

# Targets that are real numbers are binned by quantile before Dirichlet proportions are drawn.
N_BINS = 10


def split(spec: str, targets: NDArray[Any] | Tensor, n: int, seed: int) -> list[Indices]:
    """Say which samples each of *n* peers trains on.

    ``shared``: every peer has all of them. The others give each sample to exactly one peer,
    sizes as equal as can be, nobody empty. ``iid``: at random. ``dirichlet:ALPHA``: a peer's
    proportions of the classes are drawn from Dirichlet(ALPHA * proportions in all); the smaller
    ALPHA, the fewer classes at a peer. ``shards:K``: sorted by target, cut into n * K
    pieces, K of them dealt to each peer.

    Where targets are real numbers, ``shards`` sorts by value, and ``dirichlet`` takes the
    tenths of the samples, smallest targets to largest, for classes.

    Args:
        spec: One of the four forms above.
        targets: First axis ``n_samples``. ``dirichlet`` and ``shards`` need one value each.
        n: How many peers, >= 1.
        seed: The run's seed; the same arguments give the same split.

    Returns:
        For each peer the indices of its samples: int64, sorted, axes ``(n_own,)``.

    Raises:
        ConfigError: The spec is not one of the forms, or there are too few samples for it.

    Source: Hsu, Qi and Brown 2019, section 3 (dirichlet); McMahan et al., AISTATS 2017,
    section 3 (shards).

    >>> [part.tolist() for part in split("shards:1", np.array([7, 3, 7, 3]), 2, seed=0)]
    [[0, 2], [1, 3]]
    """
    kind, value = _parse(spec)
    n_samples, n_pieces = len(targets), n * int(value) if kind == "shards" else n
    if n < 1:
        raise ConfigError(f"the number of peers is {n}: it must be 1 or more")
    if kind == "shared":
        everything = np.arange(n_samples)
        everything.flags.writeable = False
        # One array for all: ten thousand workers would have a hundred megabytes of them.
        return [everything] * n
    if n_pieces > n_samples:
        raise ConfigError(
            f"partition {spec!r} cuts {n_samples} samples into {n_pieces} pieces for {n} peers: "
            "use fewer, or partition shared"
        )
    rng = stream(seed, "swarm", "partition")
    if kind == "iid":
        parts = np.array_split(rng.permutation(n_samples), n)
    elif kind == "shards":
        parts = _shards(_values(spec, targets), n, int(value), rng)
    else:
        parts = _dirichlet(_classes(_values(spec, targets)), n, value, rng)
    return [np.sort(part) for part in parts]


def partition_needs_targets(spec: str) -> bool:
    """Whether a partition goes by the samples' targets.

    Raises:
        ConfigError: The spec is not one of the forms.
    """
    return _parse(spec)[0] in ("dirichlet", "shards")


def _parse(spec: str) -> tuple[str, float]:
    kind, colon, text = spec.partition(":")
    if kind in ("shared", "iid") and not colon:
        return kind, math.nan
    try:
        value = float({"dirichlet": float, "shards": int}[kind](text))
    except (KeyError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"partition {spec!r} is not valid: it must be {FORMS}")
    return kind, value


def _values(spec: str, targets: NDArray[Any] | Tensor) -> NDArray[Any]:
    """One number per sample, or a refusal where the targets have more."""
    if isinstance(targets, Tensor):
        targets = targets.detach().cpu()
        # numpy has no bfloat16.
        targets = (targets.double() if targets.is_floating_point() else targets).numpy()
    if targets.size != len(targets):
        raise ConfigError(
            f"partition {spec!r} needs one target per sample, and these have shape "
            f"{targets.shape}: use iid or shared"
        )
    return targets.reshape(-1)


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
