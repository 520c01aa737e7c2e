"""The place of a peer among others that start by themselves, without launcher or shared folder.

With the same list of addresses on every machine, no machine is special: each peer listens at the
listed address that is its machine's, and dials the others. The first that meet found the swarm.

A task of Slurm or torchrun knows its number, the number of tasks and their hosts: each peer listens
on a port derived from the job, and gets the addresses of several others to join.
"""

import errno
import logging
import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Final, NamedTuple, Self

from ....gossip import ConfigError
from ....gossip.protocol.rule import requirements_of
from ....gossip.transport.addresses import (
    PORT_MAX,
    bind_error,
    is_loopback,
    is_name_of_many,
    is_own,
    join_address,
    split_address,
)
from ....gossip.wire.messages import is_name
from ...config import PeerConfig

__all__ = [
    "JOINS_MAX",
    "SCHEDULERS",
    "ClusterTask",
    "Scheduler",
    "bind_at",
    "cluster_task",
    "expand",
    "expand_counts",
    "joins",
    "take_place",
]

_log = logging.getLogger("rumor")

JOINS_MAX: Final = 8
"""Addresses per peer. One answer is enough, as any member knows all others."""

# Below the ephemeral ports of clients. Jobs that share a host seldom share a block.
_PORT: Final = 20_000
_BLOCKS: Final = 768
_BLOCK: Final = 16

# Peers per machine beyond the listed addresses.
_FURTHER_MAX: Final = 64

_HOSTS: Final = re.compile(r"(?:[^][,\s]|\[[^][]*\])+")
_PART: Final = re.compile(r"\[([^][]*)\]|[^][]+")
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_COUNT: Final = re.compile(r"(\d+)(?:\(x(\d+)\))?", re.ASCII)

_claimed: Final[set[int]] = set()

Variables = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTask:
    """One task of a job, which becomes one peer."""

    scheduler: str
    job: str
    """The job's id, the same after a restart."""
    rank: int
    size: int
    """Number of tasks."""
    local_rank: int
    """Number of the task on its host, from 0."""
    places: tuple[tuple[str, int], ...]
    """Host and port of the known tasks, with hosts in the job's order."""
    host: str | None
    """Host of this task; None if its name is unknown, so that the peer must find its address."""
    port: int

    @property
    def id(self) -> str:
        """Name of its peer, with the same number of digits for all."""
        return f"peer-{self.rank:0{len(str(self.size - 1))}}"

    def variables(self, port: int | None = None, number: int = 0) -> dict[str, str]:
        """Return the variables for its peer that `environment` reads.

        Args:
            port: Port of the first task of each host; default: derived from the job.
            number: Number of other peers that its process has made before.
        """
        first = self.port - self.local_rank
        # Each swarm has its own ports.
        moved = number * self.size + (0 if port is None else port - first)
        places = [(host, number + moved) for host, number in self.places]
        own = self.port + moved
        place = (self.host, own) if self.host else None
        told = {
            "id": self.id,
            "index": str(self.rank),
            "count": str(self.size),
            "local_index": str(self.local_rank),
            "founders": "1",
            "join": ",".join(joins(places, place)),
            "bind": bind_at(self.host or "", own),
            "signals": "1",
        }
        if self.host and not told["bind"].endswith("*"):
            told["advertise"] = join_address(self.host, str(own))
        return {f"RUMOR_{name.upper()}": text for name, text in told.items()}

    def of_peers(self, ranks: int) -> Self:
        """Return the task that this one is if every *ranks* of them make one peer."""
        first, local_rank = self.port - self.local_rank, self.local_rank // ranks
        counts = Counter(host for host, _ in self.places)
        return replace(
            self,
            rank=self.rank // ranks,
            size=self.size // ranks,
            local_rank=local_rank,
            places=tuple(
                (host, port) for host, port in self.places if port - first < counts[host] // ranks
            ),
            port=first + local_rank,
        )


def joins(places: Sequence[tuple[str, int]], place: tuple[str, int] | None) -> tuple[str, ...]:
    """Return the addresses that one of several peers joins: those that follow its own.

    They connect all peers, whichever starts first. Other hosts come before the peer's own.

    >>> joins([("a", 1), ("a", 2), ("b", 1), ("b", 2)], ("a", 2))
    ('tcp://b:1', 'tcp://b:2', 'tcp://a:1')
    """
    start = places.index(place) if place in places else 0
    after = [each for each in (*places[start:], *places[:start]) if each != place]
    if place is not None:
        after.sort(key=lambda each: each[0] == place[0])
        near = [each for each in after if each[0] == place[0]][:1]
        after = [*after[: JOINS_MAX - len(near)], *near]
    told = dict.fromkeys(join_address(host, str(port)) for host, port in after)
    return tuple(told)[:JOINS_MAX]


def bind_at(host: str, port: int) -> str:
    """Return the address to listen on, with a port of the system's choice if this one is taken."""
    # ZeroMQ binds IP addresses, not names.
    where = "127.0.0.1" if host == "localhost" else host
    if not where or not is_loopback(join_address(where, "1")):
        where = "::" if ":" in host else "0.0.0.0"
    error = bind_error(where, port)
    is_taken = error is not None and error.errno == errno.EADDRINUSE
    return join_address(where, "*" if is_taken else str(port))


class Scheduler(NamedTuple):
    """How the environment of a scheduler's tasks is recognized and read."""

    marks: tuple[str, ...]
    """Variables that together identify one of its tasks."""
    read: Callable[[Variables], ClusterTask]
    """Reads a task; raises `ConfigError` if a variable is missing or invalid."""


def cluster_task(variables: Variables, ranks: int = 1) -> tuple[ClusterTask | None, int]:
    """Return the task of this process; None if no scheduler has started it as one of several.

    The second value is the number of this process in its peer.

    Args:
        variables: Its environment. ``RUMOR_CLUSTER`` may name the scheduler, or ``none``; default:
            the scheduler whose variables are set.
        ranks: Number of processes that make one peer; with several, the task counts peers.

    Raises:
        ConfigError: A variable is invalid, or the scheduler is unknown.
    """
    named, rank = variables.get("RUMOR_CLUSTER") or "auto", 0
    if named not in ("auto", "none", *SCHEDULERS):
        known = ", ".join(("auto", "none", *SCHEDULERS))
        raise ConfigError(f"there is no scheduler {named!r}: known are {known}")
    for name, each in SCHEDULERS.items():
        is_other = named not in ("auto", name)
        if name != named and not all(mark in variables for mark in each.marks):
            continue
        if is_other and ranks == 1:
            continue
        task = each.read(variables)
        if ranks > 1:
            if task.size % ranks:
                raise ConfigError(
                    f"{name} has started {task.size} processes, and a peer has {ranks}"
                )
            rank, task, ranks = task.rank % ranks, task.of_peers(ranks), 1
            if is_other or task.size == 1:
                # Another scheduler, or `rumor run`, has started the other peers.
                continue
        if named == "auto":
            _warn_of_swarms_apart(task, variables)
        return (task if task.size > 1 or named == name else None), rank
    return None, rank


@cache
def _warn_once(text: str) -> None:
    _log.warning("%s", text)


def _warn_of_swarms_apart(task: ClusterTask, variables: Variables) -> None:
    """Warn if each node of a Slurm job trains a swarm of its own."""
    tasks = variables.get("SLURM_STEP_NUM_TASKS", "1")
    if task.scheduler == "torchrun" and "SLURM_STEP_ID" in variables and tasks != "1":
        here = variables.get("LOCAL_WORLD_SIZE") == variables["WORLD_SIZE"]
        if here or is_loopback(join_address(variables["MASTER_ADDR"], "1")):
            _warn_once(
                f"Slurm runs {tasks} torchruns, and this one has workers on its own node alone, so "
                "that each node trains a swarm of its own: give all torchruns one --rdzv-endpoint "
                "in place of --standalone, or use `srun rumor run`"
            )


def _read_slurm(variables: Variables) -> ClusterTask:
    """Read a task of Slurm.

    Source: Slurm's manual, srun(1), "Output environment variables".
    """
    job, local_rank = _text(variables, "SLURM_JOB_ID"), _number(variables, "SLURM_LOCALID")
    size = _number(variables, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    hosts = expand(_text(variables, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"))
    tasks = variables.get("SLURM_STEP_TASKS_PER_NODE") or variables.get("SLURM_TASKS_PER_NODE")
    counts = expand_counts(tasks) if tasks else (-(-size // len(hosts)),) * len(hosts)
    if len(counts) != len(hosts):
        raise ConfigError(f"SLURM_STEP_TASKS_PER_NODE is {tasks!r}: there are {len(hosts)} nodes")
    step = variables.get("SLURM_STEP_ID", "0")
    first = _port_of(_digits(job) + 97 * _digits(step))
    node = _number(variables, "SLURM_NODEID", otherwise=0, below=len(hosts))
    return ClusterTask(
        scheduler="slurm",
        job=job,
        rank=_number(variables, "SLURM_PROCID", below=size),
        size=size,
        local_rank=local_rank,
        places=_places(zip(hosts, counts, strict=True), first),
        host=hosts[node],
        port=first + local_rank,
    )


def expand(text: str) -> tuple[str, ...]:
    """Expand Slurm's list of hosts: names with numbers and ranges in brackets.

    >>> expand("node[01-03,7],gpu-a[1-2]b,login")
    ('node01', 'node02', 'node03', 'node7', 'gpu-a1b', 'gpu-a2b', 'login')
    """
    names = _HOSTS.findall(text)
    # The matches must add up to the whole text, or a part of it was skipped.
    if not names or ",".join(names) != text:
        raise ConfigError(f"{text!r} is not a list of hosts such as node[01-03,7],login")
    hosts: list[str] = []
    for name in names:
        parts = [
            [part[0]] if part[1] is None else _numbers(part[1], name)
            for part in _PART.finditer(name)
        ]
        hosts += map("".join, product(*parts))
    return tuple(hosts)


def _numbers(text: str, name: str) -> list[str]:
    found: list[str] = []
    for each in text.split(","):
        match = _RANGE.fullmatch(each)
        numbers = match and range(int(match[1]), int(match[2] or match[1]) + 1)
        if not (match and numbers):
            raise ConfigError(f"{name!r}: {each!r} is neither a number nor a range such as 01-03")
        found += [f"{number:0{len(match[1])}}" for number in numbers]
    return found


def expand_counts(text: str) -> tuple[int, ...]:
    """Expand counts of tasks per node, as in ``SLURM_TASKS_PER_NODE``.

    >>> expand_counts("2(x3),1")
    (2, 2, 2, 1)
    """
    counts: list[int] = []
    for each in text.split(","):
        match = _COUNT.fullmatch(each)
        if match is None:
            raise ConfigError(f"{text!r} is not a list of counts such as 2(x3),1")
        counts += [int(match[1])] * int(match[2] or 1)
    return tuple(counts)


def _read_torchrun(variables: Variables) -> ClusterTask:
    """Read a task of torchrun, which knows only the host of the first tasks.

    Source: PyTorch's documentation, "torchrun (Elastic Launch)", "Environment Variables".
    """
    size, local_rank = _number(variables, "WORLD_SIZE"), _number(variables, "LOCAL_RANK")
    master, port = _text(variables, "MASTER_ADDR"), _number(variables, "MASTER_PORT")
    here = _number(variables, "LOCAL_WORLD_SIZE", otherwise=1)
    first, run = _port_of(port), variables.get("TORCHELASTIC_RUN_ID", "")
    rank = _number(variables, "RANK", below=size)
    node = _number(variables, "GROUP_RANK", otherwise=rank // here)
    return ClusterTask(
        scheduler="torchrun",
        # "none" is torchrun's default, common to all runs.
        job=str(port) if run == "none" or not is_name(run) else run,
        rank=rank,
        size=size,
        local_rank=local_rank,
        places=_places([(master, min(here, size))], first),
        host=master if node == 0 else None,
        port=first + local_rank,
    )


SCHEDULERS: Final[Mapping[str, Scheduler]] = {
    # First, since a step of Slurm may run torchrun.
    "torchrun": Scheduler(
        marks=("TORCHELASTIC_RUN_ID", "RANK", "LOCAL_RANK", "WORLD_SIZE"), read=_read_torchrun
    ),
    # A batch script also has SLURM_PROCID but is not a step: it may run `rumor run -n 4` itself.
    "slurm": Scheduler(
        marks=("SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_JOB_ID"),
        read=_read_slurm,
    ),
}
"""Schedulers by name, in the order in which they are tried."""


def _places(counts: Iterable[tuple[str, int]], first: int) -> tuple[tuple[str, int], ...]:
    return tuple((host, first + index) for host, count in counts for index in range(count))


def _port_of(number: int) -> int:
    """Return the first port on each host, the same for all tasks of a job."""
    return _PORT + _BLOCK * (number % _BLOCKS)


def _digits(text: str) -> int:
    return int("0" + "".join(filter(str.isdecimal, text)))


def _text(variables: Variables, *names: str) -> str:
    for name in names:
        if variables.get(name):
            return variables[name]
    raise ConfigError(f"{names[0]} is not set: is this a task of the scheduler?")


def _number(
    variables: Variables, *names: str, otherwise: int | None = None, below: int | None = None
) -> int:
    """Return a number of 0 or more, from the first variable that is set."""
    name = next((name for name in names if variables.get(name)), None)
    if name is None and otherwise is not None:
        return otherwise
    text = _text(variables, *names)
    if not (text.isascii() and text.isdecimal()):
        raise ConfigError(f"{name} is {text!r}: it must be a whole number")
    if below is not None and int(text) >= below:
        raise ConfigError(f"{name} is {text}: it must be below {below}")
    return int(text)


def take_place(config: PeerConfig) -> PeerConfig:
    """Return the settings of a peer that listens at a listed address of its machine.

    If another process has that address, the peer takes the next one of its machine in the list, and
    then, unless it is a loopback address, the ports that follow. Nothing changes if ``bind`` is
    given, or no listed address is this machine's.
    """
    if config.is_given("bind") or config.rendezvous is not None:
        return config
    listed = [each for each in config.join if not is_name_of_many(each)]
    # Behind a router that forwards the port, the listed address is not one of this machine's.
    own = [each for each in listed if each in config.advertise or is_own(split_address(each)[0])]
    # A single address on this machine is that of a founder, which may start later.
    if not own or (len(config.join) == 1 and is_loopback(own[0])):
        return config
    host, first = split_address(own[0])
    if not (config.advertise or is_loopback(own[0])):
        ports = range(int(first) + 1, min(int(first) + _FURTHER_MAX, PORT_MAX) + 1)
        own += [join_address(host, str(port)) for port in ports]
    for address in own:
        host, port = split_address(address)
        if not _is_claimed(int(port)) or (bind := bind_at(host, int(port))).endswith("*"):
            continue
        if address not in listed:
            _log.warning("port %s is in use, perhaps by a peer: this one takes %s", first, port)
        founders = config.founders
        if requirements_of(config.make_rule()).fixed_members and founders == 1:
            founders = len(listed)  # such a rule admits no newcomer
        advertise = config.advertise or address
        return replace(config, bind=bind, advertise=advertise, founders=founders)
    return config


def _is_claimed(port: int) -> bool:
    """Claim a port for this process, so that processes that start together take different ones."""
    # The UDP port of the same number: nothing else needs it, and it ends with the process.
    if port not in _claimed:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as claim:
            try:
                claim.bind(("127.0.0.1", port))
            except OSError:
                return False
            # It stays open, also in the script that `rumor run` becomes.
            os.set_inheritable(claim.detach(), True)
        _claimed.add(port)
    return True
