"""What a simulation is asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from numbers import Integral, Real
from pathlib import Path
from sys import float_info
from typing import Any

from ..gossip import ProtocolConfig
from ..gossip.config import ShardOrder
from ..gossip.errors import ConfigError
from ..gossip.rules import RuleSpec, read_rule
from ..gossip.timing import timing
from ..gossip.wire import NATIVE
from ..train.task import Task
from .faults import Fault
from .network import NetworkConfig
from .vectors import VectorTask

__all__ = ["ENGINES", "FLOAT_MAX", "SimulationConfig"]

ENGINES = ("auto", "batched", "loop", "fast")
"""Ways to compute steps; ``auto`` takes the faster of ``batched`` and ``loop``, where these two
give the same bits, else ``loop``."""

FLOAT_MAX = float_info.max
"""The largest number there is, though not the largest integer."""

_COUNT_MAX = 2**53

_COUNTS = (
    "workers", "shards", "shards_per_push", "steps", "total_steps", "batch_size", "threads",
    "window", "eval_every",
)  # fmt: skip

_NUMBERS = (
    "p", "push_mbit", "time_s", "lr", "step_s", "latency_s", "bandwidth_mbit", "loss",
    "duplicates", "checkpoint_every_s", "memory_gib",
)  # fmt: skip

_TEXTS = (
    "topology", "mixing", "rule", "emission", "wire", "shard_order", "partition", "pace", "speeds",
    "timing", "engine",
)  # fmt: skip

# None is to leave them to something else.
_MAY_BE_NONE = (
    "mixing", "p", "push_mbit", "time_s", "lr", "speeds", "latency_s", "bandwidth_mbit", "loss",
    "duplicates", "memory_gib",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationConfig:
    """A swarm, the world that it lives in, and how to compute it.

    Raises:
        ConfigError: A field is out of range.
    """

    task: str | Task | VectorTask = "digits"
    """What is trained: a built-in name (``consensus`` and ``noise`` train no model),
    ``module:function``, or a task itself."""
    workers: int = 64
    """How many."""
    topology: str = "exponential"
    """Who may push to whom: a topology spec."""
    mixing: str | None = None
    """Mixing weights for rules that need a matrix: one of ``rumor.topology.MIXINGS``, the
    family's own unless given."""
    rule: str = "gosgd"
    """Spec of the algorithm: a name, with parameters as in ``gosgd:p=0.5``, or
    ``module:Class:key=value`` for one of your own."""
    p: float | None = None
    """Short for the rule's parameter ``p``; None for its default. More keeps models closer together
    and costs traffic."""
    emission: str = "per-step"
    """Short for the rule's parameter ``emission``: ``per-step``, ``per-second`` (``p`` is pushes
    per virtual second) or ``adaptive`` (``p`` is the part of its time in which a worker has a share
    under way)."""
    wire: str = NATIVE
    """Format in which shares travel: ``float32``, ``bfloat16``, ``float16``, ``int8`` or
    ``topk:FRACTION``. All but the first cost accuracy in each share and save bytes."""
    shards: int = 1
    """Pieces into which the vector is cut, each with weights of its own."""
    shards_per_push: int = 1
    """How many of them a push carries. Fewer are cheaper and agree more slowly."""
    shard_order: ShardOrder = "round-robin"
    """Which of them: ``round-robin``, those whose turn it is, or ``random``."""
    exact: bool = False
    """Keep each share until it is settled, and mix back what was not accepted, so that lost
    messages do not shift the weighted mean of all models."""
    push_mbit: float | None = None
    """What each worker may send, Mbit/s; pushes beyond that are skipped. None for as much as it
    likes, whatever its link carries."""
    steps: int | None = None
    """Optimizer steps of each worker; the task's own number unless given. With ``time_s`` alone
    there is no such number."""
    total_steps: int | None = None
    """Optimizer steps of all workers together after which they stop, each when it hears of it;
    with ``steps``, what comes first."""
    time_s: float | None = None
    """Virtual seconds after which all stop, however many steps each has taken; with ``steps``,
    what comes first."""
    lr: float | None = None
    """Learning rate; the task's own unless given."""
    batch_size: int | None = None
    """Samples per step; the task's own unless given."""
    partition: str = "shared"
    """How the data is split among workers."""
    seed: int = 0
    """Of everything random."""
    step_s: float = 0.1
    """Mean duration of a step at speed 1x, virtual seconds."""
    pace: str = "constant"
    """How durations vary: ``constant``, ``lognormal:cv=0.3``, ``pareto:shape=2.5`` or
    ``trace:path=FILE``."""
    speeds: str | None = None
    """Classes of speed, such as ``0.5x:25%,1x:50%,4x:25%``."""
    slow: tuple[str, ...] = ()
    """Stragglers: ``("3:10",)`` makes each step of worker 3 take ten times as long."""
    network: str | NetworkConfig = "lan"
    """A preset (``ideal``, ``datacenter``, ``lan``, ``wan``, ``lossy``), a JSON file, or a
    network itself."""
    latency_s: float | None = None
    """One way, seconds; the network's own unless given."""
    bandwidth_mbit: float | None = None
    """Of each host's uplink, Mbit/s; the network's own unless given."""
    loss: float | None = None
    """Probability that a message is lost; the network's own unless given."""
    duplicates: float | None = None
    """Probability that a message comes twice; the network's own unless given."""
    faults: str | Path | Sequence[Fault | Mapping[str, Any]] = ()
    """What goes wrong when: a JSON file, or faults themselves. Where there are any, each worker
    has a view of its own of who lives, which gossip keeps up to date, as live."""
    timing: str = "lan"
    """How soon a silent worker is suspected and held for dead: ``local``, ``lan`` or ``wan``."""
    checkpoint_every_s: float = 60.0
    """Virtual seconds from one checkpoint of a worker to its next, where one that is to start
    again looks for it."""
    engine: str = "auto"
    """How steps are computed: one of `ENGINES`."""
    threads: int | None = None
    """Cores to use, all there are unless given; no bit depends on it."""
    window: int | None = None
    """Optimizer steps that are scheduled ahead; four for each worker, 2,000 at least, unless
    given. Raise it for wider batches, lower it for memory; no bit depends on it."""
    eval_every: int | None = None
    """Steps at speed 1x between two measurements; a fortieth of the run unless given."""
    memory_gib: float | None = None
    """What the run may take; what the machine has free unless given."""

    def __post_init__(self) -> None:
        self._check_kinds()
        for name in _COUNTS:
            _check_count(name, getattr(self, name))
        for name in ("time_s", "lr", "step_s", "memory_gib", "push_mbit", "checkpoint_every_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < inf:
                raise ConfigError(f"{name} is {value}: it must be a finite number above 0")
        if self.engine not in ENGINES:
            raise ConfigError(f"unknown engine {self.engine!r}. Valid names: {', '.join(ENGINES)}")
        if self.shards_per_push > self.shards:
            raise ConfigError(
                f"shards_per_push is {self.shards_per_push}: it must be from 1 to shards, "
                f"{self.shards}"
            )
        # Whatever is wrong with these is found before anything is made.
        _ = self.protocol, self.rule_spec

    def _check_kinds(self) -> None:
        """See that every field is of the kind that it is declared as."""
        for name in _NUMBERS:
            _check_kind(name, value := getattr(self, name), Real, "a number")
            if isinstance(value, int) and abs(value) > FLOAT_MAX:
                raise ConfigError(f"{name} is {value}: no number may be above {FLOAT_MAX:.0e}")
        for name in _TEXTS:
            _check_kind(name, getattr(self, name), str, "a text")
        _check_kind("seed", self.seed, Integral, "an integer")
        # That is what true and false of numpy are called too.
        if type(self.exact).__name__ not in ("bool", "bool_"):
            raise ConfigError(f"exact is {self.exact!r}: it must be true or false")
        _check_kind("task", self.task, (str, Task, VectorTask), "a name or a Task")
        _check_kind("network", self.network, (str, NetworkConfig), "a name or a NetworkConfig")
        if isinstance(self.slow, str) or not _all_of(self.slow, str):
            raise ConfigError(f'slow is {self.slow!r}: it must be a tuple, as in ("3:10",)')
        is_file = isinstance(self.faults, str | Path)
        if not is_file and not _all_of(self.faults, (Fault, Mapping)):
            raise ConfigError(f"faults is {self.faults!r}: it must be a file, or a list of faults")
        for name in ("task", "network", "faults", *_TEXTS):
            # Some of them are names of files, and no file has one with it.
            if isinstance(value := getattr(self, name), str | Path) and "\0" in str(value):
                raise ConfigError(f"{name} is {value!r}: it must have no NUL character")

    @property
    def protocol(self) -> ProtocolConfig:
        """What the workers' protocols are told of all this."""
        rate = None if self.push_mbit is None else self.push_mbit * 1e6 / 8
        return ProtocolConfig(
            wire=self.wire,
            shards_per_push=self.shards_per_push,
            shard_order=self.shard_order,
            exact=self.exact,
            bandwidth_bytes_s=rate,
            shared_memory=False,
            **timing(self.timing),
        )

    @property
    def rule_spec(self) -> RuleSpec:
        """The rule with all of its parameters, however they were given.

        Raises:
            ConfigError: There is no such rule, or it does not take these.
        """
        return read_rule(self.rule, self.p, self.emission)

    @property
    def task_name(self) -> str:
        """What to call the task."""
        return self.task if isinstance(self.task, str) else self.task.name


def _check_count(name: str, value: int | None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name} is {value!r}: it must be an integer")
    if value < 1:
        raise ConfigError(f"{name} is {value}: it must be at least 1")
    if value > _COUNT_MAX:
        raise ConfigError(f"{name} is {value}: it must be {_COUNT_MAX:,} at most")


def _check_kind(name: str, value: object, kind: type | tuple[type, ...], words: str) -> None:
    if value is None and name in _MAY_BE_NONE:
        return
    # To Python, true is a number.
    if isinstance(value, bool) or not isinstance(value, kind):
        raise ConfigError(f"{name} is {value!r}: it must be {words}")


def _all_of(values: object, kind: type | tuple[type, ...]) -> bool:
    return isinstance(values, Sequence) and all(isinstance(value, kind) for value in values)
