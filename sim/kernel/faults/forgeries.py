"""What Byzantine workers send in place of their models, as functions of honest models.

All functions have one form: a `Sight` of all models at the moment of sending, and a strength, whose
meaning depends on the paper. Vectors are float64, axes ``(number,)``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ....gossip.errors import ConfigError

__all__ = [
    *("FORGERS", "Forge", "Forgery", "Sight", "Vector"),
    *("alie", "alie_z", "dissensus", "drift", "far", "ipm", "nan", "sign_flip"),
]

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sight:
    """Knowledge of a liar when it sends: everything."""

    own: Vector  # its own model, axes ``(number,)``: it trains like the others
    target: Vector  # model of the receiver
    honest: Vector  # models of the target's other honest neighbors, axes ``(neighbor, number)``
    weights: Vector  # weight that the target gives to each of these, axes ``(neighbor,)``
    liars: float  # weight that it gives to all liars together, above 0

    @property
    def good(self) -> Vector:
        """Models of the target and of its honest neighbors, axes ``(peer, number)``."""
        return np.concatenate([self.target[None], self.honest])


Forge = Callable[[Sight, float], Vector]
"""Returns what is sent, given what is seen and the strength of the attack."""


@dataclass(frozen=True, slots=True)
class Forgery:
    """One forged share: how it is made, and from whose models."""

    forge: Forge
    strength: float
    target: int  # row of the receiver
    honest: tuple[int, ...]  # rows of its other honest neighbors
    weights: tuple[float, ...]
    liars: float

    def of(self, own: Vector, target: Vector, honest: Vector) -> Vector:
        """Return the forged vector; see `Sight`."""
        seen = Sight(own, target, honest, np.array(self.weights), self.liars)
        with np.errstate(over="ignore", invalid="ignore"):
            return self.forge(seen, self.strength)


def nan(sight: Sight, strength: float) -> Vector:
    """Return NaN for every number."""
    return np.full_like(sight.own, np.nan)


def far(sight: Sight, strength: float) -> Vector:
    """Move the own model this far away (Euclidean norm), in the same direction for all liars."""
    return sight.own + strength * _direction(sight)


def sign_flip(sight: Sight, strength: float) -> Vector:
    """Return the own model with its sign flipped, times a factor.

    Source: bit flipping in the code of He, Karimireddy and Jaggi 2022.
    """
    return -strength * sight.own


def ipm(sight: Sight, strength: float) -> Vector:
    """``- epsilon mean_j x_j``: a negative inner product with the honest models' mean.

    Source: Xie, Koyejo and Gupta 2020, *Fall of empires*; with models in place of gradients as in
    He, Karimireddy and Jaggi 2022.
    """
    found: Vector = -strength * sight.good.mean(axis=0)
    return found


def alie(sight: Sight, strength: float) -> Vector:
    """``mean_j x_j - z std_j x_j``, elementwise: hidden in the spread of honest models.

    Source: Baruch, Baruch and Goldberg 2019, *A little is enough*; over the target's neighborhood
    as in He, Karimireddy and Jaggi 2022.
    """
    good = sight.good
    std = good.std(axis=0, ddof=1) if len(good) > 1 else np.zeros_like(sight.target)
    found: Vector = good.mean(axis=0) - strength * std
    return found


def alie_z(n: int, liars: int) -> float:
    """Return the z up to which *liars* of n peers hide behind enough honest ones for a majority."""
    honest = n - liars
    part = (honest - (n // 2 + 1 - liars)) / honest
    if not 0 < part < 1:
        raise ConfigError(
            f"alie needs a strength where {liars} of {n} lie: the formula for z is for fewer than "
            "half of them"
        )
    return NormalDist().inv_cdf(part)


def dissensus(sight: Sight, strength: float) -> Vector:
    """``x_i - epsilon sum_j w_j (x_j - x_i) / w_liars``: undoes the pull of honest neighbors.

    Source: He, Karimireddy and Jaggi 2022, *Byzantine-robust decentralized learning via
    ClippedGossip*, equation of the dissensus attack.
    """
    pull = sight.weights @ (sight.honest - sight.target)
    return sight.target - strength * pull / sight.liars


def drift(sight: Sight, strength: float) -> Vector:
    """Move the target's model by its median neighbor's distance, always to the same side."""
    # No statistic of distances detects that, and it never averages out.
    away = np.sqrt(np.square(sight.honest - sight.target).sum(axis=1))
    typical = float(np.median(away)) if len(away) else 0.0
    return sight.target + strength * typical * _direction(sight)


def _direction(sight: Sight) -> Vector:
    # One direction for all Byzantine workers, at all times.
    return np.full_like(sight.own, 1 / sqrt(len(sight.own)))


FORGERS: Mapping[str, Forge] = MappingProxyType(
    {
        "nan": nan,
        "far": far,
        "sign-flip": sign_flip,
        "ipm": ipm,
        "alie": alie,
        "dissensus": dissensus,
        "drift": drift,
    }
)
"""Forgers by kind of attack."""
