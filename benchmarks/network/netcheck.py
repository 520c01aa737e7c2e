"""``netcheck``: swarms on hosts with slow cables, beside what the simulator has said of them."""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from ...gossip.errors import RumorError
from ...sim import simulate
from ...sim.calibration import read_calibration
from ...sim.results.compare import put_side_by_side
from ...sim.results.live_run import LiveRun, read_live_run
from ...sim.results.run import Run
from ..results import Result, Row
from .hosts import Hosts, HostsError, hosts

__all__ = ["measure_network"]

_log = logging.getLogger("rumor.benchmarks")

_PORT: Final = 7700
_RUN_S_MAX: Final = 600

# As home routers have. Of a shorter queue, TCP loses ends of messages and waits 200 ms to send them
# again, for which a rule that waits waits each time.
_QUEUE_MS: Final = 200
_TARGET: Final = 0.7

# Figures that are no verdict, and worth telling.
_TOLD: Final = ("staleness",)

# -P, or a file types.py in the working directory would stand in for Python's own.
_RUMOR: Final = (sys.executable, "-P", "-m", "rumor.cli")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A rule, and how it is run."""

    rule: str
    steps: int
    """Of each peer."""
    step_s_min: float
    """Seconds that a step takes at least, asleep. A rule that waits would sleep less for it."""
    probing: str
    """The rule while paces, and links, are measured."""
    probing_steps: int


_CASES: Final = (
    # Links are measured while hardly anything is sent, and while all peers are still there.
    _Case(rule="gosgd:p=1", steps=150, step_s_min=0.1, probing="gosgd:p=0.02", probing_steps=300),
    _Case(rule="allreduce", steps=40, step_s_min=0.0, probing="allreduce", probing_steps=10),
)


def measure_network(
    peers: Sequence[int] = (4, 8),
    rates_mbit: Sequence[float] = (20, 60, 200),
    task: str = "mnist",
    cases: Sequence[_Case] = _CASES,
) -> Result:
    """Predict swarms on slow cables from a calibration, run them, and compare.

    Args:
        peers: Sizes of swarms; each peer is on a host of its own.
        rates_mbit: Of the cables, 10^6 bits per second, each way.
        task: What is trained.
        cases: Under which rules; the first one's calibration measures the links.
    """
    rows: list[Row] = []
    try:
        for n in peers:
            for rate_mbit in rates_mbit:
                # One more host asks the questions.
                rate_bytes_s = rate_mbit * 1e6 / 8
                with (
                    hosts(n + 1, rate_bytes_s, _QUEUE_MS) as laid,
                    TemporaryDirectory() as folder,
                ):
                    rows += _measured(laid, n, rate_mbit, task, cases, Path(folder))
    except HostsError as error:
        _log.warning("%s", error)
        rows = [Row(name="not measured", ours=0, reference=0, unit="", note=str(error))]
    return Result(
        name="netcheck",
        title=f"{task} on hosts of their own, predicted by the simulator and then run",
        columns=("what", "simulated", "live", "ratio", "unit", "rule, peers and cables"),
        rows=tuple(rows),
    )


def _measured(laid: Hosts, n: int, *given: Any) -> list[Row]:
    """Rows of one swarm size and one kind of cable, as far as it came: the others still count."""
    rows: list[Row] = []
    try:
        for row in _rows_of(laid, n, *given):
            rows.append(row)
            _log.info(
                "%s: %s %.6g simulated, %.6g live", row.note, row.name, row.ours, row.reference
            )
    except (RumorError, subprocess.TimeoutExpired) as error:
        why = f"{n} peers, {given[0]:g} Mbit/s: {error}"
        _log.warning("%s", why)
        rows.append(Row(name="not measured", ours=0, reference=0, unit="", note=why))
    return rows


def _rows_of(
    laid: Hosts, n: int, rate_mbit: float, task: str, cases: Sequence[_Case], folder: Path
) -> Iterator[Row]:
    network: Any = None
    for number, case in enumerate(cases):
        where = f"{case.rule}, {n} peers, {rate_mbit:g} Mbit/s"
        _log.info("%s: calibrating", where)
        place, asked = folder / f"{number}-probe", {"rule": case.probing, "task": task}
        file = place / "calibration.json"
        options = asked | {"steps": case.probing_steps, "step_s_min": case.step_s_min}
        with _Swarm(laid, n, place, options) as swarm:
            if network is None:
                swarm.wait_for_rows()
                swarm.calibrate(file, "--join", f"{laid.addresses[0]}:{_PORT}")
            swarm.wait()
            if network is not None:
                swarm.calibrate(file)
        calibration = read_calibration(file)
        network = network or calibration.network
        _log.info("%s: steps of %s s, %s", where, [p.step_s for p in calibration.peers], network)
        changes = {"network": network, "rule": case.rule, "p": None, "steps": case.steps}
        simulated = simulate(
            **{**calibration.simulation(), **changes, "total_steps": None, "eval_every": 5}
        )
        _log.info("%s: running", where)
        options |= {"rule": case.rule, "steps": case.steps}
        with _Swarm(laid, n, folder / f"{number}-live", options) as swarm:
            swarm.wait()
            live = read_live_run(swarm.folder)
        yield from _compared(live, simulated, where)


def _compared(live: LiveRun, simulated: Run, where: str) -> Iterator[Row]:
    found = put_side_by_side(live, simulated, target=_TARGET)
    for figure in found.figures:
        told = figure.judged or figure.name in _TOLD
        if told and figure.live is not None and figure.simulated is not None:
            ours, reference, unit = figure.simulated, figure.live, figure.unit
            if unit == "B/s":
                ours, reference, unit = ours / 1e3, reference / 1e3, "kB/s"
            yield Row(name=figure.name, ours=ours, reference=reference, unit=unit, note=where)


class _Swarm:
    """Peers, each on its host, from their start to their end."""

    def __init__(self, laid: Hosts, n: int, folder: Path, options: Mapping[str, Any]) -> None:
        self.folder = folder
        self._laid = laid
        self._n = n
        self._options = options
        self._stack = ExitStack()
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "_Swarm":
        (self.folder / "rendezvous").mkdir(parents=True)
        for index in range(self._n):
            options = {
                **self._options,
                **{"id": f"peer-{index}", "index": index, "count": self._n, "founders": self._n},
                "bind": f"tcp://{self._laid.addresses[index]}:{_PORT}",
                "rendezvous": self.folder / "rendezvous",
                "out": self.folder / "peers" / f"peer-{index}",
                **{"topology": "complete", "log_every": 5, "eval_every": 5, "leave_s": 30},
            }
            words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
            log = self._stack.enter_context(open(self.folder / f"peer-{index}.log", "wb"))
            process = subprocess.Popen(
                self._laid.command(index, *_RUMOR, "peer", *words),
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=log,
                stderr=log,
            )
            self._stack.callback(_end, process)
            self._processes.append(process)
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def wait_for_rows(self) -> None:
        """Wait until each peer has written what it took two times ten steps for."""
        files = [self.folder / "peers" / f"peer-{k}" / "metrics.jsonl" for k in range(self._n)]
        end_s = time.monotonic() + _RUN_S_MAX
        while not all(file.exists() and file.read_bytes().count(b"\n") > 4 for file in files):
            self._check()
            if time.monotonic() > end_s:
                raise RumorError(f"not all peers train after {_RUN_S_MAX} s")
            time.sleep(0.1)

    def calibrate(self, file: Path, *options: str) -> None:
        """Let the further host measure them."""
        words = (*_RUMOR, "calibrate", str(self.folder), "-o", str(file), *options)
        done = subprocess.run(
            self._laid.command(self._n, *words), capture_output=True, text=True, timeout=_RUN_S_MAX
        )
        if done.returncode:
            raise RumorError(f"rumor calibrate failed: {done.stderr.strip()}")

    def wait(self) -> None:
        """Wait until all have finished."""
        for process in self._processes:
            process.wait(timeout=_RUN_S_MAX)
        self._check()

    def _check(self) -> None:
        for index, process in enumerate(self._processes):
            if process.poll():
                log = (self.folder / f"peer-{index}.log").read_text().strip().splitlines()
                raise RumorError(f"peer-{index} failed: {log[-1] if log else 'without a word'}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
