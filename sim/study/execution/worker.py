"""What a worker process does: takes one trial as text, and answers with text."""

import json
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ....gossip.errors import RumorError
from ....topology import TopologyError, facts, parse
from ....topology.families.files import forget_files
from ...batched.values import peak_rss_mib
from ...config import SimulationConfig
from ...results.files import as_json
from ...simulate import simulate
from .cache_key import code_version, config_of, trial_key, versions

__all__ = ["compute", "order_of", "run_trial"]

# A process has one working directory and one number of torch threads.
_ONE_AT_A_TIME = threading.Lock()

_LOOK_EVERY_S = 1.0

_STRANGER = (
    "the code, a library or the processor is not the same in a worker process (on {}) as where the "
    "study was started: {}"
)
_CHANGED = "a source was changed since, or that machine has another version of this project"


def order_of(key: str, settings: Mapping[str, Any], folder: Path, parent: int | None) -> str:
    """Write down a trial for a worker process.

    Args:
        key: Its name.
        settings: As JSON has them.
        folder: Where relative paths begin.
        parent: Process that the worker is to end with; None where it is not ours to end.
    """
    return json.dumps(
        {
            "key": key,
            "settings": dict(settings),
            "code": code_version(),
            "versions": versions(),
            "folder": str(folder),
            "parent": parent,
        }
    )


def run_trial(order: str) -> str:
    """Compute a trial as `order_of` asks for it.

    Returns:
        JSON: ``key``, and either ``record``, what `compute` gives, or ``failure``, why there is
        none, or ``stranger``: this process runs other code than the one that asked. Nothing is
        raised for a trial that cannot run: others may.
    """
    told = json.loads(order)
    if told["parent"] is not None:
        _belong_to(told["parent"])
    with _ONE_AT_A_TIME, _inside(told["folder"]):
        try:
            answer = _answer(told)
        except (RumorError, OSError) as error:
            answer = {"failure": str(error) or type(error).__name__}
        except MemoryError:
            answer = {"failure": "there was not enough memory for it"}
        except Exception as error:  # whatever a user's task does
            answer = {"failure": _told(error)}
    return json.dumps({"key": told["key"], **answer}, allow_nan=False)


def _answer(told: Mapping[str, Any]) -> dict[str, Any]:
    if code_version() != told["code"]:
        return {"stranger": _STRANGER.format(os.uname().nodename, _difference(told["versions"]))}
    # A process of a cluster may have met a graph's file as it was for another study.
    forget_files()
    key, settings = told["key"], told["settings"]
    _check(key, settings)
    found = compute(config_of(settings))
    # A file may have changed after it was hashed and before it was read.
    _check(key, settings)
    return {"record": found}


def _difference(asked: Mapping[str, str]) -> str:
    """What this process has otherwise than the one that asked."""
    others = [
        f"{name} is {own or 'missing'} there, {asked.get(name) or 'missing'} here"
        for name, own in versions().items()
        if asked.get(name, "") != own
    ]
    return "; ".join(others) or _CHANGED


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
    import torch

    from ....train.tensors.buffers import keep_pages

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


@contextmanager
def _inside(folder: str) -> Iterator[None]:
    """Work in a folder, where this machine has it."""
    before = Path.cwd()
    if Path(folder).is_dir():
        os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _told(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{what}, at {frame.filename}:{frame.lineno}"


# They depend on the machine, and so would tables.
_OF_THE_MACHINE = ("wall_s", "steps_per_s", "peak_rss_mib", "decided")

_QUANTILES = ("least", "quarter", "median", "three_quarters", "most")


def compute(config: SimulationConfig) -> dict[str, Any]:
    """Run a trial on one core, in this process.

    Args:
        config: What is asked for; its own ``threads`` do not count.

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
        known = _facts(config)
    summary = {k: v for k, v in run.summary.items() if k not in _OF_THE_MACHINE}
    return {
        "summary": as_json(summary),
        "series": as_json(dict(_curves(run.series))),
        "facts": as_json(known),
        "wall_s": time.perf_counter() - start_s,
        "peak_rss_mib": peak_rss_mib(),
    }


def _facts(config: SimulationConfig) -> dict[str, Any]:
    graph = parse(config.topology, config.workers, seed=config.seed, mixing=config.mixing)
    try:
        return facts(graph).as_json()
    except TopologyError:
        # A few graphs that workers can push along have no facts: they never agree, for one.
        return {}


def _curves(series: Mapping[str, NDArray[np.float64]]) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Curves one by one; those of the groups of a partition are left out."""
    for name, values in series.items():
        if name.endswith("_quantiles"):
            for index, at in enumerate(_QUANTILES):
                yield f"{name.removesuffix('_quantiles')}_{at}", values[:, index]
        elif values.ndim == 1:
            yield name, values
