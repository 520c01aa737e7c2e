"""What a simulation is asked for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import inf
from numbers import Real
from pathlib import Path
from sys import float_info
from types import NoneType
from typing import Any, TypeAlias, get_args

from numpy import ndarray

from ..gossip import ProtocolConfig
from ..gossip.config import ShardOrder, plain_numbers, timing
from ..gossip.errors import ConfigError
from ..gossip.protocol.rule import shards_of
from ..gossip.rules.plugin import name_of
from ..gossip.rules.registry import RuleSpec, read_rule
from ..gossip.rules.robust.registry import NONE
from ..gossip.wire.formats import NATIVE
from ..train.faults.schedule import Fault
from ..train.tasks.lr_schedule import parse_lr_schedule
from ..train.tasks.partition import IndexLists, PartitionFunction
from ..train.tasks.precision import check_precision
from ..train.tasks.task import Task
from .batched.vector_tasks import VectorTask
from .models.network import NetworkConfig

__all__ = ["ENGINES", "FLOAT_MAX", "SimulationConfig", "TaskFunction"]

TaskFunction: TypeAlias = Callable[..., Task | VectorTask]
"""Makes a task, of nothing or of ``seed``."""

ENGINES = ("auto", "dense", "loop", "vmap")
"""Ways to compute steps; ``auto`` takes the faster of ``batched`` and ``loop``, where these two
give the same bits, else ``loop``."""

DECIDERS = ("auto", "protocol", "compiled")
"""Who decides on exchanges."""

FLOAT_MAX = float_info.max
"""The largest number there is, though not the largest integer."""

_COUNT_MAX = 2**53

_POSITIVE = (
    "time_s", "lr", "step_s", "memory_gib", "push_mbit", "checkpoint_every_s", "storm_scale",
    "stands_for",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationConfig:
    """A swarm, the world that it lives in, and how to compute it.

    Raises:
        ConfigError: A field is out of range.
    """

    task: str | Task | VectorTask | TaskFunction = "digits"
    """A built-in task (``digits``, ``quadratic``, ``mnist``, ``chars``, ``code``) or
    MODULE:FUNCTION, a function of yours that returns a Task. Without a model, for up to a million
    workers: ``consensus`` (averaging of given vectors) and ``noise`` (unit Gaussian steps in place
    of gradients)."""
    workers: int = 64
    """Number of workers."""
    topology: str = "exponential"
    """Who may push to whom: a spec of one of the families that `rumor topology --list` shows."""
    mixing: str | None = None
    """Mixing weights of rules that need them: metropolis, uniform, lazy or fastest; the family's
    own unless given."""
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
    robust: str = NONE
    """Short for the rule's parameter ``robust``, what is taken of a share by how far it is from
    the model, so that members who lie move it by little: ``none``, ``clip``, ``scc``, ``cs+``,
    or ``nna``, as in ``clip:tau=0.5`` or ``nna:byzantine=2``."""
    wire: str = NATIVE
    """Format in which shares travel, see docs/reference/wires.md. All but ``float32`` cost accuracy
    in each share and save bytes."""
    shards: int = 1
    """Pieces into which the vector is cut, each with weights of its own. Rules that cut it
    themselves set it."""
    shards_per_push: int = 1
    """How many of them a push carries. Fewer are cheaper and agree more slowly."""
    shard_order: ShardOrder = "round-robin"
    """Which of them: ``round-robin``, those whose turn it is, or ``random``."""
    exact: bool = False
    """Keep each share until it is settled, and mix back what was not accepted, so that lost
    messages do not shift the weighted mean of all models."""
    push_mbit: float | None = None
    """What each worker may send, Mbit/s, whatever its link carries; as much as there is unless
    given. Pushes beyond it are skipped. As --bandwidth of `rumor peer`."""
    steps: int | None = None
    """Optimizer steps of each worker; the task's, or no limit with ``time_s``, unless given."""
    total_steps: int | None = None
    """Stop when all workers together have taken this many steps; no limit unless given. Under a
    rule whose workers wait for one another, all founders end after the same step. With ``steps``,
    whichever comes first."""
    time_s: float | None = None
    """Stop at this virtual time, seconds, whatever the steps: fast workers take more of them; no
    limit unless given."""
    lr: float | None = None
    """Learning rate; the task's unless given."""
    lr_schedule: str | None = None
    """How the learning rate falls, as the task says unless given: constant, cosine or linear, as in
    cosine:warmup=0.05,floor=0.1; over ``total_steps`` by the swarm's clock, else over the worker's
    own steps, or over ``time_s`` where nothing else ends the run."""
    optimizer: str | None = None
    """What to train with: sgd (momentum 0.9 unless given), nesterov, adam, adamw, rmsprop or
    adagrad; the task's own unless given."""
    momentum: float | None = None
    """Momentum of the task's SGD; its own unless given."""
    precision: str | None = None
    """Of the numbers that steps compute with: float32, as the model has it, or bfloat16 or float16
    (automatic mixed precision); the task's unless given."""
    batch_size: int | None = None
    """Samples per step and worker; the task's unless given."""
    batch_sizes: tuple[str, ...] = ()
    """That worker's batches have N samples instead: 3:128. May be given several times. Under
    ``gosgd:samples=32``, say, it then counts for as much more."""
    partition: str | IndexLists | PartitionFunction = "shared"
    """Who trains on which samples: shared (everyone on all), iid, dirichlet:ALPHA (the smaller, the
    fewer classes at a worker), shards:K, live (dealt anew in each epoch of the swarm's clock to
    those who are there) or live:PASSES, a JSON file of index lists, one for each worker, or
    MODULE:FUNCTION, a function of yours that returns such lists."""
    seed: int = 0
    """Seeds everything random: the model, the data, the choice of neighbors, times and faults."""
    step_s: float = 0.1
    """Mean virtual time of a step at speed 1x, seconds."""
    pace: str = "constant"
    """How steps of one worker vary: constant, lognormal:cv=0.3 (cv: standard deviation over mean),
    pareto:shape=2.5 (now and then very long), or trace:path=FILE."""
    speeds: str | None = None
    """Classes of speed, as in 0.5x:25%,1x:75%: a quarter of the workers at half speed; 1x for all
    unless given."""
    slow: tuple[str, ...] = ()
    """That worker's steps take FACTOR times as long: 3:10 makes worker 3 a straggler. May be given
    several times."""
    exchange_s: float = 0.0
    """What a push, or a mix, adds to a worker's step, seconds: copying, rounding and checking as
    many numbers as the model has. `rumor calibrate` measures it."""
    network: str | NetworkConfig = "lan"
    """ideal, datacenter, lan, wan, lossy, or a file that says more. ``latency_s``,
    ``bandwidth_mbit``, ``downlink_mbit``, ``loss`` and ``duplicates`` change one thing about it."""
    latency_s: float | None = None
    """Least time that a message takes, one way, seconds; the network's unless given."""
    bandwidth_mbit: float | None = None
    """Of each host's uplink, Mbit/s; the network's unless given."""
    downlink_mbit: float | None = None
    """Of each host's downlink, Mbit/s, where what comes from several sides waits; the network's,
    or else the uplink's, unless given."""
    loss: float | None = None
    """Probability that a message is lost; the network's unless given."""
    duplicates: float | None = None
    """Probability that a message arrives twice; the network's unless given."""
    stands_for: float | None = None
    """Parameters of a larger model that this one stands for: bandwidths and frames are made
    smaller, so that a share takes as long as that model's would, and what is no part of a model
    takes no longer than ever; none unless given."""
    faults: str | Path | Sequence[Fault | Mapping[str, Any]] = ()
    """Faults, as in [{"at_s": 3, "kind": "crash", "peer": 2}]: crash, restart, mass-restart, pause,
    continue, slow, clock-jump, cut, partition, heal, loss, duplicate, replay, delay, reset, join,
    leave, finish, diverge. With them each worker gossips about who lives, as real peers do. And
    attacks of workers that lie and do not count, as in [{"at_s": 0, "kind": "far", "peers": [2]}]:
    nan, far, inflate, flood, sign-flip, ipm, alie, dissensus, drift, label-flip."""
    storm: str | None = None
    """What goes wrong, drawn from the seed for these workers and ``time_s``: a name that `rumor
    storm` lists, or a .toml file. A network of its own takes the place of ``network``; nothing goes
    wrong unless given."""
    storm_scale: float = 1.0
    """How many times as fast the storm goes: with 60, an hour of it strikes within a minute."""
    timing: str = "lan"
    """How patient peers are with one another: on one machine, in one network, or across the
    internet."""
    checkpoint_every_s: float = 60.0
    """Virtual time between two checkpoints of a worker that is to start again from one, seconds."""
    engine: str = "auto"
    """dense (multilayer perceptrons in closed form, many workers at once), vmap (other models, many
    at once), loop (one worker after another, any model), or auto: by the kind of model. They differ
    in rounding."""
    decide: str = "auto"
    """Who decides on exchanges: protocol (that of each worker, as live), compiled (a fast path in
    machine code that emits the very same program, and is compiled at its first use), or auto: the
    fast path from 20,000 steps of all workers on, where nothing but plain exchanges is due, else
    the protocols. Each run compares its first window. No bit depends on it."""
    device: str = "cpu"
    """Where models are trained: cpu, cuda, cuda:1; auto takes a GPU if there is one. Values differ
    from the CPU's in their last digits. ``consensus`` and ``noise`` have no model to put there."""
    threads: int | None = None
    """Cores to use; all unless given. No bit depends on it."""
    window: int | None = None
    """Steps that are scheduled before they are computed; 4 for each worker unless given. Fewer need
    less memory; no bit depends on it."""
    eval_every: int | None = None
    """Steps of a worker at speed 1x between two measurements; a fortieth of all unless given."""
    tested: int | None = None
    """Held-out samples that a measurement takes, evenly spaced; all unless given."""
    workers_tested: int | None = None
    """Single workers whose models a measurement looks at beside the merged one, evenly spaced; 32
    at most unless given, 0 for none, which is faster."""
    memory_gib: float | None = None
    """Refuse a run that would need more memory than this, GiB; what is free unless given."""

    def __post_init__(self) -> None:
        plain_numbers(self)
        self._check_kinds()
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not 0 < value < inf:
                raise ConfigError(f"{name} is {value}: it must be a finite number above 0")
        if not 0 <= self.exchange_s < inf:
            raise ConfigError(f"exchange_s is {self.exchange_s}: it must be 0 or more, in seconds")
        if self.engine not in ENGINES:
            raise ConfigError(f"unknown engine {self.engine!r}. Valid names: {', '.join(ENGINES)}")
        if self.storm is not None and self.time_s is None:
            raise ConfigError("a storm needs time_s: it is drawn for the time that a run lasts")
        if self.storm is not None and self.faults:
            raise ConfigError("faults and a storm are both given: one of them has to do")
        if self.precision is not None:
            check_precision(self.precision)
        parse_lr_schedule(self.lr_schedule or "constant")
        if self.decide not in DECIDERS:
            raise ConfigError(f"unknown decide {self.decide!r}: it must be {', '.join(DECIDERS)}")
        object.__setattr__(self, "shards", shards_of(self.rule_spec.make(), self.shards))
        if self.shards_per_push > self.shards:
            raise ConfigError(
                f"shards_per_push is {self.shards_per_push}: it must be from 1 to shards, "
                f"{self.shards}"
            )
        # Whatever is wrong with these is found before anything is made.
        _ = self.protocol, self.rule_spec

    def _check_kinds(self) -> None:
        """See that every field is of the kind that it is declared as, and counts are in range."""
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            # Some texts are names of files, and no file has one with it.
            if isinstance(value, str | Path) and "\0" in str(value):
                raise ConfigError(f"{name} is {value!r}: it must have no NUL character")
            kinds = {*(get_args(field.type) or [field.type])}
            kind, *others = kinds - {NoneType}
            # None is left to something else; several kinds have checks of their own.
            if (value is not None or NoneType not in kinds) and not others and kind in _PLAIN:
                _check_plain(name, value, kind)
        if not callable(self.task) and not isinstance(self.task, str | Task | VectorTask):
            words = "a name, a Task or a function that returns one"
            raise ConfigError(f"task is {self.task!r}: it must be {words}")
        if not isinstance(self.network, str | NetworkConfig):
            raise ConfigError(f"network is {self.network!r}: it must be a name or a NetworkConfig")
        if not (isinstance(self.partition, str) or callable(self.partition) or self._has_lists()):
            raise ConfigError(
                f"partition is {self.partition!r}: it must be a text, index lists or a function"
            )
        for name, example in (("slow", "3:10"), ("batch_sizes", "3:128")):
            value = getattr(self, name)
            if isinstance(value, str) or not _all_of(value, str):
                raise ConfigError(f'{name} is {value!r}: it must be a tuple, as in ("{example}",)')
        is_file = isinstance(self.faults, str | Path)
        if not is_file and not _all_of(self.faults, (Fault, Mapping)):
            raise ConfigError(f"faults is {self.faults!r}: it must be a file, or a list of faults")

    def _has_lists(self) -> bool:
        """Whether the partition says outright who has which samples."""
        partition = self.partition
        return (
            isinstance(partition, Sequence | ndarray)
            and len(partition) > 0
            and all(isinstance(each, Sequence | ndarray) for each in partition)
            and not any(isinstance(each, str | bytes) for each in partition)
        )

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
        return read_rule(self.rule, self.p, self.emission, self.robust)

    @property
    def task_name(self) -> str:
        """What to call the task."""
        if isinstance(self.task, str):
            return self.task
        return self.task.name if isinstance(self.task, Task | VectorTask) else name_of(self.task)


_PLAIN: Mapping[Any, tuple[Any, str]] = {
    bool: (bool, "true or false"),
    int: (int, "an integer"),
    float: (Real, "a number"),
    str: (str, "a text"),
}


def _check_plain(name: str, value: Any, kind: type) -> None:
    wanted, words = _PLAIN[kind]
    # To Python, true is a number.
    if not isinstance(value, wanted) or isinstance(value, bool) != (kind is bool):
        raise ConfigError(f"{name} is {value!r}: it must be {words}")
    if kind is float and isinstance(value, int) and abs(value) > FLOAT_MAX:
        raise ConfigError(f"{name} is {value}: no number may be above {FLOAT_MAX:.0e}")
    if kind is int and name != "seed":
        least = 0 if name == "workers_tested" else 1
        if value < least:
            raise ConfigError(f"{name} is {value}: it must be at least {least}")
        if value > _COUNT_MAX:
            raise ConfigError(f"{name} is {value}: it must be {_COUNT_MAX:,} at most")


def _all_of(values: object, kind: type | tuple[type, ...]) -> bool:
    return isinstance(values, Sequence) and all(isinstance(value, kind) for value in values)
