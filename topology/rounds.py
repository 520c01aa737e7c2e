"""Families that draw a new graph each round."""

import numpy as np

from .cayley import Cayley, circulant
from .draws import blend, distinct
from .lattices import complete, undirected
from .schedule import Fixed, Schedule
from .shuffled import LocalEpidemic, Shuffled

__all__ = ["epidemic", "epidemic_local", "random_groups", "random_matching"]

# A label: the word that shuffles the nodes draws the shifts as well.
SHIFT = 1


def random_matching(n: int, seed: int) -> Shuffled:
    """All nodes in random pairs, half and half; with an odd n one sits out.

    Source: Boyd, Ghosh, Prabhakar and Shah, IEEE Transactions on Information Theory 2006, with
    all pairs at once.
    """
    return random_groups(n, 2, seed, name="random-matching", sit_out=True)


def random_groups(
    n: int, m: int, seed: int, *, name: str = "random-groups", sit_out: bool = False
) -> Shuffled:
    """All nodes in random groups of about m, which average exactly.

    Args:
        n: Number of nodes.
        m: Size of a group, at least 2. The ceil(n / m) groups differ by one node at most.
        seed: Of the draws.
        name: Of the stream of draws.
        sit_out: Leave over who does not fill a group, instead of making groups smaller.

    Source: Ryabinin, Gorbunov, Plokhotnyuk and Pekhimenko, NeurIPS 2021 (Moshpit), with
    random groups of about equal size.
    """
    count = n // m if sit_out else -(-n // m)
    seats = np.arange(count * m) if sit_out else np.arange(n)
    group_of = seats // m if sit_out else seats * count // n
    links = _cliques(n, group_of)
    return Shuffled(n=n, seed=seed, name=name, links=lambda _: links)


def epidemic(n: int, s: int, seed: int) -> Shuffled:
    """Everybody pushes to s nodes and hears from s: a random regular digraph each round.

    A random circulant under a random permutation, so that any s others are equally likely.

    Source: de Vos, Farhadkhani, Guerraoui, Kermarrec, Pires and Sharma, NeurIPS 2023, EL-Oracle.
    """
    s = min(s, n - 1)

    def draw(word: int) -> Schedule:
        words = [blend(word, SHIFT, number) for number in range(s)]
        shifts = [int(shift) + 1 for shift in distinct(words, n - 1)[0]] if s else []
        return circulant(n, [shifts])

    return Shuffled(n=n, seed=seed, name="epidemic", links=draw, directed=s < n - 1)


def epidemic_local(n: int, s: int, seed: int) -> LocalEpidemic:
    """Everybody draws s targets alone; a receiver averages whatever came.

    Source: de Vos et al., NeurIPS 2023, EL-Local.
    """
    return LocalEpidemic(n=n, seed=seed, s=min(s, n - 1))


def _cliques(n: int, group_of: np.ndarray) -> Fixed | Cayley:
    if n <= 1:
        return complete(n)
    starts = np.flatnonzero(np.diff(group_of, prepend=-1))
    sizes = np.diff(starts, append=len(group_of))
    left, right = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    # Two sizes at most.
    for size in np.unique(sizes):
        low, high = np.triu_indices(size, 1)
        first = starts[sizes == size]
        left.append(np.add.outer(first, low).ravel())
        right.append(np.add.outer(first, high).ravel())
    return undirected(n, np.concatenate(left), np.concatenate(right))
