"""Names of trials: the same arguments, files and code, the same name."""

import json
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from ....gossip.errors import ConfigError, did_you_mean
from ....topology.spec import Spec, read
from ....train.faults.schedule import faults_as_json, faults_of
from ....train.tasks.partition import partition_as_json, partition_file, partition_module
from ...config import SimulationConfig
from ...kernel.faults.storms import STORMS
from ..study import with_tuples
from ..study_file import RUNNER_SETTINGS

__all__ = ["code_version", "config_of", "settings_as_json", "trial_key", "versions"]

# The folder whose subfolders are the import package's subpackages, in a checkout and in an
# installed wheel alike.
_ROOT: Final = Path(__file__).parents[3]

# What computes a trial, in these folders; what is made of its result afterwards changes none.
_FOLDERS: Final = ("gossip", "topology", "train", "sim")
_AFTERWARDS: Final = ("sim/study/report", "sim/study/analysis")

# What draws graphs, multiplies matrices and reads data has a say in a result's last bits.
_LIBRARIES: Final = (
    *("cvxpy", "mlxtend", "msgpack", "networkx", "numpy"),
    *("safetensors", "scikit-learn", "scipy", "torch", "xxhash"),
)


_WHEN_LOADED: Final[dict[Path, str]] = {}
"""The hash that was seen first after a user's module was loaded."""


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
    if module := partition_module(config.partition):
        files["partition"] = _hash_own("partition", module)
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
            hint = did_you_mean(name, known, "")
            raise ConfigError(f"there is no setting {name!r}{hint}")
    try:
        return SimulationConfig(**with_tuples(settings))
    except TypeError as error:
        raise ConfigError(f"a setting is of the wrong kind: {error}") from error


def settings_as_json(config: SimulationConfig) -> dict[str, Any]:
    """Write down every argument that a result depends on, defaults too.

    Raises:
        ConfigError: A task, a network or a partition is an object: what it is made of cannot be
            told.
    """
    names = (f.name for f in fields(SimulationConfig) if f.name not in RUNNER_SETTINGS)
    found = {name: getattr(config, name) for name in names}
    for name in ("task", "network"):
        if not isinstance(found[name], str):
            raise ConfigError(f"{name} is an object: a study needs its name, or that of a file")
    found["partition"] = partition_as_json(config.partition)
    faults = found["faults"]
    found["faults"] = (
        str(faults) if isinstance(faults, str | Path) else faults_as_json(faults_of(faults))
    )
    return {name: list(v) if isinstance(v, tuple) else v for name, v in found.items()}


@cache
def code_version() -> str:
    """Hash this project's code, the versions of the libraries, and the processor.

    Found once per process, since loaded code does not change with the files.

    Returns:
        32 hexadecimal digits (BLAKE2b).
    """
    return _hash([_sources_state(_ROOT), versions()])


@cache
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


def _sources_state(root: Path) -> dict[str, str]:
    """The hash of every module that has a say in a result, by its path."""
    paths = [path for folder in _FOLDERS for path in _modules(root / folder, root).items()]
    return {
        name: _hash_file(name, path) for name, path in paths if not name.startswith(_AFTERWARDS)
    }


def _modules(folder: Path, root: Path) -> dict[str, Path]:
    """All modules in a folder, by their paths from *root* on."""
    return {path.relative_to(root).as_posix(): path for path in sorted(folder.rglob("*.py"))}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _files_of(config: SimulationConfig) -> Iterator[tuple[str, Path]]:
    """The data files that a trial names, and what each is to it."""
    if isinstance(config.faults, str | Path) and not str(config.faults).lstrip().startswith("["):
        yield "faults", Path(config.faults)
    if config.storm is not None and config.storm not in STORMS:
        yield "storm", Path(config.storm)
    # As `read_network` has it, a name that is no file's is that of a preset.
    network = config.network
    if isinstance(network, str) and (network.endswith(".json") or Path(network).is_file()):
        yield "network", Path(network)
    if config.pace.startswith("trace:path="):
        yield "pace", Path(config.pace.removeprefix("trace:path="))
    if (path := partition_file(config.partition)) is not None:
        yield "partition", path
    for graph in _graphs(read(config.topology)):
        yield "topology", Path(graph)


def _graphs(spec: Spec) -> Iterator[str]:
    """Paths of graphs in a spec, and in specs inside it."""
    if spec.name == "file":
        yield str(spec.values["path"])
    for key in spec.family.joins:
        yield from _graphs(read(str(spec.values[key])))


def _hash_own(what: str, module: str) -> str:
    """Hash the code of a user's task, partition or rule: its module, or all of its package.

    Raises:
        ConfigError: It cannot be read, or this process has loaded other code.
    """
    sources = _sources(what, Path.cwd(), module.partition(".")[0])
    now = _hash({name: _hash_file(what, path) for name, path in sources.items()})
    if module in sys.modules:
        loaded = Path(str(sys.modules[module].__file__)).resolve()
        if loaded not in {path.resolve() for path in sources.values()}:
            raise ConfigError(
                f"{what} {module}: this process (start it anew) has loaded {loaded} as {module}"
            )
        if _WHEN_LOADED.setdefault(loaded, now) != now:
            raise ConfigError(
                f"{what} {module}: its code has changed since this process (start it anew)"
                " loaded it"
            )
    return now


def _sources(what: str, folder: Path, top: str) -> dict[str, Path]:
    """The files of a module or package, by their names inside it: in *folder*, or installed."""
    place = folder / top
    if not place.is_dir() and not (folder / f"{top}.py").is_file():
        try:
            spec = find_spec(top)
        except (ImportError, ValueError):
            spec = None
        if spec is None or spec.origin is None:
            raise ConfigError(f"{what} {top}: there is no such module in {folder}")
        origin = Path(spec.origin)
        place = origin.parent if origin.name == "__init__.py" else origin.with_suffix("")
    return _modules(place, place) or {f"{top}.py": place.with_suffix(".py")}


def _hash_file(what: str, path: Path) -> str:
    try:
        return blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        raise ConfigError(f"{what}: {path} cannot be read: {error.strerror}") from error


def _hash(content: Any) -> str:
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()
