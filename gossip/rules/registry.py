"""All rules by name, and the specs that name them: ``gosgd:p=0.1,emission=per-second``.

A user's own rule is ``module:Class``, with its parameters after another colon:
``mine:Rule:p=0.5``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from ..errors import ConfigError
from ..protocol.rule import Rule
from ..specs.parameter import Value, parameters_of
from ..specs.spec import find, read_values, spec_of_values
from .asynchronous.adpsgd import ADPSGD
from .asynchronous.elastic_averaging import EASGD, SEASGD
from .asynchronous.epidemic import Epidemic
from .asynchronous.fragments import DivShare, Sparta
from .asynchronous.gosgd import GoSGD
from .asynchronous.sgp import SGP
from .compressed.choco import Choco
from .compressed.sparseloco import SparseLoCo
from .heterogeneous.momentum import DecentLaM, QGDSGDm
from .heterogeneous.relaysgd import RelaySGD
from .heterogeneous.tracking import D2, GradientTracking, MomentumTracking
from .outer.diloco import DiLoCo, LocalSGD
from .outer.hybrid import Hybrid
from .outer.neighbors import GASLoC, NoLoCo
from .plugin import as_raised, function_of
from .synchronous.allreduce import AllReduce
from .synchronous.dpsgd import DPSGD, Swap

__all__ = [
    "RULES",
    "RuleSpec",
    "find_rule",
    "make_rule",
    "parts_of_spec",
    "read_rule",
    "rules_help",
    "spec_of",
]

RULES: Mapping[str, type[Rule]] = MappingProxyType(
    {
        rule.name: rule
        for rule in (
            *(GoSGD, SGP, ADPSGD, Epidemic, EASGD, SEASGD, Sparta, DivShare),
            *(DPSGD, AllReduce, Swap),
            *(D2, GradientTracking, MomentumTracking, QGDSGDm, DecentLaM, RelaySGD),
            Choco,
            *(LocalSGD, DiLoCo, GASLoC, NoLoCo, SparseLoCo, Hybrid),
        )
    }
)
"""All built-in rules, by the name that users type."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleSpec:
    """A parsed spec: a rule that exists, and valid values for its parameters."""

    name: str
    make_with: Callable[..., Rule]
    values: Mapping[str, Value]
    """The values given in the spec, in the order of the class's parameters."""

    def make(self) -> Rule:
        if self.name in RULES:
            return self.make_with(**self.values)
        try:
            rule = self.make_with(**self.values)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"rule {self} raised {as_raised(error)}") from error
        if not isinstance(rule, Rule):
            raise ConfigError(
                f"rule {self} is a {type(rule).__name__}: a rule has name, registers, "
                "outstanding_max and step(context)"
            )
        return rule

    def short_forms(self) -> dict[str, Any]:
        """Return this spec with ``p`` apart, as a simulation's settings hold them."""
        others = {key: value for key, value in self.values.items() if key != "p"}
        rest = RuleSpec(name=self.name, make_with=self.make_with, values=others)
        return {"rule": str(rest), "p": self.values.get("p")}

    def __str__(self) -> str:
        return spec_of_values(self.name, self.values)


def make_rule(spec: str, p: float | None = None) -> Rule:
    """Make a rule.

    Args:
        spec: ``name`` or ``name:key=value,key=value``, where the name is one of `RULES` or
            ``module:Class``.
        p: Shorthand for ``p=`` in the spec; None for the spec's value or the rule's default.

    Raises:
        ConfigError: The rule does not exist, or does not take these parameters.

    >>> make_rule("gosgd:p=0.25").p
    0.25
    """
    return read_rule(spec, p).make()


def read_rule(spec: str, p: float | None = None) -> RuleSpec:
    """Read a spec; arguments and errors are those of `make_rule`.

    >>> str(read_rule("gosgd:emission=per-second", p=2.0))
    'gosgd:p=2.0,emission=per-second'
    """
    name, given = parts_of_spec(spec)
    make = find_rule(name)
    given_p = {} if p is None else {"p": p}
    try:
        parameters = {each.name: each for each in parameters_of(make)}
        # A required p may be given by itself instead of in the spec.
        declared = [
            replace(each, default=given_p.get(each.name, each.default))
            for each in parameters.values()
        ]
        values = read_values(name, declared, given)
    except ConfigError as error:
        raise ConfigError(f"rule {spec!r}: {error}") from None
    if p is not None:
        if "p" not in parameters:
            named = {each: parameters_of(rule) for each, rule in RULES.items()}
            takers = [each for each in named if any(one.name == "p" for one in named[each])]
            raise ConfigError(
                f"p is {p}: rule {name!r} does not take it, only {' and '.join(takers)}; leave it "
                "out"
            )
        if "p" in values:
            raise ConfigError(f"p is {p}, and rule {spec!r} gives it, too: give it once")
        parameters["p"].check(p)
        # A numpy number prints differently from a Python number.
        values["p"] = parameters["p"].kind(p)
    ordered = {key: values[key] for key in parameters if key in values}
    return RuleSpec(name=name, make_with=make, values=MappingProxyType(ordered))


def find_rule(name: str) -> Callable[..., Rule]:
    """Find a rule's class by its name in a spec."""
    if ":" in name:
        return function_of(name, "rule")
    return find("rule", name, RULES, ", or module:Class, a rule of yours")


def parts_of_spec(spec: str) -> tuple[str, str | None]:
    """Split a spec into the rule's name and its parameters, without checking either.

    >>> parts_of_spec("mine:Rule:p=0.5,k=3"), parts_of_spec("gosgd")
    (('mine:Rule', 'p=0.5,k=3'), ('gosgd', None))
    """
    name, colon, given = spec.partition(":")
    own, another, rest = given.partition(":")
    if colon and name not in RULES and own and "=" not in own:
        name, colon, given = f"{name}:{own}", another, rest
    return name, given if colon else None


def spec_of(rule: Rule) -> str:
    """Return a spec that recreates a rule, from its class and its non-default parameters.

    Raises:
        ConfigError: A parameter is not kept in an attribute of its name, or the class cannot be
            imported by its name.
    """
    make = type(rule)
    name = rule.name if RULES.get(rule.name) is make else f"{make.__module__}:{make.__qualname__}"
    values: dict[str, Value] = {}
    for parameter in parameters_of(make):
        if not hasattr(rule, parameter.name):
            raise ConfigError(
                f"rule {name} has no attribute {parameter.name}: keep each parameter under its "
                "name, and a spec can be made of it"
            )
        value = getattr(rule, parameter.name)
        if value != parameter.default:
            values[parameter.name] = parameter.kind(value)
    spec = str(RuleSpec(name=name, make_with=make, values=values))
    found = read_rule(spec)
    if found.make_with is not make:
        raise ConfigError(f"rule {name} is another class when it is imported by that name")
    return spec


_COMMON = ("gosgd", "sgp", "adpsgd", "dpsgd", "allreduce", "local-sgd", "diloco")


def rules_help() -> str:
    """Return how to name a rule, for a command's help."""
    return (
        f"{', '.join(_COMMON)} or one of {len(RULES) - len(_COMMON)} more (see `rumor rules`), "
        "with parameters as in gosgd:p=0.5,layers=4; or one of yours, MODULE:CLASS."
    )
