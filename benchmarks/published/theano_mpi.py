"""Theano-MPI's seconds of communication on 2, 4 and 8 cards, predicted from one network's.

A ring all-reduce of M bytes over n cards sends 2 (n - 1) / n M bytes over each card's link, and
costs a fixed time per iteration where a model has many layers, whose arrays go one by one. Three
unknowns, the rate inside a socket, that between sockets and the fixed time, are fitted to the three
cells of one model; the twelve of the others are predicted. On the same links the four rules of its
interface are simulated, at its settings.

Source: Ma, Mao and Taylor 2016, and the table in their repository: seconds per 5,120 images.
"""

from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any, Final

from ...sim import consensus, simulate
from ...sim.models.network import Link, NetworkConfig
from ..results import Result, Row

__all__ = ["reproduce_theano_mpi", "reproduce_theano_mpi_rules"]

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


_CARDS_MAX: Final = 8
_DIM: Final = 8192
_VECTOR_BYTES: Final = 8 * _DIM
"""Of the simulated vector, float64."""

_STEPS: Final = 600
_ACCURACY_STEPS: Final = 300
_SEEDS: Final = 5


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule of Theano-MPI's interface.

    Args:
        name: There.
        settings: Of the simulation, as there.
        models_sent: By a card in an iteration, derived.
        published: Seconds of communication per 5,120 images, where there is such a figure.
    """

    name: str
    settings: dict[str, Any]
    models_sent: float
    published: float | None = None


_RULES: Final = (
    _Rule("BSP", {"rule": "allreduce", "topology": "complete"}, 3.0, 0.61),
    _Rule("EASGD, alpha .5, every 10", {"rule": "easgd:alpha=0.5,every=10"}, 0.1),
    _Rule("GoSGD, p .01", {"rule": "gosgd", "p": 0.01}, 0.01),
    _Rule("swap", {"rule": "swap", "topology": "random-matching"}, 1.0),
)


def reproduce_theano_mpi_rules(*, quick: bool = False) -> Result:
    """The rules of its interface on 8 cards, with AlexNet-128's size, batch and time of a step.

    Counted is how long a card's link is busy, from the bytes that were sent; what training waits
    for stands in the note, and so does accuracy, on a task that is small.

    Args:
        quick: A tenth of the steps, and one seed.
    """
    links, model = _fit(_FITTED), _PREDICTED[0]
    steps = _STEPS // 10 if quick else _STEPS
    return Result(
        name="theano-mpi-rules",
        title=f"Theano-MPI's four rules on {_CARDS_MAX} cards, {model.name}: seconds that a card's "
        "link is busy per 5,120 images",
        columns=("rule", "simulated", "published or derived", "ratio", "unit", "note"),
        rows=tuple(
            _rule_row(rule, links, model, steps, seeds=1 if quick else _SEEDS) for rule in _RULES
        ),
    )


_COMPUTE_S: Final = 2.63
"""Published seconds of computation per 5,120 images, AlexNet-128 on 8 cards."""


def _rule_row(rule: _Rule, links: _Links, model: _Model, steps: int, seeds: int) -> Row:
    """One rule: its traffic and its waits on the fitted links, and its accuracy on digits."""
    iterations = _IMAGES / (model.batch * _CARDS_MAX)
    step_s = _COMPUTE_S / iterations
    # A vector that is smaller by a factor, on links that are slower by the same.
    smaller = _VECTOR_BYTES / (4e6 * model.parameters)
    run = simulate(
        task=consensus(dim=_DIM),
        workers=_CARDS_MAX,
        steps=steps,
        step_s=step_s,
        eval_every=steps,
        network=_network(links, smaller),
        **{"topology": "complete", **rule.settings},
    )
    busy_s = _busy_s(rule.name, links, float(run.summary["bytes_sent"]) / smaller / _CARDS_MAX)
    waits_s = float(run.summary["virtual_time_s"]) / steps - step_s
    derived = _busy_s(rule.name, links, rule.models_sent * 4e6 * model.parameters) * iterations
    whose = "derived: models sent times bytes over rate"
    if rule.published is not None:
        whose = f"published; recursive doubling sends {rule.models_sent:g} models, their ring 1.75"
    found = [_accuracy(rule, seed) for seed in range(seeds)]
    spread = f" +- {100 * stdev(found):.1f}" if len(found) > 1 else ""
    return Row(
        name=rule.name,
        ours=busy_s / steps * iterations,
        reference=rule.published if rule.published is not None else derived,
        unit="s",
        note=f"{whose}; training waits {waits_s * iterations:.3f} s; digits, {_ACCURACY_STEPS} "
        f"steps: {100 * mean(found):.1f}{spread} %, {len(found)} seeds",
    )


def _network(links: _Links, smaller: float) -> NetworkConfig:
    """Two sockets of four cards, each with a link of its own."""
    inside, between = (8e-6 * rate * smaller for rate in (links.inside, links.between))
    left, right = (tuple(map(str, range(start, start + _PER_SOCKET))) for start in (0, _PER_SOCKET))
    across = [
        Link(source=source, to=to, bandwidth_mbit=between)
        for source, to in ((left, right), (right, left))
    ]
    return NetworkConfig(bandwidth_mbit=inside, links=tuple(across))


def _busy_s(rule: str, links: _Links, sent_bytes: float) -> float:
    """How long a card's link carries what it sends.

    Of a doubling's three stages one goes to the other socket, of 7 partners drawn at random 4 are
    there.
    """
    across = 1 / 3 if rule == "BSP" else _PER_SOCKET / (_CARDS_MAX - 1)
    return sent_bytes * ((1 - across) / links.inside + across / links.between)


def _accuracy(rule: _Rule, seed: int) -> float:
    """Of the merged model, on held-out digits."""
    run = simulate(
        task="digits",
        workers=_CARDS_MAX,
        steps=_ACCURACY_STEPS,
        eval_every=_ACCURACY_STEPS,
        seed=seed,
        **{"topology": "complete", **rule.settings},
    )
    return float(run.summary["accuracy"])
