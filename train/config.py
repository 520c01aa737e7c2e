"""What a peer is told at its start: how to take part, and what to train."""

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any, Final, Self

from ..gossip import ConfigError, ProtocolConfig, Rule
from ..gossip.config import plain_numbers
from ..gossip.protocol.rule import require_fit, require_topology, requirements_of, shards_of
from ..gossip.rules.registry import make_rule
from ..gossip.transport.addresses import key_in, parse_address, parse_seed
from ..gossip.transport.keys.keyring import Keyring, read_keyring
from ..gossip.wire.messages import is_name
from ..topology import over
from .loggers.logger import LoggerSpec
from .loggers.registry import check_loggers
from .loop.metrics_port import check_metrics_port
from .tasks.lr_schedule import parse_lr_schedule
from .tasks.partition import IndexLists, PartitionFunction, partition_as_json
from .tasks.precision import check_precision
from .tensors.mixing import MIXINGS, Mixing

__all__ = [
    *("CHECKPOINTS", "CheckpointConfig", "Interval", "PeerConfig", "Recurrence", "RunConfig"),
    "parse_interval",
]

MEMORY_MODELS_MIN: Final = 2

CHECKPOINTS: Final = "checkpoints"
"""Where in a peer's folder its checkpoints lie."""


_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_TERM = re.compile(r"(\d+(?:\.\d+)?)(s|min|h|steps?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Between two times that something is done; neither for never."""

    every_s: float | None = None
    """Seconds."""

    every_steps: int | None = None
    """Optimizer steps of the peer itself."""

    def due(self, elapsed_s: float, steps: int) -> bool:
        """Whether so many seconds and steps after the last time it is time again."""
        by_clock = self.every_s is not None and elapsed_s >= self.every_s
        return by_clock or (self.every_steps is not None and steps >= self.every_steps)


class Recurrence:
    """Says when it is time again.

    Args:
        interval: How often.
        steps: Where the count of steps begins.
    """

    def __init__(self, interval: Interval, steps: int = 0) -> None:
        self._interval = interval
        self._steps = steps
        self._since_s = time.monotonic()

    def is_due(self, steps: int) -> bool:
        """Whether it is time again, now that so many steps were taken."""
        return self._interval.due(time.monotonic() - self._since_s, steps - self._steps)

    def done(self, steps: int) -> None:
        """Count from now on."""
        self._steps, self._since_s = steps, time.monotonic()


def parse_interval(text: str) -> Interval:
    """Read an interval as people type it.

    Raises:
        ConfigError: It has another form.

    >>> parse_interval("5min,500steps")
    Interval(every_s=300.0, every_steps=500)
    >>> parse_interval("never")
    Interval(every_s=None, every_steps=None)
    """
    if text.strip() == "never":
        return Interval()
    every_s: float | None = None
    every_steps: int | None = None
    for term in text.split(","):
        match = _TERM.fullmatch(term.strip().replace(" ", ""))
        number = float(match[1]) if match else 0.0
        by_steps = match is not None and match[2] in ("step", "steps")
        if match is None or number <= 0 or (by_steps and number % 1):
            raise ConfigError(
                f"interval {text!r} is malformed: write 60s, 5min, 1h or 500steps, two of them as "
                "in 60s,500steps for whichever comes first, or never"
            )
        if by_steps:
            every_steps = int(number)
        else:
            every_s = number * _SECONDS[match[2]]
    return Interval(every_s=every_s, every_steps=every_steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """Where and how often a peer writes down what it is.

    Raises:
        ConfigError: A field is out of range.
    """

    folder: Path
    """For this peer's checkpoints alone; made if it is not there. A text is taken for a path."""

    every_s: float | None = 60.0
    """Seconds between two checkpoints; None not to go by the clock. What a crash costs is the work
    since the last one; what each costs is a copy of the model and the optimizer's state."""

    every_steps: int | None = None
    """Steps of this peer between two; with ``every_s``, whichever comes first. With neither, one is
    written at the end alone."""

    kept: int = 2
    """How many stay on disk. Raise it to be able to go back farther."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        for name in ("every_s", "every_steps", "kept"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} of a checkpoint is {value}: it must be above 0")

    @property
    def interval(self) -> Interval:
        """How often one is written."""
        return Interval(every_s=self.every_s, every_steps=self.every_steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConfig:
    """How one peer takes part in a swarm.

    A field that is given counts more than the environment, also where it equals its default.

    Raises:
        ConfigError: A field is out of range, or an address is malformed.
    """

    # The first of all fields, see `_noting_given`.
    _given: frozenset[str] = field(default_factory=frozenset, repr=False, compare=False)

    id: str | None = None
    """Its name, unique in the swarm; a random one unless given."""

    bind: str | tuple[str, ...] | None = "tcp://127.0.0.1:*"
    """Where to listen: tcp://0.0.0.0:7700 lets other machines in, tcp://[::]:7700 also by IPv6;
    with port ``*``, the system chooses one. May be given several times. None for a peer that only
    dials out."""

    advertise: str | tuple[str, ...] = ()
    """Address that others should dial, a name or a number, where it is not the one that is bound
    (NAT, containers, several interfaces). May be given several times, the best one first."""

    join: str | tuple[str, ...] = ()
    """Address of any member, or dns:NAME:PORT for all addresses that a name has, such as that of a
    headless Service; may be given several times. Without one, this peer founds a swarm."""

    key: Path | None = None
    """This machine's key, a file of `rumor keygen`: messages are encrypted, and nobody takes part
    who is not in ``roster``; without keys unless given."""

    roster: Path | None = None
    """Who may take part: the file of `rumor roster`, which is read again when it changes, and
    written when other members know a newer one; needed with ``key``."""

    no_remote_stop: bool = False
    """Do not obey `rumor stop`. Without keys, whoever reaches a port can ask for that; with keys,
    only the roster's owner can."""

    rendezvous: Path | None = None
    """Folder that all peers see, through which they find one another; ports then need no
    planning."""

    founders: int = 1
    """Number of peers that start together and found the swarm, including this one."""

    topology: str = "exponential"
    """Who may push to whom: a spec of one of the families that `rumor topology --list` shows."""

    rule: Rule | str = "gosgd"
    """The algorithm, or its name."""

    seed: int = 0
    """Of the peer's random choices. The id goes into them too, so peers may share a seed."""

    out: Path | None = None
    """Folder for the ledger, for metrics, checkpoints and the model at the end, and for what
    happened to members; None to keep none."""

    log_every: int | None = 10
    """Steps between two rows of metrics.jsonl in ``out``. With None there are none, nor are the
    peer's checkpoints, its end and its model written there unless asked for."""

    loggers: tuple[LoggerSpec, ...] = ()
    """Where rows of metrics go besides: tensorboard, trackio, wandb or mlflow, each with the extra
    of its name, or NAME:WHERE, as in tensorboard:runs/tb. May be given several times. In Python,
    also objects with the methods of `rumor.train.loggers.Logger`."""

    metrics_host: str = "127.0.0.1"
    """Where metrics are served with ``metrics_port``: on this machine alone, unless given; 0.0.0.0
    lets others read them, too."""

    metrics_port: int | None = None
    """Serve Prometheus metrics at http://HOST:PORT/metrics (extra prometheus), where HOST is
    ``metrics_host``; with 0, the system chooses the port and the log tells it; not served unless
    given."""

    signals: bool = False
    """Whether SIGTERM, SIGINT and SIGUSR1 make the peer end its step, write its checkpoint, hand
    its weight on and leave, and `rumor stop` ends the process, too. The handlers that were there
    before are called then; without one, the process exits with 128 plus the signal's number."""

    checkpoint: CheckpointConfig | None = None
    """Where and how often to write checkpoints; None for each minute into ``out``, where that is
    given, and none otherwise."""

    linger_s: float = 30.0
    """How long a peer that has taken all its steps waits for the others, seconds. Raise it where
    peers are of unequal speed."""

    leave_s: float = 10.0
    """How long a peer that leaves may take to hand its weight on, seconds."""

    join_timeout_s: float | None = None
    """How long to look for a swarm before giving up, seconds; for ever unless given."""

    protocol: ProtocolConfig = field(default_factory=ProtocolConfig)
    """Sizes and times of the exchange."""

    shards: int = 1
    """Into how many pieces the vector is cut, each with a weight of its own, the same for all
    peers. More let a push be smaller (`ProtocolConfig.shards_per_push`). Rules that cut the vector
    themselves set it."""

    frozen_may_differ: bool = False
    """Whether frozen parameters may differ from peer to peer, as those of a backbone that some hold
    in fewer bits; the same for all peers. Otherwise they are compared, and a newcomer with others
    is refused."""

    local: str | tuple[str, ...] = ()
    """Parameters, buffers, or modules of such, by name, that are each peer's own: not averaged,
    kept in checkpoints, and a newcomer begins with its donor's. For what a loop changes itself,
    such as the teacher of a moving average or a queue of features; the same for all peers."""

    save_frozen: bool = True
    """Whether the model that is written at the end, and by `Peer.save_model`, has frozen parameters
    too. False for a small part that is trained on a large base, such as the adapters of a LoRA:
    each file then has what is averaged, and buffers, and no copy of the base."""

    mixing: Mixing = "step"
    """When shares are mixed in: ``step``, at once, between two optimizer steps; ``sliced``, there
    too, but no longer than ``mix_budget_s`` at a time."""

    mix_budget_s: float = 0.002
    """How long mixing may hold up one step where it is ``sliced``, seconds."""

    memory_models: float = 3.0
    """How much memory shares on their way may take beside the model, in models: snapshots, staged
    shares and idle buffers together. What does not fit is not pushed, or refused, and its weight
    stays where it is. Raise it where `Counters.no_memory` grows. No bound for models of less than
    4 MiB, nor under rules that wait for one another, which need all shares of a round at once."""

    def __post_init__(self) -> None:
        plain_numbers(self)
        if self.id is not None and not is_name(self.id):
            raise ConfigError(
                f"id is {self.id!r}: it must be 1 to 64 letters, digits, '.', '_' or '-'"
            )
        if (self.key is None) is not (self.roster is None):
            raise ConfigError("key and roster belong together: give both or neither")
        if self.founders < 1:
            raise ConfigError(f"founders is {self.founders}: it must be at least 1")
        if self.mixing not in MIXINGS:
            allowed = ", ".join(MIXINGS)
            raise ConfigError(f"mixing is {self.mixing!r}: it must be one of {allowed}")
        if not self.mix_budget_s > 0:
            raise ConfigError(f"mix_budget_s is {self.mix_budget_s}: it must be above 0")
        if not self.memory_models >= MEMORY_MODELS_MIN:
            raise ConfigError(
                f"memory_models is {self.memory_models}: it must be at least {MEMORY_MODELS_MIN}, "
                "for one share that leaves and one that comes"
            )
        if self.shards < 1:
            raise ConfigError(f"shards is {self.shards}: it must be at least 1")
        if self.log_every is not None and self.log_every < 1:
            raise ConfigError(f"log_every is {self.log_every}: it must be at least 1")
        check_loggers(self.loggers)
        if self.loggers and self.log_every is None:
            raise ConfigError("log_every is None: loggers get a row each log_every steps")
        if self.metrics_port is not None:
            check_metrics_port(self.metrics_port)
        for name in ("linger_s", "leave_s"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}: it must not be negative")
        set_field = object.__setattr__
        set_field(self, "loggers", tuple(self.loggers))
        local = (self.local,) if isinstance(self.local, str) else tuple(self.local)
        set_field(self, "local", local)
        set_field(self, "bind", _parse_binds(self.bind))
        for name, parse in (("join", parse_seed), ("advertise", parse_address)):
            given = getattr(self, name)
            several = (given,) if isinstance(given, str) else given or ()
            set_field(self, name, tuple(map(parse, several)))
        for address in self.join if self.key is None else ():
            if key_in(address):
                raise ConfigError(f"join {address} has a key: this peer needs key and roster, too")
        rule = self.make_rule()
        set_field(self, "shards", shards_of(rule, self.shards))
        self._check_rule(rule)

    def _check_rule(self, rule: Rule) -> None:
        """See that the rule goes with how shares are cut, mixed and sent, and to whom."""
        protocol = self.protocol
        require_fit(rule, protocol.wire, self.shards, exact=protocol.exact)
        if requirements_of(rule).overlaps and self.mixing != "step":
            raise ConfigError(
                f"mixing is {self.mixing!r}: rule {rule.name!r} pushes while a step goes on, and "
                "what it computes on must not change; use step"
            )
        if protocol.shards_per_push > self.shards:
            raise ConfigError(
                f"shards_per_push is {protocol.shards_per_push}: there are {self.shards} shards"
            )
        over(self.topology, self.seed, [self.id or "anybody"])
        require_topology(rule, self.topology, self._is_tree)

    def _is_tree(self) -> bool:
        """Whether those who found together are a tree, whatever they are called."""
        names = [f"{index:06}" for index in range(self.founders)]
        return over(self.topology, self.seed, names).is_tree

    def is_given(self, name: str) -> bool:
        """Check whether a field was given, here or to the config that this one was made from."""
        return name in self._given

    @property
    def incarnation_folder(self) -> Path | None:
        """Where it is kept which incarnation of the peer this is; None where nothing is kept."""
        if self.out is not None:
            return self.out
        return None if self.checkpoint is None else self.checkpoint.folder

    def in_folder(self) -> Self:
        """The same, with checkpoints in ``out`` where nothing is said of them."""
        if self.checkpoint is not None or self.out is None or self.log_every is None:
            return self
        return replace(self, checkpoint=CheckpointConfig(folder=self.out / CHECKPOINTS))

    def named(self) -> str:
        """The id. Where none was given it is what the roster calls the machine, or drawn by chance.

        Raises:
            ConfigError: As `keyring` does.
        """
        if self.id is not None or (keyring := self.keyring()) is None:
            return self.id or os.urandom(6).hex()
        names = keyring.names
        return f"{names[:-1]}{os.urandom(6).hex()}" if names.endswith("*") else names

    def keyring(self) -> Keyring | None:
        """The own key and the roster, read anew; None without keys.

        Raises:
            ConfigError: One cannot be read, others could read the key, or it is not let in.
        """
        return read_keyring(self.key, self.roster)

    def make_rule(self) -> Rule:
        """The algorithm, made with its defaults where only its name was given."""
        return make_rule(self.rule) if isinstance(self.rule, str) else self.rule


def _noting_given(init: Callable[..., None]) -> Callable[..., None]:
    """Let a config remember which of its fields were given, and `dataclasses.replace` keep that."""

    @wraps(init)
    def noting(self: PeerConfig, **values: Any) -> None:
        names, before = tuple(values), values.pop("_given", None)
        if before is not None:
            # `replace` passes first what it changes, then the other fields in their order.
            names = names[: names.index("_given")]
        init(self, **values, _given=(before or frozenset()).union(names))

    return noting


PeerConfig.__init__ = _noting_given(PeerConfig.__init__)  # type: ignore[method-assign]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """What one peer trains.

    Raises:
        ConfigError: A field is out of range.
    """

    task: str = "digits"
    """A built-in task (``digits``, ``quadratic``, ``mnist``, ``chars``, ``code``) or
    MODULE:FUNCTION, a function of yours that returns a Task."""
    steps: int | None = None
    """Optimizer steps of each peer; the task's, or no limit with ``total_steps``, unless given."""
    total_steps: int | None = None
    """Stop when all peers together, including those that are gone, have taken this many steps; no
    limit unless given. Under a rule whose peers wait for one another, all founders end after the
    same step. With ``steps``, whichever comes first."""
    lr: float | None = None
    """Learning rate; the task's unless given."""
    optimizer: str | None = None
    """What trains in place of the task's optimizer: sgd, nesterov (both with momentum 0.9), adam,
    adamw, rmsprop or adagrad; the task's unless given."""
    momentum: float | None = None
    """Momentum of the task's SGD; its own unless given."""
    precision: str | None = None
    """Of the numbers that steps compute with: float32, as the model has it, or bfloat16 or float16
    (automatic mixed precision); the task's unless given."""
    lr_schedule: str | None = None
    """How the learning rate falls, as the task says unless given: constant, cosine or linear, as in
    cosine:warmup=0.05,floor=0.1; over ``total_steps`` by the swarm's clock, else over the peer's
    own steps."""
    batch_size: int | None = None
    """Samples per step and peer; the task's unless given."""
    partition: str | IndexLists | PartitionFunction = "shared"
    """Who trains on which samples: shared (everyone on all), iid, dirichlet:ALPHA (the smaller, the
    fewer classes at a peer), shards:K, package (all samples of a target at one peer), live (dealt
    anew in each epoch of the swarm's clock to those who are there) or live:PASSES, a JSON file of
    index lists, one for each peer, or MODULE:FUNCTION, a function that returns such lists."""
    index: int = 0
    """Which part of the data is this peer's, from 0 to ``count`` - 1."""
    count: int = 1
    """Number of parts that the data is split into, unless shared. All peers must give the same."""
    seed: int = 0
    """Seeds the model, the order of the data and the peer's choices. All peers must give the
    same."""
    device: str = "auto"
    """Where to train: cpu, cuda, cuda:1; auto takes a GPU if there is one."""
    out: Path | None = None
    """Folder for the model, checkpoints, metrics, ledger, peer.json and journal; none are written
    unless given."""
    log_every: int = 10
    """Steps between two rows of metrics.jsonl."""
    eval_every: int = 50
    """Steps between two evaluations on held-out data."""
    eval_average_every: int | None = None
    """Steps between two evaluations of the average of all peers' models, by one of them, which
    receives a model from each of the others for it; none unless given."""
    step_s_min: float = 0.0
    """Sleep until a step has taken S seconds: slowness that costs no core."""
    journal: bool = False
    """Write journal.bin, from which `rumor replay` repeats the run bit for bit."""
    checkpoint_every: str = "60s"
    """How often a checkpoint is written into ``out``: 60s, 5min or 500steps, both as in
    60s,500steps for whichever comes first, or never."""
    resume: bool = False
    """Go on from the last checkpoint in the folder."""
    options: Mapping[str, Any] | None = None
    """What else to keep in the folder for whoever resumes, as JSON has it."""
    prefetch: int | None = None
    """Batches of tensors that a separate thread prepares ahead; 2 on a GPU, else 0, unless given.
    Raise it where a GPU waits for data, or where a core is idle and samples are large. No bit
    depends on it, except for a task that changes its data as it trains, which needs 0. Datasets are
    read when a step is due; loaders of a task's own may have workers."""

    def __post_init__(self) -> None:
        counts = ("steps", "total_steps", "batch_size", "log_every", "eval_every", "count")
        for name in (*counts, "eval_average_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}: it must be at least 1")
        if self.precision is not None:
            check_precision(self.precision)
        if self.lr is not None and not 0 < self.lr < float("inf"):
            raise ConfigError(f"lr is {self.lr}: it must be a finite number above 0")
        if not 0 <= self.index < self.count:
            raise ConfigError(f"index is {self.index}: it must be from 0 to {self.count - 1}")
        if self.prefetch is not None and self.prefetch < 0:
            raise ConfigError(f"prefetch is {self.prefetch}: it must be 0 or more")
        if not 0 <= self.step_s_min < float("inf"):
            raise ConfigError(f"step_s_min is {self.step_s_min}: it must be 0 or more seconds")
        if self.journal:
            # It goes into the journal, too.
            partition_as_json(self.partition)
        parse_lr_schedule(self.lr_schedule or "constant")
        parse_interval(self.checkpoint_every)
        if self.resume and self.out is None:
            raise ConfigError("to resume takes a folder: say with out from which")
        if self.resume and self.journal:
            raise ConfigError(
                "a journal begins with its peer, so that one that resumes cannot keep one: resume "
                "without it"
            )


def _parse_binds(bind: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
    if bind is None or isinstance(bind, str):
        return bind and parse_address(bind, any_port=True)
    return tuple(parse_address(address, any_port=True) for address in bind)
