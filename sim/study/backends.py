"""Where cells are computed: processes of this machine, or those of a Dask or Ray cluster.

The only module that knows joblib, Dask and Ray. What these send from process to process they
pickle, so that a study trusts its cluster as it trusts its own machine; all that we let them carry
is the name of one function, and text.
"""

import os
import socket
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from logging import ERROR
from typing import Any, Final

from ...gossip.errors import ConfigError, RumorError, TransportError

__all__ = ["Backend", "WorkerLost", "answers", "one_by_one", "read_backend"]

_NEEDS: Final = {"loky": "joblib", "dask": "distributed", "ray": "ray"}
_CONNECT_S: Final = 10
_FORMS: Final = "loky (processes of this machine), dask:tcp://HOST:PORT, ray or ray:ADDRESS"


class WorkerLost(RumorError):
    """A worker process has ended in the middle of a cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Where cells are computed."""

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
    backend: Backend, run: Callable[[str], str], orders: Sequence[str], jobs: int | None
) -> Generator[str]:
    """Carry out orders side by side.

    Args:
        backend: Where.
        run: A function of a module, which other processes find by its name.
        orders: What it is called with, once with each.
        jobs: Processes; None for as many as a cluster has cores.

    Yields:
        Answers, as they come; an answer that was taken is not computed again whatever happens.

    Raises:
        WorkerLost: One of this machine's processes was killed.
        TransportError: A cluster cannot be reached, or has failed.
    """
    if backend.is_local and jobs == 1:
        yield from map(run, orders)
        return
    with _OPEN[backend.kind](backend.address) as settings:
        yield from _side_by_side(run, orders, jobs, settings)


def _side_by_side(
    run: Callable[[str], str], orders: Sequence[str], jobs: int | None, settings: dict[str, Any]
) -> Generator[str]:
    from joblib import Parallel, delayed, parallel_config

    at_once = settings.pop("at_once", "2 * n_jobs")
    with parallel_config(**settings, n_jobs=jobs or -1):
        # One at a time: what comes in batches would be lost in batches.
        parallel = Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch=at_once)
        found = parallel(delayed(run)(order) for order in orders)
    with closing(found):
        yield from found


def one_by_one(run: Callable[[str], str], orders: Sequence[str]) -> Generator[str]:
    """Carry out orders in order, each in a process that may be killed."""
    with _loky(None) as settings:
        yield from _side_by_side(run, orders, 2, settings | {"at_once": 1})


@contextmanager
def _loky(address: str | None) -> Iterator[dict[str, Any]]:
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import BrokenProcessPool

    try:
        yield {"backend": "loky", "inner_max_num_threads": 1}
    except BrokenProcessPool as error:
        raise WorkerLost("a worker process was killed; perhaps it took too much memory") from error
    finally:
        get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)


@contextmanager
def _dask(address: str | None) -> Iterator[dict[str, Any]]:
    from distributed import Client

    try:
        client = Client(address, timeout=_CONNECT_S)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TypeError) as error:
        raise TransportError(f"there is no Dask scheduler at {address}: {error}") from error
    with client, _as_failure("Dask"):
        if not client.scheduler_info()["workers"]:
            raise TransportError(f"the Dask cluster at {address} has no workers")
        yield {"backend": "dask", "client": client}


@contextmanager
def _ray(address: str | None) -> Iterator[dict[str, Any]]:
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
        with _as_failure("Ray"):
            yield {"backend": _register_ray()}
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
    """Whatever a cluster raises is a failure of the cluster: cells do not raise."""
    try:
        yield
    except (RumorError, OSError):
        raise
    except Exception as error:
        text = str(error).strip().partition("\n")[0]
        raise TransportError(f"{what} failed: {type(error).__name__}: {text}") from error


def _register_ray() -> str:
    """Give Ray's backend to joblib, with results as they come."""
    from joblib import register_parallel_backend
    from ray.util.joblib.ray_backend import RayBackend

    class AsTheyCome(RayBackend):
        # joblib hears of each result by a callback; only processes of multiprocessing, which this
        # one is made after, may not survive that a generator is left before its end.
        supports_return_generator = True

    register_parallel_backend("rumor-ray", AsTheyCome)
    return "rumor-ray"


_OPEN: Final = {"loky": _loky, "dask": _dask, "ray": _ray}
