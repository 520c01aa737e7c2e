"""A run of somebody's own training script: what was asked for, and what each process is told."""

import json
import os
import shlex
import shutil
import sys
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from ...gossip.config import ProtocolConfig
from ...gossip.errors import ConfigError
from ...gossip.protocol.rule import requirements_of
from ...gossip.rules.registry import RuleSpec, read_rule
from ...gossip.rules.robust.registry import NONE
from ...gossip.transport.addresses import PORT_MAX
from ..run_folder import new_folders
from ..settings.exchange import ExchangeConfig
from ..settings.options import config_of, option, read_settings
from .config import parse_slow, peer_ids, require_keys
from .folder import Place, set_aside
from .resume import require_over

__all__ = [
    "MachinesConfig",
    "ScriptConfig",
    "ScriptFolder",
    "check_settings",
    "config_from",
    "find_command",
    "find_folder",
    "read_file",
    "script_of",
    "settings_of",
    "variables",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptConfig:
    """A run of several processes of one script on this machine, each with a peer in it.

    Fields without a docstring are those of `PeerConfig` and `RuleConfig`. What is not given is
    the script's own, or the default.

    Raises:
        ConfigError: A field is out of range.
    """

    peers: int = 4
    """Number of processes."""

    topology: str | None = None

    rule: str | None = None

    p: float | None = None

    emission: str = "per-step"

    robust: str = NONE

    exchange: ExchangeConfig = field(default_factory=ExchangeConfig)
    """What a push carries, at what rate, and when it is mixed."""

    seed: int = 0
    """Of the peers' random choices. Scripts read it as ``environment().seed``."""

    device: str | None = None
    """Which device scripts are to use, as ``environment().device`` tells them: cpu, cuda, or
    cuda:{i}, where {i} is the number of the process on its machine, from 0; auto, a GPU each as
    long as there are some, unless given."""

    slow: tuple[str, ...] = ()
    """Steps of that peer take FACTOR times as long as they would, asleep: 3:10 slows peer 3
    tenfold. May be given several times."""

    faults: Path | None = None
    """What is done to the processes, and when: a JSON list such as [{"at_s": 30, "kind": "crash",
    "peer": 2}, {"at_s": 45, "kind": "restart", "peer": 2}]. Times count from when all peers train.
    docs/reference/faults.md names the kinds, of which those of the network are for ``rumor
    launch``; none unless given."""

    linger_s: float = 3600.0
    """How long a peer that has taken all its steps waits for slower ones, seconds."""

    leave_s: float = 10.0

    key: Path | None = None
    """This machine's key, of `rumor keygen --name`: it must be for the names of all peers, such as
    peer-*; the script's own, or none, unless given."""

    roster: Path | None = None

    receipts: bool = False

    receipts_check: str = "share"

    log_every: int = 10
    """Steps between two rows of metrics.jsonl."""

    loggers: tuple[str, ...] = ()

    metrics_host: str = "127.0.0.1"

    metrics_port: int | None = None
    """Peer 0 serves Prometheus metrics at http://HOST:PORT/metrics, peer 1 at the next port,
    and so on (extra prometheus); with 0, the system chooses, and each peer's log tells; not served
    unless given."""

    out: Path | None = None
    """The run's folder; runs/SCRIPT-TIME unless given."""

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
            _device(self.device, 0)
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
        """What the peers are called; see `peer_ids`."""
        return peer_ids(self.topology or "exponential", self.peers, self.seed)

    def described(self, name: str, reports: Collection[Mapping[str, Any]]) -> dict[str, Any]:
        """What a summary repeats of it.

        Args:
            name: Of the script.
            reports: What peers said of their ends: the rule and the graph may be the script's.
        """
        told = next((report for report in reports if report.get("rule")), {})
        spec = self.rule_spec
        rule = None if spec is None else spec.make()
        return {
            "task": name,
            "topology": told.get("topology") or self.topology or "exponential",
            "peers": self.peers,
            "seed": self.seed,
            "rule": told.get("rule") or (rule.name if rule else "gosgd"),
            "rule_spec": None if spec is None else str(spec),
            "p": told.get("p", getattr(rule, "p", None)),
            "emission": getattr(rule, "emission", self.emission),
            "exchange": self.exchange.as_json(),
        }


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


def _device(text: str, index: int) -> str:
    try:
        return text.format(i=index)
    except (KeyError, IndexError, ValueError):
        raise ConfigError(
            f"--device is {text!r}: write cuda:{{i}} for a GPU per process, or cpu or cuda"
        ) from None


def read_file(path: Path) -> dict[str, Any]:
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
        **read_settings(ScriptConfig),
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
            near = get_close_matches(name, (*known, "command"), 1)
            hint = f", did you mean {near[0]}?" if near else f": known are {', '.join(known)}"
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


def find_command(words: Sequence[str], *, here: bool = True) -> tuple[tuple[str, ...], str]:
    """Make a command of what was typed.

    Args:
        words: A program and its arguments, or a Python script and its arguments.
        here: Whether it is to run on this machine, so that it must be there.

    Returns:
        What starts a process, and the name of the script.

    Raises:
        ConfigError: There is no such program or script.
    """
    if not words:
        raise ConfigError(
            "there is nothing to run: write `rumor run -n 4 -- python train.py --my args`, or "
            "name a .toml file with a command in it"
        )
    python = sys.executable if here else "python"
    command = (python, *words) if words[0].endswith(".py") else tuple(words)
    if here and shutil.which(command[0]) is None:
        raise ConfigError(f"there is no program {command[0]!r}")
    script = script_of(command)
    if here and script is not None and not Path(script).is_file():
        raise ConfigError(f"there is no script {script!r} in {Path.cwd()}")
    return command, Path(script or command[0]).name


def script_of(command: Sequence[str]) -> str | None:
    """The file among the words of a command that Python runs; None where it is another command."""
    is_python = Path(command[0]).name.startswith("python")
    return command[1] if is_python and len(command) > 1 and command[1].endswith(".py") else None


def check_settings(config: ScriptConfig, out: Path) -> None:
    """See that what was asked for goes together: each peer would refuse it, after the start.

    Args:
        config: The run.
        out: Its folder, which need not be there.

    Raises:
        ConfigError: It does not.
    """
    from ...train.config import PeerConfig

    given = {"rule": config.rule_spec and config.rule_spec.make(), "topology": config.topology}
    told: Any = {name: value for name, value in given.items() if value is not None}
    if config.topology is not None:
        # Else the graph may be the script's.
        told["founders"] = config.peers
    told |= {name: getattr(config, name) for name in _TRUST}
    PeerConfig(**told, out=out, loggers=config.loggers, **config.exchange.settings())


_TRUST: Final = ("key", "roster", "receipts", "receipts_check")


def find_folder(config: ScriptConfig, script: str, *, here: bool = True) -> Path:
    """Where the run goes; nothing is made yet.

    Args:
        config: The run.
        script: Its name.
        here: Whether its peers run on this machine.

    Raises:
        ConfigError: The folder is taken, or cannot be written to, or what was asked for does not go
            together.
    """
    from ...sim.results.files import check_folder
    from ...train.loop.metrics_port import require_free_ports

    name = Path(script).stem
    out = config.out or next(path for path in new_folders(name) if not os.path.exists(path))
    check_settings(config, out)
    if config.resume and not here:
        raise ConfigError(
            "--resume is for peers on this machine: with --hosts, name a new --out; checkpoints "
            "stay in each peer's folder on its own"
        )
    if here:
        require_keys(config.key, config.roster, config.ids(), receipts=config.receipts)
        if config.metrics_port is not None:
            require_free_ports(config.metrics_port, config.peers, config.metrics_host)
    if config.goes_on:
        _require_same(config, out)
    else:
        check_folder(out)
    return out


def _require_same(config: ScriptConfig, out: Path) -> None:
    """See that the run in a folder is over, and had the same peers.

    Raises:
        ConfigError: It was another one, or some of its peers still run.
    """
    folders = {path.name: [path] for path in sorted((out / "peers").iterdir()) if path.is_dir()}
    if other := sorted({*folders} - {*config.ids()}):
        raise ConfigError(
            f"--resume {out}: {other[0]} was a peer there, and would be none now: give the same "
            "options as before, -n among them"
        )
    require_over(out, folders)


def variables(
    config: ScriptConfig, out: Path, index: int, local: int | None = None
) -> dict[str, str]:
    """The environment of one process, beside what it inherits; see `rumor.train.environment`.

    Args:
        config: The run.
        out: Its folder.
        index: Which of the processes it is.
        local: Which of those on its machine; all are on one unless given.
    """
    id, local = config.ids()[index], index if local is None else local
    told: dict[str, Any] = {
        "id": id,
        "index": index,
        "local_index": local,
        "count": config.peers,
        # Who has no checkpoint joins those that have one.
        "founders": 1 if config.goes_on else config.peers,
        "seed": config.seed,
        "out": (out / "peers" / id).absolute(),
        "rendezvous": (out / "rendezvous").absolute(),
        "log_every": config.log_every,
        "linger_s": config.linger_s,
        "leave_s": config.leave_s,
        "signals": 1,
    }
    if config.key is not None and config.roster is not None:
        told |= {"key": config.key.absolute(), "roster": config.roster.absolute()}
    if config.resume:
        told["resume"] = 1
    if config.receipts:
        told |= {"receipts": 1, "receipts_check": config.receipts_check}
    if config.device is not None:
        told["device"] = _device(config.device, local)
    if config.topology is not None:
        told["topology"] = config.topology
    if config.rule_spec is not None:
        told["rule"] = config.rule_spec
    if config.metrics_port is not None:
        told["metrics_host"] = config.metrics_host
        told["metrics_port"] = config.metrics_port and config.metrics_port + local
    if (factor := parse_slow(config.slow, config.peers).get(index)) is not None:
        told["slow"] = factor
    told |= _exchange(config.exchange)
    return {f"RUMOR_{name.upper()}": str(value) for name, value in told.items()}


def _exchange(exchange: ExchangeConfig) -> dict[str, Any]:
    """What is not as by default."""
    usual, given = ExchangeConfig().settings(), exchange.settings()
    told = {name: given[name] for name in given if given[name] != usual[name]}
    if "protocol" in told:
        # Whether there are relays follows from what else a peer is told.
        before, now = (
            asdict(ProtocolConfig(relays=given["protocol"].relays)),
            asdict(told["protocol"]),
        )
        told["protocol"] = json.dumps({k: v for k, v in now.items() if v != before[k]})
    return told


class ScriptFolder:
    """The folder of a run of a script, and all places in it.

    Args:
        config: The run.
        command: What starts a process.
        out: The run's folder.
    """

    network_faults: Path | None = None
    """A script's peers open their own sockets: their network cannot be made to fail."""

    def __init__(self, config: ScriptConfig, command: Sequence[str], out: Path) -> None:
        self._config = config
        self._command = tuple(command)
        self._out = out

    def found(self) -> list[Place]:
        """Make the run's folders, or find those of a run that goes on.

        Returns:
            The places of the peers that found it.

        Raises:
            OSError: A folder cannot be made.
        """
        goes_on = self._config.goes_on
        # Before the folders are there: whether they are says who founds.
        each = [variables(self._config, self._out, index) for index in range(self._config.peers)]
        (self._out / "rendezvous").mkdir(parents=True, exist_ok=goes_on)
        for path in (self._out / "rendezvous").glob("*.addr"):
            path.unlink()  # nobody listens there any more
        places = []
        for index, id in enumerate(self._config.ids()):
            places.append(self._make(index, id, id, each[index], exist_ok=goes_on))
            set_aside(places[-1].folder)
        return places

    def newcomer(self, number: int) -> Place:
        """Make a place for a peer that joins: join-1, join-2 and so on. Its ``environment().index``
        is one that another has, too, so that scripts find a part of the data for it.

        Raises:
            OSError: The folder cannot be made.
        """
        id, local = f"join-{number}", self._config.peers + number - 1
        told = variables(self._config, self._out, local % self._config.peers, local)
        told.pop("RUMOR_SLOW", None)
        return self._make(local, id, id, told | {"RUMOR_ID": id, "RUMOR_FOUNDERS": "1"})

    def next_life(self, place: Place, *, kept: bool) -> Place:
        """A place for the next life of a peer.

        Args:
            place: Of the life that is over.
            kept: Whether it goes on from its last checkpoint; else it gets a new folder.

        Raises:
            OSError: The folder cannot be made.
        """
        told = {**place.variables, "RUMOR_FOUNDERS": "1"}
        if kept:
            set_aside(place.folder)
            return replace(place, variables=told | {"RUMOR_RESUME": "1"})
        earlier = (*place.earlier, place.folder)
        fresh = self._make(place.index, place.id, f"{place.id}.life-{len(earlier) + 1}", told)
        return replace(fresh, earlier=earlier)

    def _make(
        self, index: int, id: str, name: str, told: Mapping[str, str], *, exist_ok: bool = False
    ) -> Place:
        folder = self._out / "peers" / name
        folder.mkdir(parents=True, exist_ok=exist_ok)
        # Else what a script printed would be in its log once it is over.
        more = {"RUMOR_OUT": str(folder.absolute()), "PYTHONUNBUFFERED": "1"}
        own = {**told, **more}
        return Place(index=index, id=id, folder=folder, command=self._command, variables=own)


def settings_of(config: ScriptConfig) -> dict[str, Any]:
    """All settings that are not None, by name, the exchange's among them; paths as text."""
    own = {each.name: getattr(config, each.name) for each in fields(config)}
    whole = own | config.exchange.as_json()
    given = {name: v for name, v in whole.items() if name != "exchange" and v is not None}
    return {name: str(v) if isinstance(v, Path) else v for name, v in given.items()}


def config_from(
    typed: Mapping[str, Any], names: Collection[str]
) -> tuple[ScriptConfig, MachinesConfig, list[str], set[str]]:
    """Make a run of options and words, or of a file that the words name.

    Args:
        typed: All options by name, with ``words``.
        names: Of those that were typed: they count more than the file.

    Returns:
        The run, where it runs, the words of its command, and the names of all options that were
        typed or are in the file.

    Raises:
        ConfigError: See `ScriptConfig`, `MachinesConfig` and `read_file`.
    """
    words, said = list(typed["words"] or ()), {*names}
    settings = dict(typed)
    if words and words[0].endswith(".toml"):
        content = read_file(Path(words[0]))
        words = words[1:] or content.pop("command", [])
        settings |= {name: content[name] for name in content if name not in names}
        said |= {*content}
    exchange = config_of(ExchangeConfig, settings)
    config = config_of(ScriptConfig, settings | {"exchange": exchange})
    return config, config_of(MachinesConfig, settings), words, said
