"""Shrinks a failing scenario to the fewest faults, workers and options that still fail.

Source: delta debugging, Zeller and Hildebrandt, IEEE TSE 28(2), 2002, algorithm ddmin.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ...gossip.types import PeerId
from ...train.faults.schedule import Fault, joining, names_of_newcomers
from .scenario import OPTIONS, WORKERS_MIN, draw
from .trial import Mutant, Trial, attempt

__all__ = ["ScenarioSpec", "among", "minimize", "shrink"]

_T = TypeVar("_T")

# Scenarios that are tried before the smallest one so far is returned.
_TRIALS_MAX = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioSpec:
    """All arguments needed to draw a scenario again, see `draw`."""

    seed: int
    workers: int
    without: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()

    def attempt(self, mutant: Mutant | None = None) -> Trial:
        """Draw the scenario, and run it."""
        scenario = draw(self.seed, self.workers, self.without, self.faults)
        return attempt(scenario, mutant)


def minimize(items: Sequence[_T], fails: Callable[[Sequence[_T]], bool]) -> list[_T]:
    """Drop items, keeping their order, as long as the rest still fails; of the rest, no single one
    can be dropped.

    >>> minimize(range(100), lambda some: {3, 70} <= set(some))
    [3, 70]
    """
    left, parts = list(items), 2
    if left and fails([]):
        return []
    while len(left) > 1:
        size = -(-len(left) // parts)
        for start in range(0, len(left), size):
            fewer = left[:start] + left[start + size :]
            if fewer and fails(fewer):
                left, parts = fewer, max(parts - 1, 2)
                break
        else:
            if parts >= len(left):
                break
            parts = min(2 * parts, len(left))
    return left


def shrink(spec: ScenarioSpec, invariant: str, mutant: Mutant | None = None) -> ScenarioSpec:
    """Return a small spec that breaks the same invariant; always the same one."""
    search = _Search(spec, invariant, mutant)
    search.leave_faults_out()
    before = None
    while before != search.best:
        before = search.best
        search.take_fewer_workers()
        search.leave_options_out()
        search.leave_faults_out()
    return search.best


@dataclass(slots=True)
class _Search:
    """The smallest spec so far, and the ways to make it smaller."""

    best: ScenarioSpec
    invariant: str
    mutant: Mutant | None
    trials: int = 0
    known: dict[str, bool] = field(default_factory=dict)

    def leave_faults_out(self) -> None:
        kept = minimize(
            self.best.faults, lambda some: self._fails(replace(self.best, faults=self._of(some)))
        )
        self.best = replace(self.best, faults=self._of(kept))

    def _of(self, faults: Sequence[Fault]) -> tuple[Fault, ...]:
        """Drop faults that concern no peer, since newcomers may no longer join."""
        peers = draw(self.best.seed, self.best.workers, faults=()).peers
        return among(faults, peers)

    def take_fewer_workers(self) -> None:
        for workers in range(WORKERS_MIN, self.best.workers):
            peers = draw(self.best.seed, workers, faults=()).peers
            spec = replace(self.best, workers=workers, faults=among(self.best.faults, peers))
            if self._accept(spec):
                return

    def leave_options_out(self) -> None:
        for name in OPTIONS:
            if name not in (without := self.best.without):
                longer = tuple(other for other in OPTIONS if other in (*without, name))
                self._accept(replace(self.best, without=longer))

    def _accept(self, spec: ScenarioSpec) -> bool:
        if spec != self.best and self._fails(spec):
            self.best = spec
            return True
        return False

    def _fails(self, spec: ScenarioSpec) -> bool:
        name = repr(spec)
        if name not in self.known:
            if self.trials >= _TRIALS_MAX:
                return False
            self.trials += 1
            failure = spec.attempt(self.mutant).failure
            self.known[name] = failure is not None and failure.invariant == self.invariant
        return self.known[name]


def among(faults: Sequence[Fault], peers: Sequence[PeerId]) -> tuple[Fault, ...]:
    """Return the faults that remain with only these initial peers, and newcomers."""
    known = {None, *peers, *names_of_newcomers(joining(faults))}
    found = []
    for fault in faults:
        some = tuple(peer for peer in fault.peers or () if peer in known)
        groups = [tuple(peer for peer in group if peer in known) for group in fault.groups or ()]
        fewer = replace(fault, peers=some or None, groups=tuple(filter(None, groups)) or None)
        lacks_peers = fault.peers is not None and not fewer.peers
        lacks_groups = fault.groups is not None and not fewer.groups
        if {fault.peer, fault.to} <= known and not (lacks_peers or lacks_groups):
            found.append(fewer)
    return tuple(found)
