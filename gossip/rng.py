"""Random streams by name: who draws what never depends on who drew before."""

from hashlib import blake2b

import numpy as np

__all__ = ["stream"]


def stream(seed: int, peer: str, purpose: str) -> np.random.Generator:
    """Open the random stream of one *peer* for one *purpose*.

    Streams of different names are independent, so that adding a draw to one shifts no other.

    Args:
        seed: The run's seed.
        peer: The peer's id, or a fixed word for what all peers share.
        purpose: What the numbers are for, such as ``"rule"`` or ``"data:3"``.

    Returns:
        A generator at the start of its stream, the same in every process.

    Source: Salmon et al., SC 2011 (Philox, a counter-based generator).

    >>> stream(0, "a", "rule").integers(100) == stream(0, "a", "rule").integers(100)
    np.True_
    """
    name = f"{seed}\0{peer}\0{purpose}".encode()
    key = int.from_bytes(blake2b(name, digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=key))
