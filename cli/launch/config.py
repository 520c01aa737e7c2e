"""Settings of a run: number of peers, exchange, machines, and the command to start."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...gossip.errors import ConfigError
from ...gossip.protocol.rule import requirements_of
from ...gossip.rules.registry import RuleSpec, read_rule, rules_help
from ...gossip.specs.parameter import check_settings, setting
from ...gossip.transport.addresses import PORT_MAX
from ...gossip.wire.messages import is_name
from ...topology import parse
from ...train.config import EndSettings, MetricsSettings, SeedSettings, TrustSettings
from ...train.faults.schedule import parse_slow
from ..settings.exchange import ExchangeConfig, OutSettings

if TYPE_CHECKING:
    from ...train.config import RunConfig
    from ...train.faults.schedule import Fault
    from ...train.tasks.registry import Task

__all__ = [
    *("NOT_OF_TASK", "PROGRAM", "Job", "LaunchConfig", "MachinesConfig", "Place", "device_of"),
]


@dataclass(frozen=True, kw_only=True)
class LaunchConfig(TrustSettings, MetricsSettings, EndSettings, SeedSettings, OutSettings):
    """A run of several processes, each with a peer in it.

    Settings that are left out are the script's own, or defaults.
    """

    peers: int = setting(
        4, "Number of processes.", brief="Number of processes.", low=1, flags=("--peers", "-n")
    )

    topology: str | None = setting(
        None,
        "Graph of peers that may push to each other: a spec, see `rumor topology --list`.",
        brief="Graph of pushes: see `rumor topology`.",
        otherwise="the script's own, or exponential",
        metavar="SPEC",
    )

    rule: str | None = setting(
        None,
        rules_help(),
        brief="When to push, how to mix: `rumor rules`.",
        otherwise="the script's own, or gosgd",
        metavar="SPEC",
    )

    device: str | None = setting(
        None,
        "Device to train on, which scripts read as ``environment().device``: cpu, cuda, or "
        "cuda:{i}, where {i} is the number of the process on its machine, from 0.",
        brief="cpu, cuda, cuda:1 or auto.",
        otherwise="auto, a GPU each as long as there are some",
    )

    slow: tuple[str, ...] = setting(
        (),
        "Steps of that peer take FACTOR times as long as they would, asleep: 3:10 slows peer 3 "
        "tenfold; those of a task, at least FACTOR times ``step_s_min``. May be given several "
        "times.",
        brief="Slow a peer down, as in 3:10.",
        metavar="PEER:FACTOR",
    )

    faults: Path | None = setting(
        None,
        'Faults of peers and network, by time: a JSON list such as [{"at_s": 3, "kind": '
        '"crash", "peer": 2}, {"at_s": 8, "kind": "restart", "peer": 2}]. Times count from when '
        "all peers train. docs/reference/faults.md names the kinds.",
        brief="Schedule of faults.",
        otherwise="none",
        metavar="FILE.json",
    )

    linger_s: float = setting(
        3600.0,
        "How long a peer that has taken all its steps waits for slower ones, seconds.",
        low=0,
    )

    resume: bool = setting(
        False,
        "Continue in the folder of ``out`` from the checkpoints that peers left there; begin if "
        "it does not exist. So the same command line starts a run, and starts it again.",
        brief="Continue in the folder of an earlier run.",
    )

    exchange: ExchangeConfig = field(default_factory=ExchangeConfig)
    """Contents, rate and mixing of pushes."""

    def __post_init__(self) -> None:
        check_settings(self)
        if self.device is not None:
            device_of(self.device, 0)
        self.slowness()
        rule = None if self.rule_spec is None else self.rule_spec.make()
        if self.resume and self.out is None:
            raise ConfigError(
                "--resume continues in the folder of an earlier run: name it with --out"
            )
        if self.resume and rule is not None and requirements_of(rule).fixed_members:
            raise ConfigError(
                f"a swarm that trains with {rule.name} admits no peers once it has begun: no peer "
                "of it can resume, so leave --resume out"
            )

    @property
    def goes_on(self) -> bool:
        """True if there is a run to resume."""
        return self.resume and self.out is not None and (self.out / "peers").is_dir()

    @property
    def rule_spec(self) -> RuleSpec | None:
        """The rule with all of its parameters; None if the script chooses it."""
        return None if self.rule is None else read_rule(self.rule)

    def slowness(self) -> dict[int, float]:
        """Return the factors of ``slow`` by index."""
        return parse_slow(self.slow, self.ids())

    def ids(self) -> tuple[str, ...]:
        """Names of the peers: the nodes of the topology's file, or peer-0 and so on."""
        digits = len(str(self.peers - 1))
        names = parse(self.topology or "exponential", self.peers, seed=self.seed).names
        names = names or tuple(f"peer-{index:0{digits}}" for index in range(self.peers))
        if unfit := [id for id in names if not is_name(id)]:
            raise ConfigError(
                f"--topology names a node {unfit[0]!r}: a peer's name is 1 to 64 letters, digits, "
                "'.', '_' or '-'"
            )
        return names


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinesConfig:
    """The machines of the processes of `rumor run`, unless all run on this one."""

    hosts: Path | None = setting(
        None,
        "Start the script on the machines that FILE names, by ssh. One line each: its address, "
        "and what differs from the default of slots=1, device=, dir=, python=, address=, "
        "listen= and env:NAME=.",
        brief="Machines to start on, by ssh.",
        otherwise="all on this machine",
        metavar="FILE",
    )

    ssh: str = setting(
        "ssh",
        'The command that runs another one on a machine, as in "ssh -F my-config".',
        metavar="COMMAND",
    )

    port: int | None = setting(
        None,
        "Peers listen at this port of their machine, the second one at the next, and so on; tasks "
        "of a scheduler listen at free ones where these are taken.",
        brief="First port to listen on.",
        otherwise="7700 with ``hosts``, else what follows from the job's id",
        low=1,
        high=PORT_MAX,
        metavar="PORT",
    )

    dry_run: bool = setting(False, "Show what processes get; start none.")

    models: bool = setting(True, "With ``hosts``: copy the peers' models here, and merge them.")

    command: str | None = setting(
        None,
        "Command to start, for a file of settings: python train.py.",
        otherwise="the words typed",
    )

    def __post_init__(self) -> None:
        check_settings(self)


def device_of(text: str, index: int) -> str:
    """Return the device of one process of a machine, from `LaunchConfig.device`."""
    try:
        return text.format(i=index)
    except (KeyError, IndexError, ValueError):
        raise ConfigError(
            f"--device is {text!r}: write cuda:{{i}} for a GPU per process, or cpu or cuda"
        ) from None


# With -P, a file types.py in the working directory does not shadow Python's own.
PROGRAM: Final = (sys.executable, "-P", "-m", "rumor.cli", "peer")

_DESCRIBED: Final = ("total_steps", "lr_schedule", "partition", "steps")

NOT_OF_TASK: Final = ("index", "count", "seed", "device", "resume", "options")
"""Fields of a `RunConfig` that identify the peer, rather than the common training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The processes of a run: what they run, where, and with which faults."""

    config: LaunchConfig
    name: str
    """Name of the script or the task."""
    command: tuple[str, ...]
    """Command that starts a process."""
    out: Path
    """The run's folder, which may not exist yet."""
    faults: tuple["Fault", ...] = ()
    """Faults in order of time, peers by name; see `read_live_faults`."""
    training: "RunConfig | None" = None
    """The training of `rumor peer`; None for a script."""
    task: "Task | None" = None
    """The task of `training`, built."""

    @property
    def network_fails(self) -> bool:
        """True if a fault concerns the network between peers."""
        if not self.faults:
            return False
        from ...train.faults.schedule import NETWORK_KINDS

        return any(fault.kind in NETWORK_KINDS for fault in self.faults)

    def described(self, reports: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """Return the settings that a summary repeats."""
        config, training = self.config, self.training
        told = next((report for report in reports if report.get("rule")), {})
        spec = config.rule_spec or (read_rule("gosgd") if training else None)
        rule = None if spec is None else spec.make()
        trained = {} if training is None else {n: getattr(training, n) for n in _DESCRIBED}
        return {
            "task": self.name,
            "topology": told.get("topology") or config.topology or "exponential",
            "peers": config.peers,
            "seed": config.seed,
            "rule": told.get("rule") or (rule.name if rule else "gosgd"),
            "rule_spec": None if spec is None else str(spec),
            "p": told.get("p", getattr(rule, "p", None)),
            "emission": getattr(rule, "emission", "per-step"),
            "exchange": config.exchange.as_json(),
            **trained,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One peer's place in a run: its name, its folder, its command."""

    index: int
    id: str
    folder: Path
    command: tuple[str, ...]
    earlier: tuple[Path, ...] = ()
    """Folders of earlier incarnations, if different from this one."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Additions to its environment."""
