"""What ``rumor launch`` was asked for, checked before anything is written."""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...gossip.errors import ConfigError
from ...gossip.protocol.rule import require_topology
from ...gossip.rules.registry import RuleSpec, read_rule
from ...gossip.rules.robust.registry import NONE
from ...gossip.transport.keys.key import covers
from ...gossip.transport.keys.keyring import read_keyring
from ...gossip.wire.messages import is_name
from ...topology import parse
from ..run_folder import new_folders
from ..settings.exchange import ExchangeConfig
from ..settings.options import option

if TYPE_CHECKING:
    from ...train.faults.schedule import Fault
    from ...train.tasks.registry import Task

__all__ = ["LaunchConfig", "check", "parse_slow", "peer_ids", "require_keys", "step_s_min"]

STEP_S_MIN_SLOW = 0.02
"""A step's least time where --slow is given alone: well above what a small model takes."""

# What the launcher says to each peer in another way, or not at all.
_OF_LAUNCHER: Final = frozenset(
    (
        *("peers", "exchange", "step_s_min", "slow", "batch_sizes", "steps", "journal", "out"),
        *("faults", "loggers", "metrics_port"),
    )
)

# A peer has the same defaults; commands are read by people who look for what is particular.
_LEFT_OUT: Final = ("checkpoint_every",)

_DESCRIBED: Final = (
    *("task", "topology", "peers", "seed", "total_steps", "lr_schedule", "partition"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig:
    """A run of several peers on this machine.

    Fields without a docstring are those of `RunConfig`, `PeerConfig` and `RuleConfig`.

    Raises:
        ConfigError: A field is out of range.
    """

    peers: int = 4
    """Number of processes."""

    task: str = "digits"

    topology: str = "exponential"

    rule: str = "gosgd"

    p: float | None = None

    emission: str = "per-step"

    robust: str = NONE

    exchange: ExchangeConfig = field(default_factory=ExchangeConfig)
    """What a push carries, at what rate, and when it is mixed."""

    steps: int | None = None

    total_steps: int | None = None

    lr: float | None = None

    optimizer: str | None = None

    momentum: float | None = None

    precision: str | None = None

    batch_size: int | None = None

    batch_sizes: tuple[str, ...] = ()
    """That peer's batches have N samples instead: 3:128. May be given several times. Under
    ``gosgd:samples=32``, say, it then counts for as much more."""

    lr_schedule: str | None = None

    partition: str = "shared"

    seed: int = 0

    device: str = "auto"

    step_s_min: float | None = None
    """Sleep until a step has taken S seconds; 0, or 0.02 with --slow, unless given."""

    slow: tuple[str, ...] = ()
    """That peer's steps take at least FACTOR times ``step_s_min``, asleep: 3:10 slows peer 3
    tenfold. May be given several times."""

    prefetch: int | None = None

    log_every: int = 10

    eval_every: int = 50

    eval_average_every: int | None = None

    key: Path | None = None
    """This machine's key, of `rumor keygen`: the roster must list it under a name that is for all
    peers, such as peer-*; without keys unless given."""

    roster: Path | None = None

    linger_s: float = 3600.0
    """How long a peer that has taken all its steps waits for slower ones, seconds."""

    leave_s: float = 10.0

    checkpoint_every: str = "60s"

    journal: bool = False

    out: Path | None = None
    """The run's folder; runs/TASK-TIME unless given."""

    loggers: tuple[str, ...] = ()

    metrics_port: int | None = None
    """Peer 0 serves Prometheus metrics at http://127.0.0.1:PORT/metrics, peer 1 at the next port,
    and so on (extra prometheus); with 0, the system chooses, and each peer's log tells; not served
    unless given."""

    faults: tuple["Fault", ...] = ()
    """What is done to peers and to the network between them, in order of time, peers by name; see
    `read_live_faults`."""

    def __post_init__(self) -> None:
        counts = ("peers", "steps", "total_steps", "batch_size", "log_every", "eval_every")
        for name in (*counts, "eval_average_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{option(name)} is {value}: it must be at least 1")
        for name in ("step_s_min", "linger_s", "leave_s"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ConfigError(f"{option(name)} is {value}: it must be 0 or more, in seconds")
        if self.journal and self.exchange.mixing != "step":
            raise ConfigError(
                f"--mixing is {self.exchange.mixing}: with --journal it must be step, which a "
                "replay can repeat"
            )
        if self.prefetch is not None and self.prefetch < 0:
            raise ConfigError(f"--prefetch is {self.prefetch}: it must be 0 or more")
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise ConfigError(f"--lr is {self.lr}: it must be a finite number above 0")
        if self.momentum is not None and not 0 <= self.momentum < 1:
            raise ConfigError(f"--momentum is {self.momentum}: it must be at least 0 and below 1")
        parse_slow(self.slow, self.peers)
        self.ids()
        self.own_batch_sizes()
        rule = self.rule_spec.make()
        require_topology(
            rule, self.topology, lambda: parse(self.topology, self.peers, seed=self.seed).is_tree
        )

    @property
    def rule_spec(self) -> RuleSpec:
        """The rule with all of its parameters, however they were given.

        Raises:
            ConfigError: There is no such rule, or it does not take these.
        """
        return read_rule(self.rule, self.p, self.emission, self.robust)

    @property
    def network_fails(self) -> bool:
        """Whether a fault is done to the network between peers."""
        if not self.faults:
            return False
        from ...train.faults.schedule import NETWORK_KINDS

        return any(fault.kind in NETWORK_KINDS for fault in self.faults)

    def for_peers(self) -> dict[str, Any]:
        """Fields that are set and are options of a peer under the same name, by name."""
        left_out = {entry.name: entry.default for entry in fields(self) if entry.name in _LEFT_OUT}
        return {
            entry.name: value
            for entry in fields(self)
            if entry.name not in _OF_LAUNCHER
            and (value := getattr(self, entry.name)) not in (None, left_out.get(entry.name))
        }

    def own_batch_sizes(self) -> Sequence[int | None]:
        """Samples of a step of each peer; None where it is the task's.

        Raises:
            ConfigError: A text has another form, or names no peer.
        """
        if not self.batch_sizes:
            return [self.batch_size] * self.peers
        from ...train.loop.batch_sizes import batch_sizes

        return batch_sizes(self.batch_sizes, self.ids(), self.batch_size, "--batch-sizes")

    def ids(self) -> tuple[str, ...]:
        """Names of the peers; see `peer_ids`."""
        return peer_ids(self.topology, self.peers, self.seed)

    def described(self, steps: int | None) -> dict[str, Any]:
        """What a summary repeats of it.

        Args:
            steps: Of each peer; None where only all together have a number of them.
        """
        rule = self.rule_spec.make()
        return {
            **{name: getattr(self, name) for name in _DESCRIBED},
            "rule": rule.name,
            "rule_spec": str(self.rule_spec),
            "steps": steps,
            "p": getattr(rule, "p", None),
            "emission": getattr(rule, "emission", self.emission),
            "exchange": self.exchange.as_json(),
        }


def peer_ids(topology: str, peers: int, seed: int) -> tuple[str, ...]:
    """What peers are called: as the nodes of the topology's file, or peer-0 and so on.

    Raises:
        TopologyError: The topology is not valid, or not for so many peers.
        ConfigError: It names a node as no peer can be called.
    """
    digits = len(str(peers - 1))
    names = parse(topology, peers, seed=seed).names
    names = names or tuple(f"peer-{index:0{digits}}" for index in range(peers))
    if unfit := [id for id in names if not is_name(id)]:
        raise ConfigError(
            f"--topology names a node {unfit[0]!r}: a peer's name is 1 to 64 letters, digits, "
            "'.', '_' or '-'"
        )
    return names


def check(config: LaunchConfig, *, resumes: bool = False) -> tuple["Task", Path]:
    """Find out whether a run can start at all, and where it goes.

    Args:
        config: The run.
        resumes: Whether it goes on in its folder, which is a run's then.

    Returns:
        The task, and the run's folder, which is not made yet.

    Raises:
        ConfigError: The task cannot be built, its data cannot be split so, the rule cannot
            exchange so, or the folder is taken.
    """
    out = config.out if resumes and config.out is not None else _folder(config)
    from ...train.config import PeerConfig, parse_interval
    from ...train.loop.metrics_port import require_free_ports
    from ...train.tasks.live_partition import live_passes
    from ...train.tasks.lr_schedule import parse_lr_schedule
    from ...train.tasks.registry import load_task

    # Each peer would refuse it, after the folders were made.
    PeerConfig(rule=config.rule_spec.make(), loggers=config.loggers, **config.exchange.settings())
    require_keys(config.key, config.roster, config.ids())
    if config.metrics_port is not None:
        require_free_ports(config.metrics_port, config.peers)
    parse_interval(config.checkpoint_every)
    parse_lr_schedule(config.lr_schedule or "constant")
    if config.batch_sizes and live_passes(config.partition):
        raise ConfigError(
            "partition live needs batches of one size: an epoch is so many steps of all together. "
            "Leave --batch-sizes out, or take another partition"
        )
    task = load_task(config.task, seed=config.seed).with_optimizer(config.optimizer)
    task.with_precision(config.precision).split(config.partition, config.peers, config.seed)
    return task, out


def require_keys(key: Path | None, roster: Path | None, ids: Sequence[str]) -> None:
    """See that peers of these names can take part with a key.

    Args:
        key: The machine's; None without keys.
        roster: The swarm's.
        ids: Names of the peers.

    Raises:
        ConfigError: They cannot; it says why.
    """
    keyring = read_keyring(key, roster)
    if keyring is None:
        return
    for id in ids:
        if not covers(keyring.names, id):
            raise ConfigError(
                f"{roster} lists --key {key} as {keyring.names}, and one of these is called {id}: "
                "its owner adds the key as 'peer-*'"
            )


def parse_slow(texts: Sequence[str], peers: int) -> dict[int, float]:
    """Read ``PEER:FACTOR`` options.

    Raises:
        ConfigError: One has another form, names no peer of this run, or one that was named before.

    >>> parse_slow(["3:10"], peers=4)
    {3: 10.0}
    """
    factors: dict[int, float] = {}
    for text in texts:
        match = re.fullmatch(r"(?:peer-)?(\d+):(\d+(?:\.\d+)?)", text.strip())
        if match is None or float(match[2]) < 1:
            raise ConfigError(
                f"--slow {text!r} is not PEER:FACTOR: write 3:10 for steps of peer 3 that take "
                "10 times as long (FACTOR >= 1)"
            )
        index = int(match[1])
        if index >= peers:
            raise ConfigError(f"--slow {text!r}: there is no peer {index}, only 0 to {peers - 1}")
        if index in factors:
            raise ConfigError(f"--slow names peer {index} twice")
        factors[index] = float(match[2])
    return factors


def step_s_min(config: LaunchConfig, index: int) -> float:
    """How long a peer's steps take at least, seconds."""
    factors = parse_slow(config.slow, config.peers)
    least = config.step_s_min
    if least is None:
        least = STEP_S_MIN_SLOW if factors else 0.0
    return least * factors.get(index, 1.0)


def _folder(config: LaunchConfig) -> Path:
    from ...train.storage.files import check_folder

    out = config.out or next(p for p in new_folders(config.task) if not os.path.exists(p))
    check_folder(out, resume=f"--resume {out}")
    return out
