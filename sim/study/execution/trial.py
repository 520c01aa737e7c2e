"""A trial: the key of its arguments, files and code, and its computation in a worker process."""

import json
import os
import platform
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import chdir, nullcontext, suppress
from dataclasses import fields
from functools import cache
from hashlib import blake2b
from importlib import invalidate_caches
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ....gossip.errors import ConfigError, RumorError
from ....topology import TopologyError, facts, parse
from ....topology.families.files import forget_files
from ....topology.spec import Spec, read
from ....train.faults.schedule import faults_as_json, read_faults
from ....train.tasks.partition import partition_module
from ....train.tensors.buffers import keep_pages
from ...config import SimulationConfig
from ...results.files import as_json
from ...simulate import simulate
from ..results import QUANTILES
from ..study import with_tuples
from ..study_file import RUNNER_SETTINGS

__all__ = [
    "code_version",
    "compute",
    "config_of",
    "order_of",
    "run_trial",
    "settings_as_json",
    "trial_key",
    "versions",
]

# Holds the subpackages, in a checkout and in an installed wheel alike.
_ROOT: Final = Path(__file__).parents[3]

# Modules in these folders compute a trial; modules that process its result change none.
_FOLDERS: Final = ("gossip", "topology", "train", "sim")
_AFTERWARDS: Final = ("sim/study/report", "sim/study/analysis")

# Libraries that draw graphs, multiply matrices and read data affect a result's last bits.
_LIBRARIES: Final = (
    *("mlxtend", "msgpack", "networkx", "numpy"),
    *("safetensors", "scikit-learn", "scipy", "torch", "xxhash"),
)


def trial_key(settings: Mapping[str, Any]) -> str:
    """Hash everything that a trial's result depends on: arguments, files that it names, code of
    the user, code of this project, and libraries; 32 hexadecimal digits.

    Raises:
        ConfigError: A setting is not valid, cannot be written down, or a file cannot be read.
        TopologyError: The topology is malformed.
    """
    config = config_of(settings)
    files = {f"{what} {path}": _hash_file(what, path) for what, path in _files_of(config)}
    for what, name in (("task", config.task_name), ("rule", config.rule_spec.name)):
        if ":" in name:
            files[what] = _hash_own(what, name.partition(":")[0])
    if module := partition_module(config.partition):
        files["partition"] = _hash_own("partition", module)
    return _hash({"arguments": settings_as_json(config), "files": files, "code": code_version()})


def config_of(settings: Mapping[str, Any]) -> SimulationConfig:
    """Make simulation settings from those of a trial.

    Raises:
        ConfigError: A setting is unknown, or its value is not valid.
    """
    try:
        return SimulationConfig(**with_tuples(settings))
    except TypeError as error:
        raise ConfigError(f"a setting is unknown, or of the wrong kind: {error}") from error


def settings_as_json(config: SimulationConfig) -> dict[str, Any]:
    """Return every argument that a result depends on, defaults too.

    Raises:
        ConfigError: A task or a network is an object, whose content is unknown.
    """
    names = (f.name for f in fields(SimulationConfig) if f.name not in RUNNER_SETTINGS)
    found = {name: getattr(config, name) for name in names}
    for name in ("task", "network"):
        if not isinstance(found[name], str):
            raise ConfigError(f"{name} is an object: a study needs its name, or that of a file")
    faults = found["faults"]
    found["faults"] = (
        str(faults) if isinstance(faults, str | Path) else faults_as_json(read_faults(faults))
    )
    return {name: list(v) if isinstance(v, tuple) else v for name, v in found.items()}


@cache
def code_version() -> str:
    """Hash this project's code, the versions of the libraries, and the processor."""
    # Cached, since loaded code does not change with the files.
    return _hash([_sources_state(_ROOT), versions()])


@cache
def versions() -> dict[str, str]:
    """Return versions of Python, the processor and the libraries that compute; empty for missing
    ones."""
    found = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        # Sums are rounded differently when more numbers are added at once.
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
    }
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found


def _sources_state(root: Path) -> dict[str, str]:
    """Return the hash of every module that affects a result, by its path."""
    return {
        name: _hash_file(name, path)
        for top in _FOLDERS
        for name, path in _modules(root / top, root).items()
        if not name.startswith(_AFTERWARDS)
    }


def _modules(folder: Path, root: Path) -> dict[str, Path]:
    """Return all modules in a folder, by their paths relative to *root*."""
    return {path.relative_to(root).as_posix(): path for path in sorted(folder.rglob("*.py"))}


def _files_of(config: SimulationConfig) -> Iterator[tuple[str, Path]]:
    """Yield the data files that a trial names, with their roles."""
    if isinstance(config.faults, str | Path) and not str(config.faults).lstrip().startswith("["):
        yield "faults", Path(config.faults)
    # As in `read_network`, a name that is not a file's is a preset's.
    network = str(config.network)
    is_json = network.lstrip().startswith("{")
    if not is_json and (network.endswith(".json") or Path(network).is_file()):
        yield "network", Path(network)
    for graph in _graphs(read(config.topology)):
        yield "topology", Path(graph)


def _graphs(spec: Spec) -> Iterator[str]:
    """Yield the paths of graphs in a spec, and in specs inside it."""
    if spec.name == "file":
        yield str(spec.values["path"])
    for key in spec.family.joins:
        yield from _graphs(read(str(spec.values[key])))


def _hash_own(what: str, module: str) -> str:
    """Hash the code of a user's task, partition or rule: its module, or all of its package."""
    path = Path(module).expanduser().resolve()
    is_file = module.endswith(".py")
    folder, top = (path.parent, path.stem) if is_file else (Path.cwd(), module.partition(".")[0])
    invalidate_caches()
    spec = PathFinder.find_spec(top, [str(folder)])
    if spec is None:
        # An editable install may have a finder of its own.
        with suppress(ValueError):
            spec = find_spec(top)
    if spec is None:
        raise ConfigError(f"{what} {top}: there is no such module in {folder}")
    packages = [Path(place) for place in spec.submodule_search_locations or ()]
    sources = {name: path for place in packages for name, path in _modules(place, place).items()}
    sources = sources or {f"{top}.py": Path(str(spec.origin))}
    return _hash({name: _hash_file(what, path) for name, path in sources.items()})


def _hash_file(what: str, path: Path) -> str:
    try:
        return blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        raise ConfigError(f"{what}: {path} cannot be read: {error.strerror}") from error


def _hash(content: Any) -> str:
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


# A process has one working directory and one number of torch threads.
_ONE_AT_A_TIME = threading.Lock()


def order_of(key: str, settings: Mapping[str, Any], folder: Path, parent: int | None) -> str:
    """Write a trial as an order for a worker process: relative paths start in *folder*, and the
    worker ends with the process *parent*, if given."""
    asked = {"key": key, "settings": dict(settings), "folder": str(folder), "parent": parent}
    return json.dumps(asked)


def run_trial(order: str) -> str:
    """Compute a trial from an order of `order_of`.

    Returns:
        JSON: ``record``, the result of `compute`, or ``failure``, the reason why it is missing.
    """
    told = json.loads(order)
    if told["parent"] is not None:
        _belong_to(told["parent"])
    # Changes to the folder, if this machine has it.
    inside = chdir(told["folder"]) if Path(told["folder"]).is_dir() else nullcontext()
    with _ONE_AT_A_TIME, inside:
        try:
            # A process of a cluster may have cached an older content of a graph's file.
            forget_files()
            _check(told)
            answer: dict[str, Any] = {"record": compute(config_of(told["settings"]))}
            # A file may have changed between hashing and reading.
            _check(told)
        except (RumorError, OSError) as error:
            answer = {"failure": str(error) or type(error).__name__}
        except MemoryError:
            answer = {"failure": "there was not enough memory for it"}
        except Exception as error:  # whatever a user's task does
            what = str(error).strip().partition("\n")[0]
            frame = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {what}" if what else type(error).__name__
            answer = {"failure": f"{what}, at {frame.filename}:{frame.lineno}"}
    return json.dumps(answer, allow_nan=False)


def _check(told: Mapping[str, Any]) -> None:
    """Check that this process computes the requested trial."""
    if trial_key(told["settings"]) != told["key"]:
        raise RumorError(
            "a file that this trial names, the code, a library or the processor is not the same in "
            f"{Path.cwd()} on {os.uname().nodename} as when and where the study was started: start "
            "it again by --resume"
        )


@cache
def _belong_to(parent: int) -> None:
    """Let this process compute on one core, and end with its parent."""
    torch.set_num_threads(1)
    keep_pages()
    if threading.current_thread() is threading.main_thread():
        # Ctrl-C is for the parent process.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end_with_parent() -> None:
        # A killed parent sends no signal: its children get another parent.
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


# These depend on the machine, and tables with them would, too.
_OF_THE_MACHINE = ("wall_s", "steps_per_s", "peak_rss_mib", "decided")


def compute(config: SimulationConfig) -> dict[str, Any]:
    """Run a trial on one core, in this process; return ``summary``, ``series``, ``facts`` and
    ``wall_s``, as in `Result`.

    Raises:
        RumorError: The trial cannot run.
        TopologyError: The topology is malformed.
    """
    start_s = time.perf_counter()
    # Sums that are shared among threads are rounded differently.
    with threadpool_limits(1):
        run = simulate(config, threads=1)
    graph = parse(config.topology, config.workers, seed=config.seed)
    try:
        known = facts(graph).as_json()
    except TopologyError:
        # A few graphs that workers can push along have no facts, for instance if they never agree.
        known = {}
    summary = {k: v for k, v in run.summary.items() if k not in _OF_THE_MACHINE}
    return {
        "summary": as_json(summary),
        "series": as_json(dict(_curves(run.series))),
        "facts": as_json(known),
        "wall_s": time.perf_counter() - start_s,
    }


def _curves(series: Mapping[str, NDArray[np.float64]]) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield curves one by one, without the curves of the groups of a partition."""
    for name, values in series.items():
        if name.endswith("_quantiles"):
            for index, at in enumerate(QUANTILES):
                yield f"{name.removesuffix('_quantiles')}_{at}", values[:, index]
        elif values.ndim == 1:
            yield name, values
