"""What a run was asked for: how many peers, how they exchange, and where they are."""

import re
import shlex
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from ...gossip.errors import ConfigError, did_you_mean
from ...gossip.protocol.rule import requirements_of
from ...gossip.rules.registry import RuleSpec, read_rule
from ...gossip.rules.robust.registry import NONE
from ...gossip.transport.addresses import PORT_MAX
from ...gossip.wire.messages import is_name
from ...topology import parse
from ..settings.exchange import ExchangeConfig
from ..settings.options import config_of, option, read_settings

__all__ = [
    "LaunchConfig",
    "MachinesConfig",
    "config_from",
    "device_of",
    "parse_slow",
    "settings_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig:
    """A run of several processes, each with a peer in it.

    Fields without a docstring are those of `PeerConfig` and `RuleConfig`. What is not given is
    the script's own, or the default.

    Raises:
        ConfigError: A field is out of range.
    """

    peers: int = 4
    """Number of processes."""

    topology: str | None = None
    """Who may push to whom: a spec of one of the families that `rumor topology --list` shows; the
    script's own, or exponential, unless given."""

    rule: str | None = None

    p: float | None = None

    emission: str = "per-step"

    robust: str = NONE

    exchange: ExchangeConfig = field(default_factory=ExchangeConfig)
    """What a push carries, at what rate, and when it is mixed."""

    seed: int = 0
    """Of a task's model and data and of the peers' random choices. Scripts read it as
    ``environment().seed``."""

    device: str | None = None
    """Where to train, which scripts read as ``environment().device``: cpu, cuda, or cuda:{i}, where
    {i} is the number of the process on its machine, from 0; auto, a GPU each as long as there are
    some, unless given."""

    slow: tuple[str, ...] = ()
    """Steps of that peer take FACTOR times as long as they would, asleep: 3:10 slows peer 3
    tenfold; those of a task, at least FACTOR times ``step_s_min``. May be given several times."""

    faults: Path | None = None
    """What is done to peers and network, and when: a JSON list such as [{"at_s": 3, "kind":
    "crash", "peer": 2}, {"at_s": 8, "kind": "restart", "peer": 2}]. Times count from when all peers
    train. docs/reference/faults.md names the kinds; none unless given."""

    linger_s: float = 3600.0
    """How long a peer that has taken all its steps waits for slower ones, seconds."""

    leave_s: float = 10.0

    key: Path | None = None
    """This machine's key, of `rumor keygen`: the roster must list it under a name that is for all
    peers, such as peer-*; the script's own, or none, unless given."""

    roster: Path | None = None

    log_every: int = 10
    """Steps between two rows of metrics.jsonl."""

    loggers: tuple[str, ...] = ()

    metrics_host: str = "127.0.0.1"

    metrics_port: int | None = None
    """Peer 0 serves Prometheus metrics at http://HOST:PORT/metrics, peer 1 at the next port,
    and so on (extra prometheus); with 0, the system chooses, and each peer's log tells; not served
    unless given."""

    out: Path | None = None
    """The run's folder; runs/NAME-TIME, by the task's or script's name, unless given."""

    resume: bool = False
    """Go on in the folder of ``out`` from the checkpoints that peers left there; begin where it is
    not there. So the same command line starts a run, and starts it again."""

    def __post_init__(self) -> None:
        for name in ("peers", "log_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{option(name)} is {getattr(self, name)}: it must be at least 1")
        for name in ("linger_s", "leave_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{option(name)} is {getattr(self, name)}: it must be 0 or more")
        parse_slow(self.slow, self.peers)
        if self.device is not None:
            device_of(self.device, 0)
        self.ids()
        rule = None if self.rule_spec is None else self.rule_spec.make()
        if self.resume and self.out is None:
            raise ConfigError(
                "--resume goes on in the folder of an earlier run: name it with --out"
            )
        if self.resume and rule is not None and requirements_of(rule).fixed_members:
            raise ConfigError(
                f"a swarm that trains with {rule.name} takes nobody in once it has begun: no peer "
                "of it can resume, so leave --resume out"
            )

    @property
    def goes_on(self) -> bool:
        """Whether there is a run to go on with."""
        return self.resume and self.out is not None and (self.out / "peers").is_dir()

    @property
    def rule_spec(self) -> RuleSpec | None:
        """The rule with all of its parameters; None where it is the script's.

        Raises:
            ConfigError: There is no such rule, or it does not take these.
        """
        if (self.rule, self.p, self.emission, self.robust) == (None, None, "per-step", NONE):
            return None
        return read_rule(self.rule or "gosgd", self.p, self.emission, self.robust)

    def ids(self) -> tuple[str, ...]:
        """What the peers are called: as the nodes of the topology's file, or peer-0 and so on.

        Raises:
            TopologyError: The topology is not valid, or not for so many peers.
            ConfigError: It names a node as no peer can be called.
        """
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
    """Where the processes of `rumor run` are, other than all on this machine.

    Raises:
        ConfigError: A field is out of range.
    """

    hosts: Path | None = None
    """Start the script on the machines that FILE names, by ssh. One line each: its address, and
    what differs from the default of slots=1, device=, dir=, python=, user=, port=, key=,
    address=, listen= and env:NAME=; all on this machine unless given."""

    ssh: str = "ssh"
    """The command that runs another one on a machine, as in "ssh -F my-config"."""

    port: int | None = None
    """Peers listen at this port of their machine, the second one at the next, and so on, at free
    ones where these are taken; 7700 with ``hosts``, else what follows from the job's id, unless
    given."""

    scheduler: str = "auto"
    """Whose task this process is, so that it becomes one peer itself: slurm or torchrun. auto finds
    out, unless ``peers`` or ``hosts`` is given; with none, it is nobody's."""

    no_models: bool = False
    """With ``hosts``: leave the peers' models where they are, and merge none here."""

    def __post_init__(self) -> None:
        if self.port is not None and not 0 < self.port <= PORT_MAX:
            raise ConfigError(f"--port is {self.port}: it must be 1 to {PORT_MAX}")


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


def device_of(text: str, index: int) -> str:
    """The device of one process of a machine, of what `LaunchConfig.device` says.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        return text.format(i=index)
    except (KeyError, IndexError, ValueError):
        raise ConfigError(
            f"--device is {text!r}: write cuda:{{i}} for a GPU per process, or cpu or cuda"
        ) from None


def _read_file(path: Path) -> dict[str, Any]:
    """Read a run from a TOML file.

    Its keys are the options of ``rumor run``, with ``_`` or ``-``, and ``command``: a text, or a
    list of words.

    Returns:
        Values by the names of parameters; ``command`` is a list.

    Raises:
        ConfigError: It cannot be read, or has a key or a value that makes no sense; it is named.
    """
    from ...train.storage.files import read_bytes

    try:
        content = tomllib.loads(read_bytes(path).decode())
    except RecursionError:
        raise ConfigError(f"{path}: it is nested too deeply") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    known = {
        **read_settings(LaunchConfig),
        **read_settings(MachinesConfig),
        **read_settings(ExchangeConfig),
    }
    found: dict[str, Any] = {}
    for key, value in content.items():
        name = key.replace("-", "_")
        if name == "command":
            words = shlex.split(value) if isinstance(value, str) else value
            if not _is_list_of(words, str):
                raise ConfigError(f"{path}: command must be a text or a list of words")
            found[name] = words
            continue
        if name not in known:
            hint = did_you_mean(name, (*known, "command"), f": known are {', '.join(known)}")
            raise ConfigError(f"{path}: there is no key {key!r}{hint}")
        setting = known[name]
        found[name] = _value(value, setting.kind, several=setting.several, where=f"{path}: {key}")
    return found


def _value(value: Any, kind: type, *, several: bool, where: str) -> Any:
    if several:
        each = [value] if isinstance(value, str) else value
        if not _is_list_of(each, kind):
            raise ConfigError(f"{where} is {value!r}: it must be a list")
        return tuple(each)
    if kind is float and type(value) is int:
        return float(value)
    if kind is Path and isinstance(value, str):
        return Path(value)
    if type(value) is not kind:
        raise ConfigError(f"{where} is {value!r}: it must be {_KINDS.get(kind, 'a text')}")
    return value


_KINDS: Final = {int: "a whole number", float: "a number", bool: "true or false"}


def _is_list_of(values: Any, kind: type) -> bool:
    return isinstance(values, list) and bool(values) and all(type(v) is kind for v in values)


def settings_of(config: LaunchConfig) -> dict[str, Any]:
    """All settings that are not None, by name, the exchange's among them; paths as text."""
    own = {each.name: getattr(config, each.name) for each in fields(config)}
    whole = own | config.exchange.as_json()
    given = {name: v for name, v in whole.items() if name != "exchange" and v is not None}
    return {name: str(v) if isinstance(v, Path) else v for name, v in given.items()}


def config_from(
    typed: Mapping[str, Any], names: Collection[str]
) -> tuple[LaunchConfig, MachinesConfig, list[str], set[str]]:
    """Make a run of options and words, or of a file that the words name.

    Args:
        typed: All options by name, with ``words``.
        names: Of those that were typed: they count more than the file.

    Returns:
        The run, where it runs, the words of its command, and the names of all options that were
        typed or are in the file.

    Raises:
        ConfigError: See `LaunchConfig` and `MachinesConfig`, or the file makes no sense.
    """
    words, said = list(typed["words"] or ()), {*names}
    settings = dict(typed)
    if words and words[0].endswith(".toml"):
        content = _read_file(Path(words[0]))
        words = words[1:] or content.pop("command", [])
        settings |= {name: content[name] for name in content if name not in names}
        said |= {*content}
    exchange = config_of(ExchangeConfig, settings)
    config = config_of(LaunchConfig, settings | {"exchange": exchange})
    return config, config_of(MachinesConfig, settings), words, said
