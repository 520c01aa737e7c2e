"""Interface of an algorithm: a rule decides when to push, to which peers, and how to combine.

It never accesses values or sockets, so the same rule drives a live peer, a simulated one and a
replay. docs/explanation/design.md shows how the kinds of rules fit.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ..effects.effects import EndTraining, Halt, Wait
from ..errors import ConfigError
from ..types import frozen_keywords
from ..wire.formats import NATIVE, REGISTERS_MAX, parse_wire

if TYPE_CHECKING:
    from .context import RuleContext

__all__ = [
    *("Requirements", "Rule", "hook_of"),
    *("require_fit", "require_lr", "require_samples", "require_topology"),
    *("outstanding_max_of", "requirements_of", "shards_of"),
]

_OTHERWISE = "use one that mixes by weight, such as gosgd"


@runtime_checkable
class Rule(Protocol):
    """One algorithm, for one peer. It may keep its own state between calls.

    A rule may have two more methods. ``start(context)`` fills registers before the peer trains in a
    swarm; nothing can be pushed yet. ``trained_shard(context, shard)`` may push one shard during an
    optimizer step, once its numbers are final (`Requirements.overlaps`), but not mix or combine.
    """

    @property
    def name(self) -> str:
        """Name that users type."""

    @property
    def registers(self) -> tuple[str, ...]:
        """Vectors that it keeps besides ``x``, all zeros at first.

        A name that ends in ``*`` stands for all with that prefix, which take memory while set.
        """

    @property
    def outstanding_max(self) -> int:
        """Shares that may be outstanding at once, over all neighbors."""

    def step(self, context: "RuleContext", /) -> Wait | EndTraining | Halt | None:
        """Mix the shares that have arrived, and push if it is time.

        Returns:
            None if the optimizer may continue; a `Wait` if shares are missing: the rule is called
            again once something has arrived, with ``context.trained`` false; a `Halt` if they will
            never arrive; an `EndTraining` if training is over for another peer.
        """


def hook_of(rule: object, name: str) -> Callable[..., None] | None:
    """Return a rule's optional method, `start` or `trained_shard`; None if it has none."""
    # Looked up in the class: a wrapper that forwards unknown attributes seems to have every method.
    return getattr(rule, name) if callable(getattr(type(rule), name, None)) else None


@frozen_keywords
class Requirements:
    """A rule's special demands on the protocol; see ``rule.requirements``."""

    fixed_members: bool = False
    """True if the founders stay the only members, so that no peer can join."""
    tree: bool = False
    waits: bool = False
    """True if peers wait for one another."""
    staged_max: int = 0
    """Shares that a peer must be able to stage, if the configuration allows fewer."""
    whole: bool = True
    """True if it combines whole vectors: no shards, and no ``topk``."""
    lossless: bool = False
    plain_sgd: bool = False
    """True if the optimizer must be SGD without momentum, ``x <- x - lr g``."""
    share_registers: int = 1
    """Most registers that it pushes in one share; more than one only with *whole*."""
    one_machine: bool = False
    """True if its peers share segments (`RuleContext.exchange`), and so must run on one machine."""
    by_machine: bool = False
    """True if it distinguishes peers on its own machine from others (`RuleContext.machine`)."""
    shards: int = 1
    scattered: bool = False
    by_samples: bool = False
    """True if it weighs steps by their samples, which each step must report."""
    lr: bool = False
    """True if it uses the learning rate of each step (`RuleContext.lr`), if known."""
    measures: bool = False
    """True if it measures the distance of shares from the model (`RuleContext.measure`): then a
    simulation computes values while it decides, and a share must have every number."""
    overlaps: bool = False
    """True if it pushes each shard during the backward pass (``trained_shard``)."""
    bare: bool = False
    """True if all its rounded shares are encoded on their own (`RuleContext.keep`): then any format
    works, without the anchor or a record of what was last sent."""

    def needs_anchor(self, wire: str) -> bool:
        """Return True if the vector must keep the anchor, in this wire format."""
        return not self.bare and parse_wire(wire).needs_anchor

    def notes_sent(self, wire: str) -> bool:
        """Return True if the vector must record what was last sent, in this wire format."""
        return not (self.bare or parse_wire(wire).is_dense)


def requirements_of(rule: Rule) -> Requirements:
    """Return the requirements of *rule*; the defaults if it declares none."""
    stated: Requirements = getattr(rule, "requirements", Requirements())
    # Rules with fixed members need not declare that they wait.
    return replace(stated, waits=True) if stated.fixed_members and not stated.waits else stated


def shards_of(rule: Rule, shards: int) -> int:
    """Return the number of shards that the vector is cut into."""
    own = requirements_of(rule).shards
    if own > 1 and shards not in (1, own):
        raise ConfigError(
            f"shards is {shards}: rule {rule.name!r} itself cuts the vector, into {own}; its "
            "parameter fraction says into how many"
        )
    return max(own, shards)


def outstanding_max_of(rule: Rule) -> int:
    """Return how many shares may be outstanding at once."""
    requirements = requirements_of(rule)
    return int(rule.outstanding_max) * (requirements.shards if requirements.overlaps else 1)


def require_fit(rule: Rule, wire: str, shards: int) -> None:
    """Check that a rule can work with shares of this kind."""
    requirements, format = requirements_of(rule), parse_wire(wire)
    most = REGISTERS_MAX if requirements.whole else 1
    if not 1 <= requirements.share_registers <= most:
        raise ConfigError(
            f"rule {rule.name!r} pushes {requirements.share_registers} registers in one share: it "
            f"must be from 1 to {REGISTERS_MAX}, and 1 for a rule that mixes by weight"
        )
    if requirements.whole and shards > 1:
        raise ConfigError(
            f"shards is {shards}: rule {rule.name!r} works on whole vectors; {_OTHERWISE}"
        )
    if requirements.whole and not (format.is_dense or requirements.bare):
        raise ConfigError(f"wire is {wire!r}: rule {rule.name!r} needs every number; {_OTHERWISE}")
    if requirements.measures and not format.is_dense:
        raise ConfigError(
            f"wire is {wire!r}: rule {rule.name!r} measures how far shares are from the model, and "
            "needs every number; use int8, or measure nothing (robust=none)"
        )
    if format.is_for_differences and not requirements.bare:
        raise ConfigError(
            f"wire is {wire!r}: it is for differences, and rule {rule.name!r} sends models; use "
            "topk, or the rules choco and sparseloco"
        )
    if requirements.lossless and not format.is_native:
        raise ConfigError(
            f"wire is {wire!r}: rule {rule.name!r} needs numbers as they are; use {NATIVE}"
        )


def require_samples(rule: Rule, samples: int | None) -> None:
    """Check that a rule is given the samples of a step if, and only if, it needs them."""
    by_samples = requirements_of(rule).by_samples
    if samples is None:
        if by_samples:
            raise ConfigError(
                f"rule {rule.name!r} weighs steps by their samples: say how many each took, with "
                "peer.step(samples=n)"
            )
    elif not by_samples:
        raise ConfigError(
            f"samples is {samples}: rule {rule.name!r} does not weigh steps by them; leave it out, "
            "or use one that can, such as gosgd:p=0.1,samples=32, for which p is then meant"
        )
    elif not 1 <= samples < 2**32:
        raise ConfigError(f"samples is {samples}: it must be at least 1, and below 2^32")


def require_lr(lr: float | None) -> None:
    """Check the learning rate that is given for a step."""
    if lr is not None and not 0 <= lr < math.inf:
        raise ConfigError(f"lr is {lr}: a learning rate is a finite number of at least 0")


def require_topology(rule: Rule, topology: str, is_tree: Callable[[], bool]) -> None:
    """Check that a rule can work on a topology."""
    if requirements_of(rule).tree and not is_tree():
        raise ConfigError(
            f"topology is {topology!r}: rule {rule.name!r} needs a tree, such as path, star, tree "
            "or spanning-tree:of=exponential"
        )
