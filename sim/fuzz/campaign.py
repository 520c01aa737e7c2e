"""A campaign: many seeds run side by side, their coverage, and their failures."""

import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any

from ...gossip import ConfigError
from ...train.faults.schedule import Fault
from ..kernel.gc import paused
from .scenario import draw, workers_of
from .shrink import ScenarioSpec, shrink
from .trial import Failure, Mutant, Trial

__all__ = [
    "EVENT_COVERAGE",
    "Campaign",
    "CampaignConfig",
    "FailedSeed",
    "Progress",
    "parse_seeds",
    "run_campaign",
]


Progress = Callable[[int, Sequence[Trial]], None]
"""Called with the number of seeds done, and the trials among them that failed."""

# From here on a campaign should meet every event.
_FULL_SEEDS_MIN = 200
_FULL_WORKERS_MIN = 6

_SEEDS_MAX = 10_000_000


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read a range of seeds.

    Raises:
        ConfigError: The text has another form, or a range is empty or too long.

    >>> parse_seeds("3,10-12")
    (3, 10, 11, 12)
    """
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})(?:\s*-\s*(\d{1,18}))?\s*", part)
        if match is None:
            raise ConfigError(
                f"seeds is {text!r}: {part.strip()!r} is neither a number nor FIRST-LAST; it must "
                "be such as 17, 0-999 or 3,10-20"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if not 0 <= last - first < _SEEDS_MAX:
            raise ConfigError(f"seeds is {text!r}: {part.strip()!r} must be up to {_SEEDS_MAX:,}")
        found += range(first, last + 1)
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignConfig:
    """Settings of a campaign."""

    seeds: tuple[int, ...] = tuple(range(100))
    workers: int = 6
    """Number of peers that a swarm begins with: a random number from 2 to this for each seed, or
    exactly this many with *faults*."""
    without: tuple[str, ...] = ()
    """Names in `OPTIONS` that keep the value of a plain swarm."""
    faults: tuple[Fault, ...] | None = None
    """Faults of each swarm; None draws them for each seed."""
    shrink: bool = True
    failures_max: int = 10
    """Number of failing seeds after which the campaign stops."""
    processes: int = 1
    """Number of seeds tried side by side; the result does not depend on it."""
    mutant: Mutant | None = None
    """Plants a known bug in every protocol, to check that it is found."""

    def __post_init__(self) -> None:
        if not self.seeds:
            raise ConfigError("seeds is empty: there must be at least one")
        for name in ("failures_max", "processes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: it must be at least 1")
        draw(self.seeds[0], self.workers, self.without, self.faults)

    def is_full(self, seeds: int) -> bool:
        """True if *seeds* of this campaign should cover every event."""
        changed = self.faults is not None or self.without or self.mutant is not None
        return not changed and seeds >= _FULL_SEEDS_MIN and self.workers >= _FULL_WORKERS_MIN

    def spec(self, seed: int) -> ScenarioSpec:
        """Return what draws the scenario of a seed."""
        workers, faults = self.workers, self.faults
        if faults is None:
            workers = workers_of(seed, self.workers)
            faults = draw(seed, workers, self.without).faults
        return ScenarioSpec(seed=seed, workers=workers, without=self.without, faults=faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedSeed:
    """A seed that failed."""

    seed: int
    failure: Failure
    spec: ScenarioSpec
    """The scenario as drawn, or as shrunk."""
    shrunk: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """The result of a campaign; it does not depend on the number of processes."""

    seeds: int
    """Number of seeds tried."""
    events: int
    seen: Mapping[str, int]
    """Number of seeds in which each event happened."""
    never: tuple[str, ...]
    """Events of `EVENT_COVERAGE` that a full campaign should have met."""
    failed: tuple[FailedSeed, ...]


def run_campaign(
    config: CampaignConfig, progress: Progress = lambda done, failed: None
) -> Campaign:
    """Try all seeds until too many have failed."""
    trials: list[Trial] = []
    failed: list[Trial] = []
    with _mapping(min(config.processes, len(config.seeds))) as each:
        for trial in each(partial(_try, config), config.seeds):
            trials.append(trial)
            failed += [trial] if trial.failure else []
            progress(len(trials), failed)
            if len(failed) >= config.failures_max:
                break
    seen = Counter(what for trial in trials for what in trial.seen)
    expected = EVENT_COVERAGE if config.is_full(len(trials)) else ()
    return Campaign(
        seeds=len(trials),
        events=sum([trial.events for trial in trials]),
        seen=seen,
        never=tuple(name for name in expected if not seen[name]),
        failed=tuple(_failed_seeds(config, failed)),
    )


def _try(config: CampaignConfig, seed: int) -> Trial:
    with paused():
        return config.spec(seed).attempt(config.mutant)


def _failed_seeds(config: CampaignConfig, failed: Sequence[Trial]) -> Iterator[FailedSeed]:
    """Yield every failure, the first of each invariant shrunk."""
    known = set[str]()
    for trial in failed:
        spec, failure = config.spec(trial.seed), trial.failure
        assert failure is not None
        is_new = config.shrink and failure.invariant not in known
        if is_new:
            known.add(failure.invariant)
            spec = shrink(spec, failure.invariant, config.mutant)
            failure = spec.attempt(config.mutant).failure or failure
        yield FailedSeed(seed=trial.seed, failure=failure, spec=spec, shrunk=is_new)


@contextmanager
def _mapping(processes: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """A `map` over *processes*."""
    if processes == 1:
        yield map
        return
    # Not fork: the caller may have threads, and numpy is imported soon.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _follow_the_caller)
    try:
        yield partial(pool.map, chunksize=4)
    finally:
        # Do not start seeds whose results would be dropped.
        pool.shutdown(cancel_futures=True)


def _follow_the_caller() -> None:
    """Leave Ctrl-C to the caller, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    caller = parent_process()
    assert caller is not None
    # A killed caller sends no signal: its processes would wait for further seeds forever.

    def end_with_the_caller() -> None:
        caller.join()
        os._exit(1)

    Thread(target=end_with_the_caller, daemon=True).start()


EVENT_COVERAGE: Mapping[str, str] = {
    "fence": "a question about a share that had not come decided it for ever",
    "partial accept": "a share was accepted in part, and the rest of its weight went back",
    "accept after the sender's death": "a share outlived the peer that had sent it",
    "stale incarnation": "a message reached a later incarnation than the one it was meant for",
    "duplicate": "a message came twice, or again when it was old",
    "lost in a reset": "a connection was reset, and what was on its way was lost",
    "unsent": "a sender learned that its neighbor was unreachable",
    "chunked transfer given up": "a transfer stopped in its midst, and its weight went back",
    "refused: stalled": "a receiver gave up a transfer that had stalled",
    "refused: not finite": "a share of a model that had diverged was noticed and refused",
    "suspected": "a peer was silent for so long that it was passed over",
    "recovered": "a peer that was suspected, or considered dead, was heard again",
    "split view": "a peer that ran was considered dead",
    "stranded": "weight was on its way to a peer when that was considered dead",
    "found": "what had become of such weight was found out after all",
    "written-off": "weight was on its way to a peer that came back with nothing",
    "written off what was accepted": "the same, and that peer had accepted it before",
    "join by copy": "a newcomer became a copy of its donor",
    "donor lost in mid-join": "a donor died while its copy was on the way",
    "newcomer referred": "a donor referred a newcomer to a peer that had just joined",
    "leave with hand-over": "a leaver handed its weight on",
    "burned": "weight was destroyed, because no peer was left to take it",
    "restart with state": "a peer came back with its checkpoint",
    "mass restart": "all peers crashed at once, and came back",
    "outlived": "a peer came back under a name of which a later life was known",
    "read from memory": "a share was read where it lay, in its sender's memory",
    "abandoned": "memory of such a share could not be used again, as its reader was gone",
    "two swarms": "two swarms that had each been founded heard of one another",
    "halted": "a rule that waits for others had to halt, as one of them was lost",
    "other format": "numbers travelled in 8 or 16 bits, or only some of them",
    "clock behind": "a peer's clock was behind that of others",
}
"""Description of each event, by the name under which `Invariants.seen` counts it."""
