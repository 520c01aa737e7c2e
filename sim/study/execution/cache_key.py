"""Names of trials: the same arguments, files and code, the same name."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from ....gossip.errors import ConfigError
from ....topology.spec import Spec, read
from ...config import SimulationConfig
from ...kernel.faults import faults_as_json
from ...simulate import given
from ..study_file import RUNNER_SETTINGS

__all__ = ["code_version", "config_of", "settings_as_json", "trial_key", "versions"]

# The folder whose subfolders are the import package's subpackages, in a checkout and in an
# installed wheel alike.
_ROOT: Final = Path(__file__).parents[3]

# What computes a trial; what is made of its result afterwards changes none.
_FOLDERS: Final = (
    *("gossip", "topology", "train", "sim"),
    *(":!sim/study/report", ":!sim/study/analysis"),
)

# What draws graphs, multiplies matrices and reads data has a say in a result's last bits.
_LIBRARIES: Final = (
    *("cvxpy", "mlxtend", "msgpack", "networkx", "numpy"),
    *("safetensors", "scikit-learn", "scipy", "torch", "xxhash"),
)


def trial_key(settings: Mapping[str, Any]) -> str:
    """Hash all that a trial's result depends on.

    That is every argument, defaults included; the contents of the files that it names; the code of
    a task or rule of the user's own; and the version of this project, Python and the libraries.

    Args:
        settings: Fields of `SimulationConfig`.

    Returns:
        32 hexadecimal digits (BLAKE2b).

    Raises:
        ConfigError: A setting is not valid, cannot be written down, or a file cannot be read.
        TopologyError: The topology is malformed.
    """
    config = config_of(settings)
    files = {f"{what} {path}": _hash_file(what, path) for what, path in _files_of(config)}
    if ":" in config.task_name:
        files["task"] = _hash_own("task", config.task_name.partition(":")[0])
    if ":" in config.rule_spec.name:
        files["rule"] = _hash_own("rule", config.rule_spec.name.partition(":")[0])
    return _hash({"arguments": settings_as_json(config), "files": files, "code": code_version()})


def config_of(settings: Mapping[str, Any]) -> SimulationConfig:
    """Make a simulation's settings of a trial's.

    Raises:
        ConfigError: There is no such setting, or its value is not valid.
    """
    known = [field.name for field in fields(SimulationConfig)]
    for name in settings:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f", did you mean {close[0]!r}?" if close else ""
            raise ConfigError(f"there is no setting {name!r}{hint}")
    # Where SimulationConfig has a tuple, JSON and TOML have a list.
    usable: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in settings.items()
    }
    try:
        return SimulationConfig(**usable)
    except TypeError as error:
        raise ConfigError(f"a setting is of the wrong kind: {error}") from error


def settings_as_json(config: SimulationConfig) -> dict[str, Any]:
    """Write down every argument that a result depends on, defaults too.

    Raises:
        ConfigError: A task or a network is an object: what it is made of cannot be told.
    """
    names = (f.name for f in fields(SimulationConfig) if f.name not in RUNNER_SETTINGS)
    found = {name: getattr(config, name) for name in names}
    for name in ("task", "network"):
        if not isinstance(found[name], str):
            raise ConfigError(f"{name} is an object: a study needs its name, or that of a file")
    faults = found["faults"]
    found["faults"] = (
        str(faults) if isinstance(faults, str | Path) else faults_as_json(given(faults))
    )
    return {name: list(v) if isinstance(v, tuple) else v for name, v in found.items()}


@cache
def code_version() -> str:
    """Hash the state of this project's code, the versions of the libraries, and the processor.

    Found once per process, since loaded code does not change with the files.

    Returns:
        32 hexadecimal digits (BLAKE2b).
    """
    return _hash([_git_state(_ROOT) or _wheel_state(), versions()])


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that compute; empty for one that is not there.

    The processor is among them: sums are rounded differently where more numbers are added at once.
    """
    # Not above: whoever only asks for a name need not wait for it.
    import torch

    found = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
    }
    return found | {name: _version(name) for name in _LIBRARIES}


def _git_state(root: Path) -> list[str] | None:
    """What git knows of the product's folders, and what differs from that; None without git."""
    top = _git(root, "rev-parse", "--show-toplevel")
    # A wheel may be installed inside somebody else's repository.
    if top is None or Path(top.strip()).resolve() != root.resolve():
        return None
    staged = _git(root, "ls-files", "--stage", "--", *_FOLDERS)
    changes = _git(root, "diff", "--binary", "--no-ext-diff", "--", *_FOLDERS)
    new = _git(root, "ls-files", "--others", "--exclude-standard", "--", *_FOLDERS)
    if not staged or changes is None or new is None:
        return None
    others = [f"{name} {_hash_file(name, root / name)}" for name in new.splitlines()]
    return [staged, changes, *others]


def _git(root: Path, *arguments: str) -> str | None:
    try:
        # It must not write to the repository, as it does to refresh its index.
        environment = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}
        done = subprocess.run(
            ["git", *arguments], cwd=root, env=environment, capture_output=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout.decode(errors="replace")


def _wheel_state() -> list[str]:
    """The version, and the hashes of modules that the installer recorded."""
    try:
        found = distribution("rumor")
    except PackageNotFoundError:
        return []
    record = (found.read_text("RECORD") or "").splitlines()
    # Other lines, such as those of scripts, depend on where it was installed.
    return [found.version, *sorted(line for line in record if ".py,sha256=" in line)]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _files_of(config: SimulationConfig) -> Iterator[tuple[str, Path]]:
    """The data files that a trial names, and what each is to it."""
    if isinstance(config.faults, str | Path) and not str(config.faults).lstrip().startswith("["):
        yield "faults", Path(config.faults)
    # As `read_network` has it, a name that is no file's is that of a preset.
    network = config.network
    if isinstance(network, str) and (network.endswith(".json") or Path(network).is_file()):
        yield "network", Path(network)
    if config.pace.startswith("trace:path="):
        yield "pace", Path(config.pace.removeprefix("trace:path="))
    for path in _graphs(read(config.topology)):
        yield "topology", Path(path)


def _graphs(spec: Spec) -> Iterator[str]:
    """Paths of graphs in a spec, and in specs inside it."""
    if spec.name == "file":
        yield str(spec.values["path"])
    for key in spec.family.joins:
        yield from _graphs(read(str(spec.values[key])))


def _hash_own(what: str, module: str) -> str:
    """Hash the code of a user's task or rule: its module, or all modules of the package it lies in.

    Raises:
        ConfigError: It cannot be read, or this process has loaded other code.
    """
    top = module.partition(".")[0]
    sources = _sources(Path.cwd(), top)
    now = _hash({str(name): _hash_file(what, path) for name, path in sources.items()})
    if module in sys.modules:
        loaded = Path(str(sys.modules[module].__file__)).resolve()
        if loaded not in {path.resolve() for path in sources.values()}:
            raise ConfigError(
                f"{what} {module}: this process (start it anew) has loaded {loaded} as {module}"
            )
        if _hash_when_loaded(loaded, now) != now:
            raise ConfigError(
                f"{what} {module}: its code has changed since this process (start it anew)"
                " loaded it"
            )
    return now


@cache
def _known_hashes() -> dict[Path, str]:
    return {}


def _hash_when_loaded(loaded: Path, now: str) -> str:
    """The hash that was seen first after a module was loaded."""
    return _known_hashes().setdefault(loaded, now)


def _sources(folder: Path, top: str) -> dict[Path, Path]:
    """The files of a module or package, by their names inside it: in *folder*, or installed."""
    place = folder / top
    if not place.is_dir() and not (folder / f"{top}.py").is_file():
        try:
            spec = find_spec(top)
        except (ImportError, ValueError):
            spec = None
        if spec is None or spec.origin is None:
            raise ConfigError(f"task {top}: there is no such module in {folder}")
        origin = Path(spec.origin)
        place = origin.parent if origin.name == "__init__.py" else origin.with_suffix("")
    if place.is_dir():
        return {path.relative_to(place): path for path in sorted(place.rglob("*.py"))}
    return {Path(f"{top}.py"): place.with_suffix(".py")}


def _hash_file(what: str, path: Path) -> str:
    try:
        return blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        raise ConfigError(f"{what}: {path} cannot be read: {error.strerror}") from error


def _hash(content: Any) -> str:
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()
