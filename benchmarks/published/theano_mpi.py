"""Theano-MPI's seconds of communication on 2, 4 and 8 cards, predicted from one network's.

A ring all-reduce of M bytes over n cards sends 2 (n - 1) / n M bytes over each card's link, and
costs a fixed time per iteration where a model has many layers, whose arrays go one by one. Three
unknowns, the rate inside a socket, that between sockets and the fixed time, are fitted to the three
cells of one model; the twelve of the others are predicted.

Source: Ma, Mao and Taylor 2016, and the table in their repository: seconds per 5,120 images.
"""

from dataclasses import dataclass
from typing import Final

from ..results import Result, Row

__all__ = ["reproduce_theano_mpi"]

_IMAGES: Final = 5120
_CARDS: Final = (2, 4, 8)
_PER_SOCKET: Final = 4


@dataclass(frozen=True, slots=True)
class _Model:
    """A network, and its published seconds of communication.

    Args:
        name: With the batch of a card.
        parameters: Trained numbers, float32, millions.
        batch: Images of a card and iteration.
        deep: Whether its arrays are many and small.
        seconds: On 2, 4 and 8 cards.
    """

    name: str
    parameters: float
    batch: int
    deep: bool
    seconds: tuple[float, float, float]

    def iteration_s(self, cards: int) -> float:
        """Published seconds of one iteration."""
        return self.seconds[_CARDS.index(cards)] * self.batch * cards / _IMAGES

    def sent_bytes(self, cards: int) -> float:
        """Over the link of each card, in one iteration."""
        return 2 * (cards - 1) / cards * 4e6 * self.parameters


_FITTED: Final = _Model("ResNet50-64", 25.56, 64, True, (0.81, 0.56, 0.57))

_PREDICTED: Final = (
    _Model("AlexNet-128", 60.97, 128, False, (0.78, 0.54, 0.61)),
    _Model("GoogLeNet-32", 13.38, 32, True, (1.00, 0.71, 0.80)),
    _Model("VGG16-16", 138.36, 16, False, (13.90, 9.28, 12.59)),
    _Model("VGG16-32", 138.36, 32, False, (7.14, 4.80, 5.41)),
)


@dataclass(frozen=True, slots=True)
class _Links:
    """What is fitted: bytes per second, and seconds."""

    inside: float
    between: float
    fixed_s: float

    def seconds(self, model: _Model, cards: int) -> float:
        """Predicted seconds of communication for all images."""
        rate = self.inside if cards <= _PER_SOCKET else self.between
        iteration_s = model.sent_bytes(cards) / rate + self.fixed_s * model.deep
        return iteration_s * _IMAGES / (model.batch * cards)


def _fit(model: _Model) -> _Links:
    """The links with which a deep model's three cells are exact."""
    two, four, eight = _CARDS
    more_bytes = model.sent_bytes(four) - model.sent_bytes(two)
    inside = more_bytes / (model.iteration_s(four) - model.iteration_s(two))
    fixed_s = model.iteration_s(two) - model.sent_bytes(two) / inside
    between = model.sent_bytes(eight) / (model.iteration_s(eight) - fixed_s)
    return _Links(inside, between, fixed_s)


def reproduce_theano_mpi(*, quick: bool = False) -> Result:
    """Predict twelve cells from three.

    Args:
        quick: Makes no difference: nothing is run.
    """
    links = _fit(_FITTED)
    rows = [
        Row(
            name=f"{model.name}, {cards} cards",
            ours=links.seconds(model, cards),
            reference=published,
            unit="s",
        )
        for model in _PREDICTED
        for cards, published in zip(_CARDS, model.seconds, strict=True)
    ]
    return Result(
        name="theano-mpi",
        title="Theano-MPI: seconds of communication per 5,120 images, from "
        f"{_FITTED.name}'s: {links.inside / 1e9:.1f} GB/s inside a socket, "
        f"{links.between / 1e9:.1f} between, {links.fixed_s * 1e3:.1f} ms per iteration of deep "
        "models",
        columns=("model", "predicted", "published", "ratio", "unit", "note"),
        rows=tuple(rows),
    )
