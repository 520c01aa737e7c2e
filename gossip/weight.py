"""The push-sum weight, counted in integers so that "nothing is lost" is an equality."""

__all__ = ["ONE", "WEIGHT_MAX", "WEIGHT_MIN", "founders", "half", "mixing_fraction"]

ONE = 2**40
"""What a founder brings, in units."""

WEIGHT_MIN = 2**12
"""Below this a peer skips its pushes, so that halves stay halves to a few thousandths.

Not much more: each crash takes its peer's weight with it for good, and a swarm in which peers are
killed all the time goes on for as many halvings of the total as lie between this and `ONE`."""

WEIGHT_MAX = 2**61
"""More than two million founders: whoever offers more lies, and it would not fit into a message."""


def half(weight: int) -> int:
    """Units that a GoSGD push gives away of *weight* units.

    >>> half(5)
    2
    """
    return weight // 2


def founders(units: int) -> float:
    """Express *units* in founders, the way people read weights.

    >>> founders(3 * ONE // 2)
    1.5
    """
    return units / ONE


def mixing_fraction(own: int, accepted: int) -> float:
    """Part of the mixture that a share makes up: ``w_s / (w_s + w_r)``.

    Args:
        own: What the receiver held before, in units.
        accepted: What it accepts of the share, in units; not both may be 0.

    Returns:
        The correctly rounded quotient, in [0, 1]; 1 for a newcomer, who holds nothing.

    Source: Blot et al. 2016, algorithm 1, ProcessMessages.

    >>> mixing_fraction(0, ONE), mixing_fraction(ONE, ONE)
    (1.0, 0.5)
    """
    return accepted / (own + accepted)
