"""Settings of a peer: how to take part, and what to train."""

import math
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, replace
from functools import wraps
from pathlib import Path
from socket import gethostname
from typing import Any, Final, Self

from ..gossip import ConfigError, ProtocolConfig, Rule
from ..gossip.protocol.rule import require_fit, require_topology, shards_of
from ..gossip.rules.registry import make_rule, rules_help
from ..gossip.specs.parameter import check_settings, setting
from ..gossip.specs.spec import described
from ..gossip.transport.addresses import (
    PORT,
    key_in,
    parse_address,
    parse_seed,
    split_address,
)
from ..gossip.transport.keys.keyring import Keyring, read_keyring
from ..gossip.wire.messages import is_name
from ..topology import over
from .loggers.logger import LoggerSpec, check_loggers
from .loop.exporter import check_metrics_port
from .tasks.lr_schedule import LR_SCHEDULES, parse_lr_schedule
from .tasks.precision import PRECISIONS

__all__ = [
    *("CHECKPOINTS", "CheckpointConfig", "EndSettings", "GossipSettings"),
    *("MetricsSettings", "PeerConfig", "Recurrence", "RunConfig", "SeedSettings"),
    *("ShardSettings", "TrainingSettings", "TrustSettings", "ValueSettings"),
]

CHECKPOINTS: Final = "checkpoints"
"""Name of the folder for checkpoints within a peer's folder."""


_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_TERM = re.compile(r"(\d+(?:\.\d+)?)(s|m|min|h|steps?)")


class Recurrence:
    """Tells when an interval of seconds or of steps, whichever ends first, has passed.

    *every* is as people type it: ``60s``, ``5min``, ``1h``, ``500steps``, two of them as in
    ``60s,500steps``, or ``never``.
    """

    def __init__(self, every: str) -> None:
        self.every_s = self._every_steps = math.inf
        """Length of the interval, seconds; infinite if it is of steps."""
        self.done(0)
        for term in every.split(",") if every.strip() != "never" else ():
            match = _TERM.fullmatch(term.strip().replace(" ", ""))
            number = float(match[1]) if match else 0.0
            by_steps = match is not None and match[2].startswith("step")
            if match is None or number <= 0 or (by_steps and number % 1):
                raise ConfigError(
                    f"interval {every!r} is malformed: write 60s, 5min, 1h or 500steps, two of "
                    "them as in 60s,500steps for whichever comes first, or never"
                )
            if by_steps:
                self._every_steps = number
            else:
                self.every_s = number * _SECONDS[match[2]]

    def is_due(self, steps: int) -> bool:
        """True if the interval has passed after *steps* steps."""
        by_steps = steps - self._steps >= self._every_steps
        return by_steps or time.monotonic() - self._since_s >= self.every_s

    def done(self, steps: int) -> None:
        """Begin the next interval now, at *steps* steps."""
        self._steps, self._since_s = steps, time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """Folder and schedule of a peer's checkpoints.

    Raises:
        ConfigError: A field is out of range.
    """

    folder: Path = setting(
        MISSING,
        "Folder for this peer's checkpoints alone; it is created if missing. A string is a path.",
    )

    every: str = setting(
        "60s",
        "Interval between checkpoints: 60s, 5min or 500steps, or 60s,500steps for the one that "
        "comes first; with never, only one at the end. What a crash costs is the work since the "
        "last one; what each costs is a copy of the model and the optimizer's state.",
        metavar="INTERVAL",
    )

    kept: int = setting(2, "Number to keep on disk. More let you go back farther.", low=1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        check_settings(self)
        Recurrence(self.every)


@dataclass(frozen=True, kw_only=True)
class SeedSettings:
    """The seed of everything random."""

    seed: int = setting(
        0,
        "Seeds everything random: the model, the data, the choice of neighbors. Names of peers go "
        "into it, so that all peers of a swarm give the same.",
        brief="Seeds everything random.",
        low=-(2**63),
        high=2**63 - 1,
        form="an integer of 64 bits",
    )


@dataclass(frozen=True, kw_only=True)
class GossipSettings(SeedSettings):
    """The topology, which says which peers may push to each other."""

    topology: str = setting(
        "exponential",
        "Graph of peers that may push to each other: a spec, see `rumor topology --list`.",
        brief="Graph of pushes: see `rumor topology`.",
        metavar="SPEC",
    )


@dataclass(frozen=True, kw_only=True)
class ShardSettings:
    """The division of a model into shards."""

    shards: int = setting(
        1,
        "Pieces into which the vector is cut, each with a weight of its own, so that a push "
        "carries a part of the model: for large models, slow links or little memory (gosgd and "
        "sgp only; rules that cut the vector themselves set it). All peers must give the same.",
        brief="Pieces that the model is cut into.",
        low=1,
        metavar="K",
    )


@dataclass(frozen=True, kw_only=True)
class ValueSettings(ShardSettings):
    """Which values of a model are exchanged, and how they are mixed and kept."""

    frozen_may_differ: bool = setting(
        False,
        "Let frozen parameters differ from peer to peer, as those of a backbone that some hold in "
        "fewer bits; otherwise a newcomer with others is refused. All peers must give the same.",
    )

    memory_models: float = setting(
        3.0,
        "Memory that shares in flight may take in addition to the model, in models. Beyond "
        "it, pushes are skipped and arriving shares refused: both are counted, and no weight "
        "is lost. For rules where no peer waits, and models of at least 4 MiB.",
        low=2,
    )


@dataclass(frozen=True, kw_only=True)
class TrustSettings:
    """Keys; without them the network is trusted."""

    key: Path | None = setting(
        None,
        "This machine's key: messages are encrypted, and only machines in ``roster`` take part.",
        brief="This machine's key.",
        otherwise="none",
    )

    roster: Path | None = setting(
        None,
        "Machines that may join. The file is read again when it changes, and written when other "
        "members know a newer one; needed with ``key``.",
        brief="Roster of the machines that may join.",
    )


@dataclass(frozen=True, kw_only=True)
class MetricsSettings:
    """Destinations of metrics."""

    log_every: int | None = setting(
        10,
        "Steps between two rows of metrics.jsonl in ``out``. With None, neither rows nor the "
        "peer's checkpoints, end and model are written there by default.",
        low=1,
    )

    loggers: tuple[LoggerSpec, ...] = setting(
        (),
        "Loggers that also get the rows of metrics: tensorboard, trackio, wandb or mlflow, each "
        "with the extra of its name, or NAME:WHERE, as in tensorboard:runs/tb. May be given "
        "several times. In Python, also objects with the methods of `rumor.train.loggers.Logger`.",
        metavar="SPEC",
    )

    metrics_host: str = setting(
        "127.0.0.1",
        "Where metrics are served with ``metrics_port``; 0.0.0.0 lets other machines read them.",
        metavar="HOST",
    )

    metrics_port: int | None = setting(
        None,
        "Serve Prometheus metrics at http://HOST:PORT/metrics (extra prometheus), where HOST "
        "is ``metrics_host``; with 0, the system chooses the port and the log names it.",
        otherwise="not served",
        metavar="PORT",
    )


@dataclass(frozen=True, kw_only=True)
class EndSettings:
    """Timeouts for a peer's end."""

    linger_s: float = setting(
        30.0,
        "How long a peer that has taken all its steps waits for the others, seconds. Raise it "
        "where peers are of unequal speed.",
        low=0,
    )

    leave_s: float = setting(
        10.0, "How long a peer that leaves may take to hand its weight on, seconds.", low=0
    )


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(SeedSettings):
    """The training task, for live or simulated peers."""

    steps: int | None = setting(
        None,
        "Optimizer steps of each peer.",
        brief="Optimizer steps of each peer.",
        low=1,
        otherwise="the task's, or no limit with another one",
    )

    total_steps: int | None = setting(
        None,
        "Stop when all peers together, including those that are gone, have taken this many steps. "
        "Under a rule whose peers wait for one another, all founders end after the same step. "
        "With ``steps``, whichever comes first.",
        brief="Steps of all peers together.",
        low=1,
        otherwise="no limit",
    )

    lr: float | None = setting(
        None, "Learning rate.", brief="Learning rate.", above=0, otherwise="the task's"
    )

    lr_schedule: str | None = setting(
        None,
        f"How the learning rate falls: {described(LR_SCHEDULES)}. Over ``total_steps`` by the "
        "swarm's clock, else over a peer's own steps.",
        otherwise="the task's",
        metavar="SPEC",
    )

    optimizer: str | None = setting(
        None,
        "Optimizer in place of the task's: sgd, nesterov (both with momentum 0.9), "
        "adam, adamw, rmsprop or adagrad.",
        otherwise="the task's",
        metavar="NAME",
    )

    momentum: float | None = setting(None, "Momentum of the task's SGD.", otherwise="its own")

    precision: str | None = setting(
        None,
        "Data type that steps compute with: float32, as the model has it, or bfloat16 "
        "(automatic mixed precision).",
        choices=PRECISIONS,
        otherwise="the task's",
        metavar="float32|bfloat16",
    )

    batch_size: int | None = setting(
        None, "Samples per step and peer.", low=1, otherwise="the task's"
    )

    partition: str = setting(
        "shared",
        "Division of samples among peers: shared (each has all), iid, dirichlet:ALPHA (the "
        "smaller, the fewer classes at a peer), shards:K, or MODULE:FUNCTION, a function of yours "
        "that returns a list of indices for each peer.",
        brief="How samples are divided.",
        metavar="SPEC",
    )

    device: str = setting(
        "auto",
        "Where to train: cpu, cuda, cuda:1; auto takes a GPU if there is one.",
        brief="cpu, cuda, cuda:1 or auto.",
    )


@dataclass(frozen=True, kw_only=True)
class _Noting:
    # Must be the first of all fields, see `_noting_given`.
    _given: frozenset[str] = field(default_factory=frozenset, repr=False, compare=False)


# A dataclass takes the fields of its last base class first.
@dataclass(frozen=True, kw_only=True)
class PeerConfig(
    ValueSettings, TrustSettings, MetricsSettings, EndSettings, GossipSettings, _Noting
):
    """How one peer takes part in a swarm.

    A field that is given overrides the environment, even if it equals its default. Paths may be
    strings.

    Raises:
        ConfigError: A field is out of range, or an address is malformed.
    """

    id: str | None = setting(
        None,
        "Its name, unique in the swarm: by default its host in ``join`` if it has an address of "
        "that list, else the name of its machine and a random suffix.",
        brief="Name, unique in the swarm.",
        otherwise="from the host",
    )

    bind: str | tuple[str, ...] | None = setting(
        "tcp://127.0.0.1:*",
        "Where to listen: tcp://0.0.0.0:7700 lets other machines in, tcp://[::]:7700 also by "
        "IPv6; with port ``*``, the system chooses one. May be given several times. none for a "
        "peer that only dials out: a full member that others cannot dial.",
        brief="Where to listen: 0.0.0.0:7700.",
        metavar="ADDRESS",
    )

    advertise: str | tuple[str, ...] = setting(
        (),
        "Address that others should dial, a name or a number, if it differs from the bound "
        "one (NAT, containers, several interfaces). May be given several times, the best one "
        "first.",
        metavar="HOST:PORT",
    )

    join: str | tuple[str, ...] = setting(
        (),
        "Address of any member, or dns:NAME:PORT for all addresses that a name has, such as that "
        "of a headless Service; may be given several times, or separated by commas. The port is "
        "7700 by default. Without an address, this peer founds a swarm. With the same list on all "
        "machines, peers found one with those that they meet, and later ones join it; each listens "
        "at the listed address that is its machine's, and only dials out if none is, or ``bind`` "
        "says where.",
        brief="Addresses of members, or of all.",
        metavar="HOST:PORT",
    )

    remote_stop: bool = setting(
        True,
        "Obey `rumor stop`. Without keys, anyone who reaches a port can send it; with keys, "
        "only the roster's owner can.",
    )

    rendezvous: Path | None = setting(
        None,
        "Folder that all peers see, through which they find one another; ports then need no "
        "planning.",
        brief="Folder by which peers find each other.",
        metavar="DIR",
    )

    founders: int = setting(
        1,
        "Number of peers that start together and found the swarm, including this one.",
        brief="Peers that found the swarm together.",
        low=1,
    )

    rule: Rule | str = setting(
        "gosgd", rules_help(), brief="When to push, how to mix: `rumor rules`.", metavar="SPEC"
    )

    out: Path | None = setting(
        None,
        "Folder for the ledger, for metrics, checkpoints and the model at the end, and for what "
        "happened to members; None to keep none.",
        brief="Folder of results.",
        metavar="DIR",
    )

    signals: bool = setting(
        False,
        "Whether SIGTERM, SIGINT and SIGUSR1 make the peer end its step, write its checkpoint, "
        "hand its weight on and leave, and `rumor stop` ends the process, too. The handlers that "
        "were there before are called then; without one, the process exits with 128 plus the "
        "signal's number.",
    )

    join_timeout_s: float | None = setting(
        None, "How long to look for a swarm before giving up, seconds.", low=0, otherwise="for ever"
    )

    local: str | tuple[str, ...] = setting(
        (),
        "Parameters, buffers, or modules of such, by name, that are each peer's own: not "
        "averaged, kept in checkpoints, and a newcomer begins with its donor's. For what a loop "
        "changes itself, such as the teacher of a moving average or a queue of features; the same "
        "for all peers.",
    )

    save_frozen: bool = setting(
        True,
        "Include frozen parameters in the model that is written at the end and by "
        "`Peer.save_model`. False for a small part that is trained on a large base, such as the "
        "adapters of a LoRA: each file then has what is averaged, and buffers, and no copy of the "
        "base.",
    )

    stuck_s: float | None = setting(
        None,
        "For a peer of several processes: how long it may take no step before it hands its weight "
        "on and ends, seconds, as an operation that all of them take part in may hang. Choose more "
        "than the longest evaluation takes, and less than the time after which the process group "
        "ends the process.",
        low=0,
        otherwise="for ever",
    )

    checkpoint: CheckpointConfig | None = setting(
        None,
        "Where and how often to write checkpoints.",
        otherwise="each minute into ``out``, where that is given",
    )

    protocol: ProtocolConfig = setting(ProtocolConfig, "Sizes and times of the exchange.")

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        for name in ("key", "roster", "rendezvous", "out"):
            if isinstance(path := getattr(self, name), str):
                set_field(self, name, Path(path))
        check_settings(self)
        if self.id is not None and not is_name(self.id):
            raise ConfigError(
                f"id is {self.id!r}: it must be 1 to 64 letters, digits, '.', '_' or '-'"
            )
        if (self.key is None) is not (self.roster is None):
            raise ConfigError("key and roster belong together: give both or neither")
        check_loggers(self.loggers)
        if self.loggers and self.log_every is None:
            raise ConfigError("log_every is None: loggers get a row each log_every steps")
        if self.metrics_port is not None:
            check_metrics_port(self.metrics_port)
        set_field(self, "loggers", tuple(self.loggers))
        local = (self.local,) if isinstance(self.local, str) else tuple(self.local)
        set_field(self, "local", local)
        set_field(self, "bind", _parse_binds(self.bind))
        for name, parse in (("join", parse_seed), ("advertise", parse_address)):
            several = _several(name, getattr(self, name) or ())
            parts = [part for each in several for part in each.split(",")]
            set_field(self, name, tuple(map(parse, parts)))
        for address in self.join if self.key is None else ():
            if key_in(address):
                raise ConfigError(f"join {address} has a key: this peer needs key and roster, too")
        rule = self.make_rule()
        set_field(self, "shards", shards_of(rule, self.shards))
        self._check_rule(rule)

    def _check_rule(self, rule: Rule) -> None:
        """Check that the rule works with the settings for shards, mixing, wire and topology."""
        protocol = self.protocol
        require_fit(rule, protocol.wire, self.shards)
        if protocol.shards_per_push > self.shards:
            raise ConfigError(
                f"shards_per_push is {protocol.shards_per_push}: there are {self.shards} shards"
            )
        over(self.topology, self.seed, [self.id or "anybody"])
        # Whatever the founders' names, as the shape of a graph depends on their number alone.
        names = [f"{index:06}" for index in range(self.founders)]
        require_topology(rule, self.topology, lambda: over(self.topology, self.seed, names).is_tree)

    def is_given(self, name: str) -> bool:
        """Return True if a field was given, here or to the config that this one was made from."""
        return name in self._given

    @property
    def incarnation_folder(self) -> Path | None:
        """Folder that records the peer's incarnation; None if nothing is recorded."""
        if self.out is not None:
            return self.out
        return None if self.checkpoint is None else self.checkpoint.folder

    def in_folder(self) -> Self:
        """Return this config, with checkpoints in ``out`` by default."""
        if self.checkpoint is not None or self.out is None or self.log_every is None:
            return self
        return replace(self, checkpoint=CheckpointConfig(folder=self.out / CHECKPOINTS))

    def named(self) -> str:
        """Return the id, or the default: the machine's name in the roster, or from its host."""
        if self.id is not None:
            return self.id
        if (keyring := self.keyring()) is not None:
            names = keyring.names
            return f"{names[:-1]}{os.urandom(6).hex()}" if names.endswith("*") else names
        name = f"{gethostname().partition('.')[0]}-{os.urandom(3).hex()}"
        for host, port in map(split_address, self.advertise):
            # Another machine may have the same name for itself, but not the same address.
            if host in {split_address(each)[0] for each in self.join}:
                name = f"{host}-{port}".removesuffix(f"-{PORT}")
        return re.sub(r"[^A-Za-z0-9_.-]", "-", name)[-64:]

    def keyring(self) -> Keyring | None:
        """Read the peer's key and the roster from their files; return None without keys."""
        return read_keyring(self.key, self.roster)

    def make_rule(self) -> Rule:
        """Return the rule, with defaults for the parameters that its spec omits."""
        return make_rule(self.rule) if isinstance(self.rule, str) else self.rule


def _noting_given(init: Callable[..., None]) -> Callable[..., None]:
    """Make a config remember which of its fields were given, also through `dataclasses.replace`."""

    @wraps(init)
    def noting(self: PeerConfig, **values: Any) -> None:
        names, before = tuple(values), values.pop("_given", None)
        if before is not None:
            # `replace` passes the changed fields first, then the others in their order.
            names = names[: names.index("_given")]
        init(self, **values, _given=(before or frozenset()).union(names))

    return noting


PeerConfig.__init__ = _noting_given(PeerConfig.__init__)  # type: ignore[method-assign]


OWN_TASK: Final = (
    "FILE.py:FUNCTION (or MODULE:FUNCTION), a function of yours that returns a model, with "
    "``train`` and ``test`` next to it in the file (and ``loss``, unless targets are class "
    "labels), or that returns a Task"
)
"""How to name a task of one's own."""


@dataclass(frozen=True, kw_only=True)
class RunConfig(TrainingSettings):
    """The training of one peer."""

    task: str = setting(
        "digits",
        f"A built-in task (``digits``, ``quadratic``, ``mnist``, ``code``) or {OWN_TASK}.",
        brief="A built-in task, or FILE.py:FUNCTION.",
    )
    index: int = setting(
        0,
        "Which part of the data is this peer's, from 0 to ``count`` - 1.",
        brief="Index of this peer's part of the data.",
        low=0,
    )
    count: int = setting(
        1,
        "Number of parts that the data is split into, unless shared. All peers must give the same.",
        brief="Number of parts of the data.",
        low=1,
    )

    eval_every: int = setting(50, "Steps between two evaluations on held-out data.", low=1)
    eval_average_every: int | None = setting(
        None,
        "Steps between two evaluations of the average of all peers' models, by one of them, which "
        "receives a model from each of the others for it.",
        low=1,
        otherwise="none",
    )
    step_s_min: float = setting(
        0.0, "Sleep until a step has taken S seconds: slowness that costs no core.", low=0
    )
    journal: bool = setting(
        False,
        "Write journal.jsonl, from which `python -m rumor.sim.replay` repeats the run bit for bit.",
    )
    checkpoint_every: str = setting(
        "60s",
        "Interval between checkpoints in ``out``: 60s, 5min or 500steps, or 60s,500steps for the "
        "one that comes first, or never.",
        metavar="INTERVAL",
    )
    resume: bool = setting(
        False,
        "Continue from the last checkpoint in the folder.",
        brief="Continue in the folder of an earlier run.",
    )

    options: Mapping[str, Any] | None = setting(
        None, "Further settings to keep in the folder for a resumed run, as JSON values."
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if not 0 <= self.index < self.count:
            raise ConfigError(f"index is {self.index}: it must be from 0 to {self.count - 1}")
        parse_lr_schedule(self.lr_schedule or "constant")
        Recurrence(self.checkpoint_every)
        if self.resume and self.journal:
            raise ConfigError(
                "a journal begins with its peer, so that a resumed peer cannot keep one: resume "
                "without it"
            )


def _parse_binds(bind: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
    if bind is None or bind in ("none", ("none",)):
        return None
    if isinstance(bind, str):
        return parse_address(bind, any_port=True)
    return tuple(parse_address(address, any_port=True) for address in _several("bind", bind))


def _several(name: str, addresses: Any) -> tuple[str, ...]:
    """Return the addresses of a setting, which may be a single one."""
    several = (addresses,) if isinstance(addresses, str) else addresses
    if not isinstance(several, Iterable) or not all(isinstance(each, str) for each in several):
        raise ConfigError(
            f"{name} is {addresses!r}: it must be an address, such as '10.0.0.5:7700', or several"
        )
    return tuple(several)
