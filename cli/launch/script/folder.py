"""The folder of a run of a script, its command, and what each process is told."""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import dropwhile
from pathlib import Path
from typing import Any, Final

from ....gossip.config import ProtocolConfig
from ....gossip.errors import ConfigError
from ...run_folder import new_folders
from ...settings.exchange import ExchangeConfig
from ..config import parse_slow, require_keys
from ..folder import Place, set_aside
from ..resume import require_over
from .config import ScriptConfig, device_of

__all__ = [
    "ScriptFolder",
    "check_settings",
    "find_command",
    "find_folder",
    "require_no_stdin",
    "script_of",
    "variables",
]


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


def require_no_stdin(command: Sequence[str]) -> None:
    """See that a command does not read its script from stdin, which the processes do not have.

    Raises:
        ConfigError: It does.
    """
    program = Path(command[0]).name
    words = iter(command[1:])
    if program == "env":
        rest = [*dropwhile(lambda word: word.startswith("-") or "=" in word, words)]
        if rest:
            require_no_stdin(rest)
        return
    if re.fullmatch(_INTERPRETERS, program) is None:
        return
    for word in words:
        if word in _STDIN or (word == "-s" and program.endswith("sh")):
            break
        if not word.startswith("-") or re.match(_SAYS_WHAT, word):
            return
        if word in _WITH_VALUE:
            next(words, None)
    raise ConfigError(
        f"{shlex.join(command)} reads its script from stdin, which peers do not have: save the "
        "script to a file and name that, or give it with -c"
    )


_INTERPRETERS: Final = r"(python|pypy)[\d.]*|(ba|da|z|k)?sh"
_STDIN: Final = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_WITH_VALUE: Final = ("-W", "-X", "--check-hash-based-pycs", "-o", "--rcfile", "--init-file")
_SAYS_WHAT: Final = r"-[A-Za-z]*[cmVh]|--(help|version)"
"""Options that say themselves what to run, or print something and end."""


def check_settings(config: ScriptConfig, out: Path) -> None:
    """See that what was asked for goes together: each peer would refuse it, after the start.

    Args:
        config: The run.
        out: Its folder, which need not be there.

    Raises:
        ConfigError: It does not.
    """
    from ....train.config import PeerConfig

    given = {"rule": config.rule_spec and config.rule_spec.make(), "topology": config.topology}
    told: Any = {name: value for name, value in given.items() if value is not None}
    if config.topology is not None:
        # Else the graph may be the script's.
        told["founders"] = config.peers
    told |= {"key": config.key, "roster": config.roster}
    PeerConfig(**told, out=out, loggers=config.loggers, **config.exchange.settings())


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
    from ....train.loop.metrics_port import require_free_ports
    from ....train.storage.files import check_folder

    name = Path(script).stem
    out = config.out or next(path for path in new_folders(name) if not os.path.exists(path))
    check_settings(config, out)
    if config.resume and not here:
        raise ConfigError(
            "--resume is for peers on this machine: with --hosts, name a new --out; checkpoints "
            "stay in each peer's folder on its own"
        )
    if here:
        require_keys(config.key, config.roster, config.ids())
        if config.metrics_port is not None:
            require_free_ports(config.metrics_port, config.peers, config.metrics_host)
    if config.goes_on:
        _require_same(config, out)
    else:
        check_folder(out, resume="--resume" if here else "")
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
        "founders": config.peers,
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
    if config.goes_on:
        told["resume"] = 1
    if config.device is not None:
        told["device"] = device_of(config.device, local)
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
        before, now = asdict(ProtocolConfig()), asdict(told["protocol"])
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
        # Before the folders are made: if they exist, the run is resumed.
        each = [variables(self._config, self._out, index) for index in range(self._config.peers)]
        (self._out / "rendezvous").mkdir(parents=True, exist_ok=goes_on)
        for kind in ("addr", "swarms"):
            for path in (self._out / "rendezvous").rglob(f"*.{kind}"):
                path.unlink()  # of processes that are gone
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
