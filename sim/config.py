"""Settings of a simulation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..gossip import ProtocolConfig
from ..gossip.config import ShareSettings, timing
from ..gossip.errors import ConfigError
from ..gossip.protocol.rule import shards_of
from ..gossip.rules.plugin import name_of
from ..gossip.rules.registry import RuleSpec, read_rule
from ..gossip.specs.parameter import check_settings, setting, settings_of
from ..gossip.specs.spec import described
from ..train.config import GossipSettings, RunConfig, ShardSettings, TrainingSettings
from ..train.faults.schedule import Fault
from ..train.tasks.lr_schedule import parse_lr_schedule
from .models.network import NetworkConfig
from .models.step_time import PACES

if TYPE_CHECKING:
    from torch import nn

    from ..train.tasks.task import Task
    from .batched.vector_tasks import VectorTask

__all__ = ["ENGINES", "SimulationConfig", "TaskFunction"]

TaskFunction: TypeAlias = Callable[..., "Task | VectorTask | nn.Module"]
"""Makes a task, or a model with its data next to it, without arguments or from ``seed``."""

ENGINES = ("auto", "dense", "loop", "vmap")
"""Ways to compute steps; ``auto`` chooses by the kind of model."""

_COUNT_MAX = 2**53


@dataclass(frozen=True, kw_only=True)
class SimulationConfig(TrainingSettings, ShareSettings, ShardSettings, GossipSettings):
    """A swarm, its environment, and how to compute it.

    Raises:
        ConfigError: A field is out of range.
    """

    task: "str | Task | VectorTask | TaskFunction" = setting(
        "digits",
        f"{settings_of(RunConfig)['task'].help} Without a model, for up to a million workers: "
        "``consensus`` (averaging of given vectors) and ``noise`` (unit Gaussian steps in place of "
        "gradients).",
        brief=settings_of(RunConfig)["task"].brief,
    )
    workers: int = setting(
        64, "Number of workers.", brief="Number of workers.", low=1, flags=("--workers", "-n")
    )
    rule: str = setting(
        "gosgd",
        "Spec of the algorithm: a name, with parameters as in ``gosgd:p=0.5``, or "
        "``module:Class:key=value`` for one of your own.",
        brief="When to push, how to mix: `rumor rules`.",
        metavar="SPEC",
    )
    p: float | None = setting(
        None,
        "Shorthand for the rule's parameter ``p``; None for its default. More keeps models closer "
        "together and costs traffic.",
    )
    time_s: float | None = setting(
        None,
        "Stop at this virtual time, seconds, whatever the steps: fast workers take more of them.",
        brief="Stop at this virtual time.",
        above=0,
        otherwise="no limit",
    )
    batch_sizes: tuple[str, ...] = setting(
        (),
        "Give a worker batches of N samples: 3:128. May be given several times. "
        "Under ``gosgd:samples=32`` its weight grows accordingly.",
        metavar="WORKER:N",
    )
    step_s: float = setting(
        0.1,
        "Mean virtual time of a step at speed 1x, seconds.",
        brief="Time of a step at speed 1x.",
        above=0,
    )
    pace: str = setting(
        "constant", f"How steps of one worker vary: {described(PACES)}.", metavar="SPEC"
    )
    speeds: str | None = setting(
        None,
        "Classes of speed, as in 0.5x:25%,1x:75%: a quarter of the workers at half speed.",
        brief="Classes, as in 0.5x:25%,1x:75%.",
        otherwise="1x for all",
        metavar="CLASSES",
    )
    slow: tuple[str, ...] = setting(
        (),
        "Slow a worker down: with 3:10, steps of worker 3 take ten times as long. May be "
        "given several times.",
        brief="Slow a worker down, as in 3:10.",
        metavar="WORKER:FACTOR",
    )
    exchange_s: float = setting(
        0.0,
        "Time that a push or a mix adds to a worker's step, seconds, to copy, round and check the "
        "whole model. `rumor calibrate` measures it.",
        low=0,
    )
    network: str | NetworkConfig = setting(
        "lan",
        "ideal, datacenter, lan, wan, lossy, or a file that says more. ``latency_s``, "
        "``bandwidth_mbit``, ``loss`` and ``duplicates`` change one thing "
        "about it.",
        brief="Network between workers.",
        metavar="NAME",
    )
    latency_s: float | None = setting(
        None, "Least time that a message takes, one way, seconds.", otherwise="the network's"
    )
    bandwidth_mbit: float | None = setting(
        None, "Bandwidth of each host's uplink, Mbit/s.", otherwise="the network's"
    )
    loss: float | None = setting(
        None, "Probability that a message is lost.", otherwise="the network's", metavar="PART"
    )
    duplicates: float | None = setting(
        None, "Probability that a message arrives twice.", otherwise="the network's", metavar="PART"
    )
    stands_for: float | None = setting(
        None,
        "Parameters of a larger model that this one stands for: bandwidths and frames are "
        "scaled down, so that a share takes as long as that model's would, and other messages "
        "take no longer.",
        brief="Parameters of the model it stands for.",
        above=0,
        otherwise="none",
    )
    faults: str | Path | Sequence[Fault | Mapping[str, Any]] = setting(
        (),
        'Faults, as in [{"at_s": 3, "kind": "crash", "peer": 2}]: crash, restart, mass-restart, '
        "pause, continue, slow, clock-jump, cut, partition, heal, loss, duplicate, replay, delay, "
        "reset, join, leave, finish, diverge. With them each worker gossips about members, as "
        "real peers do. And attacks by Byzantine workers, whose figures are left out, as in "
        '[{"at_s": 0, "kind": "far", "peers": [2]}]: nan, far, inflate, flood, sign-flip, ipm, '
        "alie, dissensus, drift.",
        brief="Schedule of faults.",
        metavar="FILE.json",
    )
    storm: str | None = setting(
        None,
        "Random faults, drawn from the seed for these workers and ``time_s``: a name that "
        "`--storm list` lists. A network of its own takes the place of ``network``.",
        brief="A named storm of faults.",
        otherwise="none",
    )
    storm_scale: float = setting(
        1.0,
        "How many times as fast the storm goes: with 60, an hour of it strikes within a minute.",
        above=0,
    )
    timing: str = setting(
        "lan",
        "How long peers wait for one another: values for one machine, one network, or the "
        "internet.",
        brief="Timeouts between peers.",
        metavar="local|lan|wan",
    )
    checkpoint_every_s: float = setting(
        60.0,
        "Virtual time between two checkpoints of a worker that is to start again from one, "
        "seconds.",
        above=0,
    )
    engine: str = setting(
        "auto",
        "dense (multilayer perceptrons in closed form, many workers at once), vmap (other models, "
        "many at once), loop (one worker after another, any model), or auto: by the kind of "
        "model. They differ in rounding.",
        brief="How steps are computed.",
        choices=ENGINES,
        metavar="NAME",
    )
    decide: str = setting(
        "auto",
        "Decides on exchanges: protocol (that of each worker, as live), compiled (a fast "
        "path in machine code with the same result, compiled at its first use), or auto: the "
        "fast path from 20,000 steps of all workers on, for plain exchanges, else the "
        "protocols. Each run on the fast path compares its first window. Results do not "
        "depend on it.",
        choices=("auto", "protocol", "compiled"),
    )
    device: str = setting(
        "cpu",
        "Where models are trained: cpu, cuda, cuda:1; auto takes a GPU if there is one. Results "
        "on a GPU differ from the CPU's in their last digits. ``consensus`` and ``noise`` have "
        "no model, and need the CPU.",
        brief="cpu, cuda, cuda:1 or auto.",
    )
    threads: int | None = setting(
        None, "Cores to use. Results do not depend on it.", low=1, otherwise="all"
    )
    window: int | None = setting(
        None,
        "Steps that are scheduled before they are computed. Fewer need less memory; no bit "
        "depends on it.",
        low=1,
        otherwise="4 for each worker",
        metavar="STEPS",
    )
    eval_every: int | None = setting(
        None,
        "Steps of a worker at speed 1x between two measurements.",
        low=1,
        otherwise="a fortieth of all",
        metavar="STEPS",
    )
    tested: int | None = setting(
        None, "Held-out samples that a measurement takes, evenly spaced.", low=1, otherwise="all"
    )
    workers_tested: int | None = setting(
        None,
        "Single workers whose models are measured in addition to the merged one, evenly "
        "spaced; 0 is faster.",
        low=0,
        otherwise="32 at most",
    )
    memory_gib: float | None = setting(
        None,
        "Refuse a run that would need more memory than this, GiB.",
        above=0,
        otherwise="what is free",
    )

    def __post_init__(self) -> None:
        check_settings(self)
        for name, value in vars(self).items():
            if isinstance(value, int) and name != "seed" and value > _COUNT_MAX:
                raise ConfigError(f"{name} is {value}: it must be {_COUNT_MAX:,} at most")
        self._check_mixed()
        if self.storm is not None and self.time_s is None:
            raise ConfigError("a storm needs time_s: it is drawn for the time that a run lasts")
        if self.storm is not None and self.faults:
            raise ConfigError("faults and a storm are both given: pass either, not both")
        parse_lr_schedule(self.lr_schedule or "constant")
        object.__setattr__(self, "shards", shards_of(self.rule_spec.make(), self.shards))
        if self.shards_per_push > self.shards:
            raise ConfigError(
                f"shards_per_push is {self.shards_per_push}: it must be from 1 to shards, "
                f"{self.shards}"
            )
        # Errors in these are found before anything is made.
        _ = self.protocol, self.rule_spec

    def _check_mixed(self) -> None:
        # Imported here, since it imports torch, which options do not need.
        from ..train.tasks.task import Task
        from .batched.vector_tasks import VectorTask

        if not callable(self.task) and not isinstance(self.task, str | Task | VectorTask):
            words = "a name, a Task or a function that returns one"
            raise ConfigError(f"task is {self.task!r}: it must be {words}")
        if not isinstance(self.network, str | NetworkConfig):
            raise ConfigError(f"network is {self.network!r}: it must be a name or a NetworkConfig")
        is_list = isinstance(self.faults, Sequence) and all(
            isinstance(fault, Fault | Mapping) for fault in self.faults
        )
        if not (is_list or isinstance(self.faults, str | Path)):
            raise ConfigError(f"faults is {self.faults!r}: it must be a file, or a list of faults")

    @property
    def protocol(self) -> ProtocolConfig:
        """Configuration of the workers' protocols."""
        return ProtocolConfig(
            wire=self.wire,
            shards_per_push=self.shards_per_push,
            shared_memory=False,
            **timing(self.timing),
        )

    @property
    def rule_spec(self) -> RuleSpec:
        """The rule with all of its parameters, however they were given."""
        return read_rule(self.rule, self.p)

    @property
    def task_name(self) -> str:
        """Name of the task."""
        if isinstance(self.task, str):
            return self.task
        return name_of(self.task) if callable(self.task) else self.task.name
