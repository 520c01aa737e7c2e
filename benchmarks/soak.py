"""``soak``: what peers take from their machine while others come and go around them."""

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Final

from ..gossip import ONE, Audit, in_units
from .churn import Churn
from .machine import machine
from .result import Result, Row
from .vitals import Vitals, vitals

__all__ = ["Soaked", "measure_soak", "report", "soak"]

_log = logging.getLogger("rumor.benchmarks")

_MEASURES: Final[Mapping[str, tuple[str, Callable[[Vitals], float]]]] = {
    "PSS": ("MB", lambda look: look.pss_bytes / 1e6),
    "RSS": ("MB", lambda look: look.rss_bytes / 1e6),
    "threads": ("", lambda look: look.threads),
    "open files": ("", lambda look: look.files),
}


@dataclass(frozen=True, slots=True)
class Soaked:
    """What came of it."""

    times_s: list[float]
    """When peers were looked at, seconds from the start."""
    looks: dict[str, list[Vitals]]
    """At each peer that stayed, by id."""
    events: Mapping[str, int]
    """What the others did."""
    audit: Audit


def soak(
    folder: Path, *, seconds: float, peers: int, staying: int, every_s: float, look_s: float
) -> Soaked:
    """Let peers come and go around some that stay, and look at these.

    Args:
        folder: For their ledgers.
        seconds: How long.
        peers: How many there are at most at the same time.
        staying: How many of them found the swarm and stay.
        every_s: How often one goes, seconds.
        look_s: How often to look, seconds.
    """
    churn = Churn(folder, staying, peers - staying)
    try:
        pids = churn.pids
        start_s = time.monotonic()
        times_s: list[float] = []
        looks: dict[str, list[Vitals]] = {id: [] for id in pids}
        turn_s = look_due_s = start_s
        while (now := time.monotonic()) < start_s + seconds:
            if now >= look_due_s:
                look_due_s += look_s
                times_s.append(now - start_s)
                for id, pid in pids.items():
                    looks[id].append(vitals(pid))
            churn.turn()
            turn_s += every_s
            time.sleep(max(0.0, turn_s - time.monotonic()))
        return Soaked(times_s, looks, dict(churn.events), churn.end())
    finally:
        churn.kill()


def measure_soak(
    minutes: float = 10,
    peers: int = 32,
    every_s: float = 2.0,
    look_s: float = 5.0,
    picture: Path | str | None = None,
) -> Result:
    """Soak a swarm, and hold the last quarter of the time against the second one.

    The first quarter is passed over: until then, memory is taken for the first time.

    Args:
        minutes: How long.
        peers: How many there are at most at the same time.
        every_s: How often one of them goes, seconds; a quarter of them stay, and are looked at.
        look_s: How often to look, seconds.
        picture: Where to draw what was seen, as PNG; None for nowhere.
    """
    start_s = time.perf_counter()
    staying = max(2, peers // 4)
    rows: tuple[Row, ...] = (
        Row(name="not measured", ours=0, reference=0, unit="", note="needs Linux's /proc"),
    )
    if sys.platform == "linux":
        _log.info("soak: %d peers for %g minutes", peers, minutes)
        with TemporaryDirectory() as folder:
            found = soak(
                Path(folder),
                seconds=60 * minutes,
                peers=peers,
                staying=staying,
                every_s=every_s,
                look_s=look_s,
            )
        rows = tuple(_rows(found))
        if picture is not None:
            _draw(found, Path(picture))
    return Result(
        name="soak",
        title=f"{staying} peers that stayed for {minutes:g} minutes while others of {peers} came "
        "and went: the last quarter beside the second",
        columns=("what", "last quarter", "second quarter", "ratio", "unit", "notes"),
        rows=rows,
        machine=machine(),
        wall_s=time.perf_counter() - start_s,
    )


def _rows(found: Soaked) -> Iterator[Row]:
    n = len(found.times_s)
    early, late = slice(n // 4, max(n // 4 + 1, n // 2)), slice(min(n - 1, 3 * n // 4), n)
    happened = ", ".join(f"{count} {what}" for what, count in sorted(found.events.items()))
    for what, (unit, of) in _MEASURES.items():
        means = [
            (mean(map(of, looks[late])), mean(map(of, looks[early])))
            for looks in found.looks.values()
        ]
        worst = max(means, key=lambda pair: pair[0] / pair[1])
        lasts, seconds = zip(*means, strict=True)
        for whose, (last, second) in {
            "mean": (mean(lasts), mean(seconds)),
            "who grew most": worst,
        }.items():
            yield Row(
                name=f"{what}, {whose}", ours=last, reference=second, unit=unit, note=happened
            )
    whole = found.audit
    accounted = whole.held + whole.in_flight + whole.stranded + whole.burned + whole.died
    yield Row(
        name="weight in all ledgers",
        ours=accounted / ONE,
        reference=whole.founded / ONE,
        unit="founders",
        note=f"difference in units: {in_units(accounted - whole.founded)}; "
        f"held {whole.held / ONE:.6g}, in flight {whole.in_flight / ONE:.6g}, "
        f"stranded {whole.stranded / ONE:.6g}, burned {whole.burned / ONE:.6g}, "
        f"gone with the dead {whole.died / ONE:.6g}",
    )


def _draw(found: Soaked, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 7), layout="constrained")
    all_axes = figure.subplots(len(_MEASURES), 1, sharex=True)
    for axes, (what, (unit, of)) in zip(all_axes, _MEASURES.items(), strict=True):
        for looks in found.looks.values():
            axes.plot(found.times_s, [of(look) for look in looks], linewidth=0.8)
        axes.set_ylabel(f"{what}, {unit}" if unit else what)
        axes.set_ylim(bottom=0)
    all_axes[-1].set_xlabel("seconds; one line for each peer that stayed")
    figure.savefig(path, dpi=110)


def report(minutes: float, peers: int, picture: Path | str) -> None:
    """Soak a swarm, and print and draw what came of it; arguments as for `measure_soak`."""
    from rich.console import Console

    from .table import print_result

    # Every death would be a line; what this benchmark says is few.
    logging.getLogger("rumor").setLevel(logging.ERROR)
    result = measure_soak(minutes, peers, picture=picture)
    print_result(result, Console())
    print(f"\n{result.machine}; drawn in {picture}")
