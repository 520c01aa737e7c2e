"""Graphs of powers: static ones, and schedules of one or a few pushes each round."""

from .cayley import Cayley, Step, circulant

__all__ = ["exponential", "hypercube_matching", "one_peer_exponential", "p_peer_exponential"]


def exponential(n: int) -> Cayley:
    """The nodes 1, 2, 4, ... places ahead on a cycle: ceil(log2 n) of them, nearest first.

    Source: Ying, Yuan, Chen, Hu, Pan and Yin, NeurIPS 2021, the static exponential graph.
    """
    return circulant(n, [_powers(n, 2)])


def one_peer_exponential(n: int) -> Cayley:
    """One of the exponential graph's pushes each round, in turn; half is kept.

    For n = 2^k any k rounds in a row give the exact average.

    Source: Assran, Loizou, Ballas and Rabbat, ICML 2019; Ying et al., NeurIPS 2021.
    """
    return p_peer_exponential(n, 1)


def p_peer_exponential(n: int, p: int) -> Cayley:
    """In round t push to the nodes j (p+1)^t places ahead, j = 1..p; shares are even.

    For n = (p+1)^k any k rounds in a row give the exact average.

    Args:
        n: Number of nodes.
        p: Pushes of a round, at least 1; fewer in the last round where n is no power of p + 1.

    Source: Ying et al., NeurIPS 2021, and Takezawa et al., NeurIPS 2023, on more peers a round.
    """
    rounds = [
        [shift for j in range(1, p + 1) if (shift := j * power) < n] for power in _powers(n, p + 1)
    ]
    return circulant(n, rounds or [[]])


def hypercube_matching(dimensions: int) -> Cayley:
    """Node i pairs up with i XOR 2^t in round t: the exact average after *dimensions* rounds."""
    axes = reversed(range(dimensions))
    rounds = tuple((Step(1, 0.5, axis),) for axis in axes)
    return Cayley(shape=(2,) * dimensions, rounds=rounds or ((),), directed=False)


def _powers(n: int, base: int) -> list[int]:
    powers, power = [], 1
    while power < n:
        powers.append(power)
        power *= base
    return powers
