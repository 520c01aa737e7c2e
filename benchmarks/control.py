"""``control``: how long control messages take while bulk fills the link."""

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any, Final

from . import cable_end
from .cable import Cable, CableError, cable
from .machine import machine
from .result import Result, Row
from .timing import percentile

__all__ = ["measure_control"]

_log = logging.getLogger("rumor.benchmarks")

_PORT: Final = 7700
_END_S_MAX: Final = 240


def measure_control(
    link_mb_s: float = 20,
    size_mb: float = 40,
    times: int = 3,
    idle_s: float = 3.0,
    bulk_mib: int = 8,
    pings: int = 7,
) -> Result:
    """Time HELLOs and their answers between two hosts while one pushes large shares at the other.

    Args:
        link_mb_s: What the link between them carries, 10**6 bytes per second.
        size_mb: Size of the float32 vector, 10**6 bytes.
        times: How often it is pushed.
        idle_s: How long HELLOs are timed without bulk, seconds.
        bulk_mib: What plain ZeroMQ is given to send right before each ping, 2**20 bytes.
        pings: Of plain ZeroMQ, without bulk and with it.
    """
    start_s = time.perf_counter()
    try:
        with cable(link_mb_s * 1e6) as laid:
            _log.info("plain ZeroMQ on a link of %g MB/s", link_mb_s)
            plain = _run_ends(laid, "plain_", _plain(laid, bulk_mib << 20, pings))
            _log.info("rumor on a link of %g MB/s", link_mb_s)
            size_bytes = int(size_mb * 1e6) // 4 * 4
            ours = _run_ends(laid, "", _peers(laid, size_bytes, times, idle_s))
        rows = tuple(_rows(ours, plain, link_mb_s, bulk_mib))
    except CableError as error:
        _log.warning("%s", error)
        rows = (Row(name="not measured", ours=0, reference=0, unit="ms", note=str(error)),)
    return Result(
        name="control",
        title=f"Round trip of control messages on a link of {link_mb_s:g} MB/s, while shares of "
        f"{size_mb:g} MB are pushed",
        columns=("what", "rumor", "reference", "ratio", "unit", "reference and notes"),
        rows=rows,
        machine=machine(),
        wall_s=time.perf_counter() - start_s,
    )


_Asked = tuple[Mapping[str, Any], Mapping[str, Any]]


def _plain(laid: Cable, bulk_bytes: int, pings: int) -> _Asked:
    address = f"tcp://{laid.addresses[0]}:{_PORT}"
    return {"address": address, "bulk_bytes": bulk_bytes, "times": pings}, {"address": address}


def _peers(laid: Cable, size_bytes: int, times: int, idle_s: float) -> _Asked:
    first, second = (f"tcp://{address}:{_PORT}" for address in laid.addresses)
    near = {"address": first, "size_bytes": size_bytes, "times": times, "idle_s": idle_s}
    return near, {"address": second, "join": first, "size_bytes": size_bytes}


def _rows(
    ours: Mapping[str, Any], plain: Mapping[str, Any], link_mb_s: float, bulk_mib: int
) -> Iterator[Row]:
    one_socket = "a ping of plain ZeroMQ on the socket that bulk goes over"
    behind = f"{one_socket}, behind {bulk_mib} MiB"
    bulk_ms = [taken_s * 1e3 for taken_s in ours["bulk_s"]]
    behind_ms = median(plain["bulk_s"]) * 1e3
    counted = f"{len(bulk_ms)} HELLOs"
    shown = {
        "under bulk, median": (median(bulk_ms), f"{behind}; {counted}"),
        "under bulk, p99": (percentile(bulk_ms, 99), f"{behind}, median; {counted}"),
        "under bulk, longest": (max(bulk_ms), f"{behind}, median; {counted}"),
    }
    yield Row(
        name="without bulk, median",
        ours=median(ours["idle_s"]) * 1e3,
        reference=median(plain["idle_s"]) * 1e3,
        unit="ms",
        note=f"{one_socket}, with none",
    )
    for name, (figure, note) in shown.items():
        yield Row(name=name, ours=figure, reference=behind_ms, unit="ms", note=note)
    yield Row(
        name="bulk meanwhile",
        ours=ours["bytes_s"] / 1e6,
        reference=link_mb_s,
        unit="MB/s",
        note="what the link carries, headers included",
    )


def _run_ends(laid: Cable, kind: str, asked: _Asked) -> dict[str, Any]:
    """Run both ends; what the near one found."""
    near, far = asked
    with _end(laid, 1, f"{kind}far", far), _end(laid, 0, f"{kind}near", near) as process:
        try:
            out, _ = process.communicate(timeout=_END_S_MAX)
        except subprocess.TimeoutExpired:
            raise CableError(f"nothing came over it in {_END_S_MAX} s") from None
    if process.returncode:
        raise CableError(f"an end of it failed with status {process.returncode}")
    return dict(json.loads(out.splitlines()[-1]))


@contextmanager
def _end(
    laid: Cable, end: int, role: str, asked: Mapping[str, Any]
) -> "Iterator[subprocess.Popen[str]]":
    # -P: the folder of the script has modules called topology and result.
    script = (sys.executable, "-P", cable_end.__file__, role, json.dumps(asked))
    process = subprocess.Popen(
        laid.command(end, *script),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
