"""Rules by the name that people type."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from .errors import ConfigError
from .gosgd import Emission, GoSGD
from .rule import Rule

__all__ = ["RULES", "make_rule"]

RULES: Mapping[str, Callable[[float, Emission], Rule]] = MappingProxyType(
    {"gosgd": lambda p, emission: GoSGD(p, emission=emission)}
)
"""How each is made from its settings."""


def make_rule(name: str, p: float = 0.1, emission: str = "per-step") -> Rule:
    """Make a rule.

    Raises:
        ConfigError: There is no such rule, or it does not take these settings.

    >>> make_rule("gosgd").name
    'gosgd'
    """
    if name not in RULES:
        raise ConfigError(f"unknown rule {name!r}. Valid names: {', '.join(RULES)}")
    return RULES[name](p, emission)  # type: ignore[arg-type]
