"""Where trials are computed: processes of this machine, or those of a Dask or Ray cluster.

The only module that knows joblib, Dask and Ray. Joblib has backends for both clusters, but of what
was killed there its generator never hears, and waits for good. What these send from process to
process they pickle, so that a study trusts its cluster as it trusts its own machine; all that we
let them carry is the name of one function, and text.
"""

import os
import socket
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from logging import ERROR
from typing import Any, Final

from ....gossip.errors import ConfigError, RumorError, TransportError

__all__ = ["Backend", "Lost", "WorkerLost", "answers", "one_by_one", "read_backend"]

_NEEDS: Final = {"loky": "joblib", "dask": "distributed", "ray": "ray"}
_CONNECT_S: Final = 10
_LOOK_S: Final = 5
_WITHOUT_WORKERS_S: Final = 60
_FORMS: Final = "loky (processes of this machine), dask:tcp://HOST:PORT, ray or ray:ADDRESS"


Run = Callable[[str], str]


class WorkerLost(RumorError):
    """A worker process has ended in the middle of a trial."""


@dataclass(frozen=True, slots=True)
class Lost:
    """In place of an answer: a cluster's processes that took this order, or one beside it, were
    killed."""

    order: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Where trials are computed."""

    kind: str
    """``loky``, ``dask`` or ``ray``."""

    address: str | None = None
    """Of a cluster; None for processes of this machine, and for whatever cluster Ray finds."""

    @property
    def is_local(self) -> bool:
        """Whether it takes this machine's own cores and memory."""
        return self.kind == "loky"


def read_backend(text: str) -> Backend:
    """Read what a user typed.

    Raises:
        ConfigError: There is no such backend, or what it needs is not installed.

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
            f"backend {text} needs {_NEEDS[kind]}, which is not installed: "
            f"pip install 'rumor[{extra}]'"
        )
    return Backend(kind=kind, address=address or None)


def answers(
    backend: Backend, run: Run, orders: Sequence[str], jobs: int | None
) -> Generator[str | Lost]:
    """Carry out orders side by side.

    Args:
        backend: Where.
        run: A function of a module, which other processes find by its name.
        orders: What it is called with, once with each.
        jobs: Processes; None for as many as a cluster has.

    Yields:
        Answers, as they come; an answer that was taken is not computed again whatever happens.

    Raises:
        WorkerLost: One of this machine's processes was killed.
        TransportError: A cluster cannot be reached, or has failed, or processes cannot be started.
    """
    if not orders:
        return
    if backend.kind == "dask":
        yield from _over_dask(backend.address, run, orders, jobs)
    elif backend.kind == "ray":
        yield from _over_ray(backend.address, run, orders, jobs)
    elif jobs == 1:
        with _as_failure("this process"):
            yield from map(run, orders)
    else:
        yield from _side_by_side(run, orders, jobs or -1, "2 * n_jobs")


def one_by_one(run: Run, orders: Sequence[str]) -> Generator[str]:
    """Carry out orders in order, each in a process that may be killed.

    Raises:
        WorkerLost: It was.
        TransportError: It cannot be started.
    """
    if orders:
        yield from _side_by_side(run, orders, 2, 1)


def _side_by_side(run: Run, orders: Sequence[str], jobs: int, at_once: str | int) -> Generator[str]:
    from joblib import Parallel, delayed, parallel_config

    with _loky(), parallel_config(backend="loky", inner_max_num_threads=1, n_jobs=jobs):
        # One at a time: what comes in batches would be lost in batches.
        parallel = Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch=at_once)
        found = parallel(delayed(run)(order) for order in orders)
        with closing(found):
            yield from found


@contextmanager
def _loky() -> Iterator[None]:
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import BrokenProcessPool

    try:
        with _as_failure("loky"):
            try:
                yield
            except BrokenProcessPool as error:
                raise WorkerLost(
                    "a worker process was killed; perhaps it took too much memory"
                ) from error
    finally:
        get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)


def _over_dask(
    address: str | None, run: Run, orders: Sequence[str], jobs: int | None
) -> Generator[str | Lost]:
    from distributed import Client
    from distributed.scheduler import KilledWorker

    try:
        client: Any = Client(address, timeout=_CONNECT_S)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TypeError) as error:
        raise TransportError(f"there is no Dask scheduler at {address}: {error}") from error
    with _as_failure("Dask"), client:
        if not client.nthreads():
            raise TransportError(f"the Dask cluster at {address} has no workers")
        waiting = list(reversed(orders))
        under_way: dict[Any, str] = {}
        try:
            while waiting or under_way:
                # One each: a process computes one trial at a time, however many threads it has.
                while waiting and len(under_way) < (jobs or len(client.nthreads()) or 1):
                    order = waiting.pop()
                    under_way[client.submit(run, order, pure=False)] = order
                for future in _done(client, list(under_way), address):
                    order = under_way.pop(future)
                    if isinstance(future.exception(), KilledWorker):
                        yield Lost(order)
                    else:
                        yield future.result()
        finally:
            with suppress(Exception):
                client.cancel(list(under_way))


def _done(client: Any, futures: list[Any], address: str | None) -> list[Any]:
    """Wait for one of Dask's futures at least, as long as somebody is there to compute it.

    Raises:
        TransportError: All workers have been away for long: Dask itself would wait for good.
    """
    from distributed import wait

    away_s = 0
    while away_s < _WITHOUT_WORKERS_S:
        with suppress(TimeoutError):
            found: Any = wait(futures, _LOOK_S, "FIRST_COMPLETED")  # type: ignore[no-untyped-call]
            return list(found.done)
        # A worker that was killed is soon replaced, where it has a nanny.
        away_s = 0 if client.nthreads() else away_s + _LOOK_S
    raise TransportError(f"the Dask cluster at {address} has no workers any more")


def _over_ray(
    address: str | None, run: Run, orders: Sequence[str], jobs: int | None
) -> Generator[str | Lost]:
    import ray
    from ray.exceptions import NodeDiedError, OutOfMemoryError, RayActorError, WorkerCrashedError

    killed = (NodeDiedError, OutOfMemoryError, RayActorError, WorkerCrashedError)
    with _ray(address), _as_failure("Ray"):
        # Tried again by us, alone: it may have been the one beside it.
        there = ray.remote(max_retries=0)(run)
        cores = ray.cluster_resources()  # type: ignore[no-untyped-call]
        free = jobs or int(cores.get("CPU", 0)) or 1
        waiting = list(reversed(orders))
        under_way: dict[Any, str] = {}
        try:
            while waiting or under_way:
                while waiting and len(under_way) < free:
                    order = waiting.pop()
                    under_way[there.remote(order)] = order
                (done, *_), _ = ray.wait(list(under_way))
                order = under_way.pop(done)
                try:
                    answer = ray.get(done)
                except killed:
                    answer = Lost(order)
                yield answer
        finally:
            with suppress(Exception):
                for reference in under_way:
                    ray.cancel(reference, force=True)


@contextmanager
def _ray(address: str | None) -> Iterator[None]:
    import ray

    is_ours = not ray.is_initialized()
    if is_ours:
        # It would tell its makers of every run.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            _require_listener(address)
            ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=ERROR)
        except (OSError, ValueError, RuntimeError) as error:
            raise TransportError(f"there is no Ray cluster at {address}: {error}") from error
    try:
        yield
    finally:
        if is_ours:
            ray.shutdown()


def _require_listener(address: str | None) -> None:
    """See whether somebody listens at an address: Ray itself would wait for minutes.

    Raises:
        OSError: Nobody does.
    """
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    # What names no port, such as auto, is for Ray to find.
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()


@contextmanager
def _as_failure(what: str) -> Iterator[None]:
    """Whatever processes or a cluster raise is a failure of theirs: trials do not raise.

    An ``OSError`` too, which to others is one of the study's folder.
    """
    try:
        yield
    except RumorError:
        raise
    except Exception as error:
        text = str(error).strip().partition("\n")[0]
        raise TransportError(f"{what} failed: {type(error).__name__}: {text}") from error
