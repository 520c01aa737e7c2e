"""Backends that compute trials: processes of this machine, or of a Dask or Ray cluster.

Data between processes is pickled, so a study trusts its cluster as it trusts its own machine; only
text and the name of one function cross.
"""

import os
import socket
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from logging import ERROR
from typing import Any, Final, NamedTuple

from ....gossip.errors import ConfigError, RumorError, TransportError, how_to_install

__all__ = ["Backend", "answers", "read_backend"]

_NEEDS: Final = {"loky": "joblib", "dask": "distributed", "ray": "ray"}
_CONNECT_S: Final = 10
_IDLE_S: Final = 300
_FORMS: Final = "loky (processes of this machine), dask:tcp://HOST:PORT, ray or ray:ADDRESS"

# Processes compute on one core each, side by side.
_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Run = Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """The processes that compute trials."""

    kind: str
    """``loky``, ``dask`` or ``ray``."""
    address: str | None = None
    """Address of a cluster; None for processes of this machine, or any cluster that Ray finds."""

    @property
    def is_local(self) -> bool:
        """True if it uses this machine's own cores and memory."""
        return self.kind == "loky"


def read_backend(text: str) -> Backend:
    """Parse a backend as a user typed it.

    Raises:
        ConfigError: The backend is unknown, or a package that it needs is not installed.

    >>> read_backend("dask:tcp://10.0.0.1:8786").address
    'tcp://10.0.0.1:8786'
    """
    kind, colon, address = text.partition(":")
    fits = {"loky": not colon, "dask": bool(address), "ray": bool(address) or not colon}
    if not fits.get(kind, False):
        raise ConfigError(f"backend is {text!r}: it must be {_FORMS}")
    if find_spec(_NEEDS[kind]) is None:
        extra = "study" if kind == "loky" else kind
        raise ConfigError(
            f"backend {text} needs {_NEEDS[kind]}, which is not installed: {how_to_install(extra)}"
        )
    return Backend(kind=kind, address=address or None)


# Joblib has backends for both clusters, but its generator never learns of work killed there, and
# waits forever.
class _Pool(NamedTuple):
    """Processes that take orders, on any backend."""

    width: Callable[[], int]
    """Returns the current number of processes, at least one."""
    submit: Callable[[str], "Future[str]"]
    killed: tuple[type[Exception], ...]
    """Exceptions of a future for a killed process."""


def answers(
    backend: Backend, run: Run, orders: Sequence[str], jobs: int | None
) -> Generator[tuple[str, str | None]]:
    """Carry out orders side by side, and yield each with its answer as it arrives; None if the
    process with this order, or one next to it, was killed.

    Args:
        run: A function of a module, which other processes find by its name.
        orders: Arguments for it, one call each.
        jobs: Number of processes; None for as many as a cluster has. 1 on this machine uses this
            one.

    Raises:
        TransportError: A cluster cannot be reached, or has failed, or processes cannot be started.
    """
    if not orders:
        return
    with _as_failure(backend):
        if backend.is_local and jobs == 1:
            yield from ((order, run(order)) for order in orders)
            return
        several = jobs and min(jobs, len(orders))
        with _POOLS[backend.kind](backend.address, run, several) as pool:
            yield from _side_by_side(pool, orders)


def _side_by_side(pool: _Pool, orders: Sequence[str]) -> Generator[tuple[str, str | None]]:
    waiting = list(reversed(orders))
    under_way: dict[Future[str], str] = {}
    while waiting or under_way:
        # One order each: orders queued in a process that is killed would be lost silently.
        while waiting and len(under_way) < pool.width():
            order = waiting.pop()
            try:
                under_way[pool.submit(order)] = order
            except pool.killed:  # next to this one, a moment ago
                yield order, None
        for future in wait(under_way, return_when="FIRST_COMPLETED").done:
            order = under_way.pop(future)
            try:
                answer: str | None = future.result()
            except pool.killed:
                answer = None
            yield order, answer


@contextmanager
def _loky(address: None, run: Run, jobs: int | None) -> Iterator[_Pool]:
    from joblib.externals import loky
    from joblib.externals.loky.process_executor import BrokenProcessPool

    workers, executor = jobs or 1, loky.get_reusable_executor
    # With the default of 10 s, a worker that waits on a busy machine ends just as work arrives.
    more: Any = {"env": dict.fromkeys(_THREADS, "1"), "timeout": _IDLE_S, "kill_workers": True}
    try:
        yield _Pool(
            width=lambda: workers,
            # After a process was killed, these are new ones.
            submit=lambda order: executor(workers, **more).submit(run, order),
            killed=(BrokenProcessPool,),
        )
    finally:
        executor(reuse=True).shutdown(wait=True, kill_workers=True)


@contextmanager
def _dask(address: str | None, run: Run, jobs: int | None) -> Iterator[_Pool]:
    from distributed import Client
    from distributed.scheduler import KilledWorker

    try:
        client: Any = Client(address, timeout=_CONNECT_S)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TypeError) as error:
        raise TransportError(f"there is no Dask scheduler at {address}: {error}") from error
    with client:
        if not client.nthreads():
            raise TransportError(f"the Dask cluster at {address} has no workers")
        yield _Pool(
            # A process computes one trial at a time, whatever its number of threads.
            width=lambda: jobs or len(client.nthreads()) or 1,
            # While all workers are gone, it waits for new ones.
            submit=partial(client.get_executor(pure=False).submit, run),
            killed=(KilledWorker,),
        )


@contextmanager
def _ray(address: str | None, run: Run, jobs: int | None) -> Iterator[_Pool]:
    import ray
    from ray.exceptions import NodeDiedError, OutOfMemoryError, RayActorError, WorkerCrashedError

    is_ours = not ray.is_initialized()
    if is_ours:
        # Otherwise it would report every run to its makers.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            _require_listener(address)
            ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=ERROR)
        except (OSError, ValueError, RuntimeError) as error:
            raise TransportError(f"there is no Ray cluster at {address}: {error}") from error
    try:
        cores = ray.cluster_resources()  # type: ignore[no-untyped-call]
        workers = jobs or int(cores.get("CPU", 0)) or 1
        # We retry it alone: the cause may have been the order next to it.
        there = ray.remote(max_retries=0)(run)
        yield _Pool(
            width=lambda: workers,
            submit=lambda order: there.remote(order).future(),
            killed=(NodeDiedError, OutOfMemoryError, RayActorError, WorkerCrashedError),
        )
    finally:
        if is_ours:
            ray.shutdown()


def _require_listener(address: str | None) -> None:
    """Raise an OSError if no process listens at an address: Ray itself would wait for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    # An address without a port, such as auto, is for Ray to resolve.
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()


@contextmanager
def _as_failure(backend: Backend) -> Iterator[None]:
    """Turn any error of processes or a cluster into `TransportError`: trials do not raise."""
    try:
        yield
    except RumorError:
        raise
    # Also an OSError, which elsewhere means an error of the study's folder.
    except Exception as error:
        text = str(error).strip().partition("\n")[0]
        raise TransportError(f"{backend.kind} failed: {type(error).__name__}: {text}") from error


_POOLS: Final[Mapping[str, Any]] = {"loky": _loky, "dask": _dask, "ray": _ray}
