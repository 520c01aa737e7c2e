"""A trial: the key of its arguments, files and code, and its computation in a worker process."""

import json
import os
import platform
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import chdir, nullcontext
from dataclasses import fields
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ....gossip.errors import ConfigError, RumorError, did_you_mean
from ....topology import TopologyError, facts, parse
from ....topology.families.files import forget_files
from ....topology.spec import Spec, read
from ....train.faults.schedule import faults_as_json, faults_of
from ....train.tasks.partition import partition_module
from ....train.tensors.buffers import keep_pages
from ...batched.values import peak_rss_mib
from ...config import SimulationConfig
from ...results.files import as_json
from ...simulate import simulate
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

# The folder whose subfolders are the import package's subpackages, in a checkout and in an
# installed wheel alike.
_ROOT: Final = Path(__file__).parents[3]

# What computes a trial, in these folders; what is made of its result afterwards changes none.
_FOLDERS: Final = ("gossip", "topology", "train", "sim")
_AFTERWARDS: Final = ("sim/study/report", "sim/study/analysis")

# What draws graphs, multiplies matrices and reads data has a say in a result's last bits.
_LIBRARIES: Final = (
    *("mlxtend", "msgpack", "networkx", "numpy"),
    *("safetensors", "scikit-learn", "scipy", "torch", "xxhash"),
)


def trial_key(settings: Mapping[str, Any]) -> str:
    """Hash all that a trial's result depends on, as 32 hexadecimal digits (BLAKE2b).

    That is every argument, defaults included; the contents of the files that it names; the code of
    a task or rule of the user's own; and the version of this project, Python and the libraries.

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
        ConfigError: A task or a network is an object: what it is made of cannot be told.
    """
    names = (f.name for f in fields(SimulationConfig) if f.name not in RUNNER_SETTINGS)
    found = {name: getattr(config, name) for name in names}
    for name in ("task", "network"):
        if not isinstance(found[name], str):
            raise ConfigError(f"{name} is an object: a study needs its name, or that of a file")
    faults = found["faults"]
    found["faults"] = (
        str(faults) if isinstance(faults, str | Path) else faults_as_json(faults_of(faults))
    )
    return {name: list(v) if isinstance(v, tuple) else v for name, v in found.items()}


@cache
def code_version() -> str:
    """Hash this project's code, the versions of the libraries, and the processor.

    Found once per process, since loaded code does not change with the files.
    """
    return _hash([_sources_state(_ROOT), versions()])


@cache
def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that compute; empty for one that is not there.

    The processor is among them: sums are rounded differently where more numbers are added at once.
    """
    found = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
    }
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found


def _sources_state(root: Path) -> dict[str, str]:
    """The hash of every module that has a say in a result, by its path."""
    paths = {name: path for top in _FOLDERS for name, path in _modules(root / top, root).items()}
    there = {name: path for name, path in paths.items() if not name.startswith(_AFTERWARDS)}
    return {name: _hash_file(name, path) for name, path in there.items()}


def _modules(folder: Path, root: Path) -> dict[str, Path]:
    """All modules in a folder, by their paths from *root* on."""
    return {path.relative_to(root).as_posix(): path for path in sorted(folder.rglob("*.py"))}


def _files_of(config: SimulationConfig) -> Iterator[tuple[str, Path]]:
    """The data files that a trial names, and what each is to it."""
    if isinstance(config.faults, str | Path) and not str(config.faults).lstrip().startswith("["):
        yield "faults", Path(config.faults)
    # As `read_network` has it, a name that is no file's is that of a preset.
    network = config.network
    if isinstance(network, str) and (network.endswith(".json") or Path(network).is_file()):
        yield "network", Path(network)
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
        ConfigError: It cannot be read.
    """
    sources = _sources(what, Path.cwd(), module.partition(".")[0])
    return _hash({name: _hash_file(what, path) for name, path in sources.items()})


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


# A process has one working directory and one number of torch threads.
_ONE_AT_A_TIME = threading.Lock()

_LOOK_EVERY_S = 1.0

_CODE_MISMATCH = (
    "the code, a library or the processor is not the same in a worker process (on {}) as where the "
    "study was started: {}"
)


def order_of(key: str, settings: Mapping[str, Any], folder: Path, parent: int | None) -> str:
    """Write down a trial for a worker process: relative paths begin in *folder*, and the worker
    ends with the process *parent*, if that is given."""
    asked = {"key": key, "settings": dict(settings), "folder": str(folder), "parent": parent}
    return json.dumps(asked | {"code": code_version(), "versions": versions()})


def run_trial(order: str) -> str:
    """Compute a trial as `order_of` asks for it.

    Returns:
        JSON: ``key``, and either ``record``, what `compute` gives, or ``failure``, why there is
        none, or ``code_mismatch``: this process runs other code than the one that asked. Nothing
        is raised for a trial that cannot run: others may.
    """
    told = json.loads(order)
    if told["parent"] is not None:
        _belong_to(told["parent"])
    # Where this machine has the folder.
    inside = chdir(told["folder"]) if Path(told["folder"]).is_dir() else nullcontext()
    with _ONE_AT_A_TIME, inside:
        try:
            answer = _answer(told)
        except (RumorError, OSError) as error:
            answer = {"failure": str(error) or type(error).__name__}
        except MemoryError:
            answer = {"failure": "there was not enough memory for it"}
        except Exception as error:  # whatever a user's task does
            answer = {"failure": _in_words(error)}
    return json.dumps({"key": told["key"], **answer}, allow_nan=False)


def _answer(told: Mapping[str, Any]) -> dict[str, Any]:
    if code_version() != told["code"]:
        others = [
            f"{name} is {own or 'missing'} there, {told['versions'].get(name) or 'missing'} here"
            for name, own in versions().items()
            if told["versions"].get(name, "") != own
        ]
        changed = "a source was changed since, or that machine has another version of this project"
        why = "; ".join(others) or changed
        return {"code_mismatch": _CODE_MISMATCH.format(os.uname().nodename, why)}
    # A process of a cluster may have met a graph's file as it was for another study.
    forget_files()
    key, settings = told["key"], told["settings"]
    _check(key, settings)
    found = compute(config_of(settings))
    # A file may have changed after it was hashed and before it was read.
    _check(key, settings)
    return {"record": found}


def _check(key: str, settings: Mapping[str, Any]) -> None:
    """See that this process would compute what was asked for."""
    if trial_key(settings) != key:
        raise RumorError(
            "a file that this trial names is no longer what it was when the study began, or is "
            f"another one in {Path.cwd()} on {os.uname().nodename}: start it again by --resume"
        )


@cache
def _belong_to(parent: int) -> None:
    """Let this process compute on one core, and end with the one that started it."""
    torch.set_num_threads(1)
    keep_pages()
    if threading.current_thread() is threading.main_thread():
        # Ctrl-C is for the one who started this process.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    # One that was killed tells nobody: its children go to another process.
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY_S)
    os._exit(1)


def _in_words(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{what}, at {frame.filename}:{frame.lineno}"


# They depend on the machine, and so would tables.
_OF_THE_MACHINE = ("wall_s", "steps_per_s", "peak_rss_mib", "decided")

_QUANTILES = ("least", "quarter", "median", "three_quarters", "most")


def compute(config: SimulationConfig) -> dict[str, Any]:
    """Run a trial on one core, in this process.

    Returns:
        ``summary``, ``series``, ``facts``, ``wall_s`` and ``peak_rss_mib``, as `Result` has them.

    Raises:
        RumorError: It cannot run.
        TopologyError: Likewise.
    """
    start_s = time.perf_counter()
    # Sums that are shared among threads are rounded otherwise.
    with threadpool_limits(1):
        run = simulate(config, threads=1)
    graph = parse(config.topology, config.workers, seed=config.seed, mixing=config.mixing)
    try:
        known = facts(graph).as_json()
    except TopologyError:
        # A few graphs that workers can push along have no facts: they never agree, for one.
        known = {}
    summary = {k: v for k, v in run.summary.items() if k not in _OF_THE_MACHINE}
    return {
        "summary": as_json(summary),
        "series": as_json(dict(_curves(run.series))),
        "facts": as_json(known),
        "wall_s": time.perf_counter() - start_s,
        "peak_rss_mib": peak_rss_mib(),
    }


def _curves(series: Mapping[str, NDArray[np.float64]]) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Curves one by one; those of the groups of a partition are left out."""
    for name, values in series.items():
        if name.endswith("_quantiles"):
            for index, at in enumerate(_QUANTILES):
                yield f"{name.removesuffix('_quantiles')}_{at}", values[:, index]
        elif values.ndim == 1:
            yield name, values
