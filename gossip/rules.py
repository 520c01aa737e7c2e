"""Rules by the name that people type."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from .adpsgd import ADPSGD
from .allreduce import AllReduce
from .dpsgd import DPSGD
from .errors import ConfigError
from .gosgd import GoSGD
from .rule import Rule
from .sgp import SGP

__all__ = ["RULES", "make_rule"]

RULES: Mapping[str, Callable[..., Rule]] = MappingProxyType(
    {"gosgd": GoSGD, "sgp": SGP, "adpsgd": ADPSGD, "dpsgd": DPSGD, "allreduce": AllReduce}
)
"""How each is made; `make_rule` knows which takes what."""

_TAKES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"gosgd": ("p", "emission"), "adpsgd": ("p",)}
)


def make_rule(name: str, p: float | None = None, emission: str = "per-step") -> Rule:
    """Make a rule.

    Args:
        name: One of ``RULES``.
        p: Pushes per step or second for ``gosgd``, exchanges per step for ``adpsgd``; None for the
            rule's own default, 0.1 and 1. The other rules exchange after every step.
        emission: ``"per-step"``; ``gosgd`` also knows ``"per-second"`` and ``"adaptive"``.

    Raises:
        ConfigError: There is no such rule, or it does not take these settings.

    >>> make_rule("gosgd").name
    'gosgd'
    """
    if name not in RULES:
        raise ConfigError(f"unknown rule {name!r}. Valid names: {', '.join(RULES)}")
    given: dict[str, Any] = {}
    if p is not None:
        given["p"] = p
    if emission != "per-step":
        given["emission"] = emission
    for setting, value in given.items():
        if setting not in _TAKES.get(name, ()):
            takers = " and ".join(rule for rule in _TAKES if setting in _TAKES[rule])
            raise ConfigError(
                f"{setting} is {value}: rule {name!r} does not take it, only {takers}; leave it out"
            )
    return RULES[name](**given)
