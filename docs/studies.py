"""Write docs/studies/ from the folders of finished studies: ``make studies``.

``python docs/studies.py runs/study-graphs ...``, from the root of the repository. Each folder gives
a page of results, its pictures and its table of trials; all figures and sentences on a page are
computed from the folder. ``docs/studies/README.md`` lists all pages.
"""

import argparse
import csv
import datetime
import io
import os
import platform
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Final

from PIL import Image
from scripts.published import NOTES, against_published, relay_order, slow_links

from rumor.sim.study import Results, Study, built_in_studies, load_results
from rumor.sim.study.analysis.ranking import Comparison, Row, comparisons
from rumor.sim.study.analysis.search import searched
from rumor.sim.study.analysis.verdicts import headlines, verdict_words
from rumor.sim.study.format import count, listed, number, shown, spread
from rumor.sim.study.metrics import METRICS, Metric
from rumor.sim.study.report import charts

__all__ = [
    "NOTES",
    "OUT",
    "against_published",
    "draw_pictures",
    "index",
    "main",
    "page",
    "points",
    "relay_order",
    "slow_links",
    "write",
]

OUT: Final = Path("docs/studies")
SOURCES: Final = "../../../sim/study/built_in"
"""Folder of the study files, relative to a page."""

NAMES: Final = tuple(study.name for study in built_in_studies())

TRIALS: Final = "trials.tar.xz"
"""Archive with the trials of an unfinished study, for resuming it."""

PLACES_MAX: Final = 6
"""Maximum number of places in a picture; more go to another picture."""

COLORS: Final = 128
"""Colors of a picture. Lines and points need no more, and more cost bytes."""

CAPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "curves": "Quality of models, distance between them, and bands over seeds",
        "ranking": "Ranking; blue: no significant difference from the first",
        "response": "Dependence on the numeric axis",
    }
)
"""Captions of pictures, by the beginnings of their names, in display order."""


def main() -> None:
    """Read the command line, write the pages."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path, help="of finished studies")
    parser.add_argument("--machine", default=_machine(), help="what they were computed on")
    parser.add_argument(
        "--date", default=datetime.date.today().isoformat(), help="when they were computed"
    )
    parser.add_argument("--commit", default="", help="of the code that computed them")
    asked = parser.parse_args()
    for folder in asked.folders:
        write(folder, OUT, machine=asked.machine, date=asked.date, commit=asked.commit)
    (OUT / "README.md").write_text(index(OUT), encoding="utf-8")


def write(folder: Path, out: Path, *, machine: str, date: str, commit: str = "") -> None:
    """Write the page of one study, its pictures and its table.

    For an unfinished study its trials are stored next to them, for resuming it.

    Args:
        folder: Folder of the study, with ``summary.csv``.
        out: Folder of all pages; this one goes into a folder of the study's name.
        machine: Description of the machine.
        date: Date in the form 2026-11-21.
        commit: Commit of the code that computed it.
    """
    results = load_results(folder)
    here = out / results.study.name
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    shutil.copyfile(folder / "summary.csv", here / "summary.csv")
    with (here / "points.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(points(searched(results)[0]))
    pictures = sorted(draw_pictures(results, here), key=_place)
    names = [picture.name for picture in pictures]
    if _missing(results):
        with tarfile.open(here / TRIALS, "w:xz") as packed:
            for part in ("study.json", "trials"):
                if (folder / part).exists():
                    packed.add(folder / part, part, filter=_without_dates)
    how = f"{machine}; code of commit {commit}" if commit else machine
    text = page(results, names, machine=how, date=date)
    (here / "README.md").write_text(text, encoding="utf-8")


def _missing(results: Results) -> int:
    """Return how many trials were not computed."""
    known = len(results.results) + len(results.failures)
    return sum(1 for _ in results.study.trials()) - known


def _without_dates(part: tarfile.TarInfo) -> tarfile.TarInfo:
    """Drop dates, so that the same trials make the same archive."""
    part.mtime, part.uid, part.gid, part.uname, part.gname = 0, 0, 0, "", ""
    return part


def draw_pictures(results: Results, folder: Path) -> list[Path]:
    """Draw all charts of at least one result, as PNG with few colors, and return their paths."""
    results, _ = searched(results)
    study, places = results.study, comparisons(results)
    colors, drawn = charts.standing(study, places), {}
    for number_, start in enumerate(range(0, len(places), PLACES_MAX), 1):
        of, some = "" if number_ == 1 else f"-{number_}", places[start : start + PLACES_MAX]
        drawn[f"curves{of}"] = charts.curves(some, colors)
        drawn[f"ranking{of}"] = charts.ranking(some)
    if charts.number_axis(study) is not None:
        metric = places[0].metric
        other = "bytes_to_target" if metric.to_target else "consensus_distance"
        drawn["response"] = charts.response(results, [metric, METRICS[other]])
    for name, figure in drawn.items():
        with Image.open(io.BytesIO(charts.png(figure))) as picture:
            small = picture.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE)
        small.save(folder / f"{name}.png", optimize=True)
    return [folder / f"{name}.png" for name in drawn]


def page(
    results: Results,
    pictures: Sequence[str],
    *,
    machine: str,
    date: str,
) -> str:
    """Return the page of a study, in Markdown.

    Args:
        results: Results of all its trials.
        pictures: Names of files next to the page.
        machine: Description of the machine.
        date: Date in the form 2026-11-21.
    """
    study = results.study
    everything, (results, found) = results, searched(results)
    parts = [
        f"# {study.title}",
        "<!-- Written by docs/studies.py: run `make studies` instead of editing. -->",
        study.question,
        "## Results",
        "\n".join(f"- {line}" for line in headlines(results)),
        *_note(results),
        *_failures(results),
        *(f"![{_caption(name)}]({name})" for name in pictures),
        "## Data",
        *_reference(study.reference),
        LEGEND.format(target=_target(results.study)),
        *([found.words] if found else []),
        "## Method",
        _how(everything, machine, date),
    ]
    return "\n\n".join(parts) + "\n"


LEGEND: Final = """\
[points.csv](points.csv) has one row for each point: means over the seeds with 95 % intervals
(Student's t); [summary.csv](summary.csv) has one for each trial. Time is virtual; bytes are those
of all workers together.{target}
Differences are [tested](../../explanation/statistics.md) at 5 %."""


def _target(study: Study) -> str:
    if study.goal == "loss":
        return f" Times and bytes are those to a loss of {number(study.target)}."
    if len(study.metrics) > _WIDE:
        return ""
    right = shown(study.target, "%")
    return f" The target is an accuracy of {right}."


def _reference(named: str) -> Iterator[str]:
    """Say that comparisons are fewer, if the study has named a reference."""
    if named:
        yield (
            f"The [reference](../../explanation/statistics.md#a-reference-named-beforehand) is "
            f"**{named}**."
        )


def _how(results: Results, machine: str, date: str) -> str:
    study = results.study
    seeds = listed(sorted({str(one.trial.seed) for one in results.results}), at_most=10)
    core_s = sum(result.wall_s for result in results.results)
    lines = [
        f"- Command: `rumor study {study.name}`, which also writes a page with "
        "all arguments and the command of each trial",
        f"- The study's file: [{study.name}.toml]({SOURCES}/{study.name}.toml)",
        f"- {count(len(results.results), 'trial')}, seeds {seeds}",
        *_unfinished(results),
        *_trained_by(results),
        f"- Machine: {machine}; {core_s / 60:.1f} core-minutes in all",
        f"- Python {platform.python_version()}, torch {version('torch')}, numpy {version('numpy')}",
        f"- Date: {date}",
    ]
    return "\n".join(lines)


def _unfinished(results: Results) -> Iterator[str]:
    if missing := _missing(results):
        yield (
            f"- {count(missing, 'trial')} did not fit into the time. [{TRIALS}]({TRIALS}) has the "
            f"others: unpacked, `rumor study {results.study.name} --resume --out FOLDER` goes on, "
            "with the code that computed them"
        )


def _trained_by(results: Results) -> Iterator[str]:
    """Yield optimizer, momentum and learning rate, and their source."""
    words = {"optimizer": "optimizer", "momentum": "momentum", "lr": "learning rate"}
    parts = []
    for name, called in words.items():
        values = dict.fromkeys(one.summary.get(name) for one in results.results)
        used = [v if isinstance(v, str) else number(v) for v in values if v is not None]
        parts += [f"{called} {listed(used)}"] if used else []
    if parts:
        source = f" ({results.study.source})" if results.study.source else ""
        yield f"- Trained with {', '.join(parts)}{source}"


_WIDE: Final = 4
"""A study that names more metrics than this has them as columns, and no default columns."""


def points(results: Results) -> Iterator[list[str]]:
    """Yield the rows of ``points.csv``: names of columns, then one row for each point."""
    study = results.study
    axes = [axis.name for axis in study.axes]
    if len(study.metrics) <= _WIDE:
        for i, comparison in enumerate(comparisons(results)):
            ranked = [comparison.metric.words] if _ranks_by_another(comparison) else []
            if i == 0:
                yield [*axes[1:], axes[0], *ranked, *_COLUMNS]
            yield from (
                [*comparison.at.values(), *_cells(row, comparison)] for row in comparison.rows
            )
        return
    metrics = [METRICS[name] for name in study.metrics]
    yield [*axes[1:], axes[0], "seeds", *(metric.words for metric in metrics)]
    there = {tuple(comparison.at.values()): comparison for comparison in comparisons(results)}
    for place in product(*(axis.labels for axis in study.axes[1:])):
        rows = {row.label: row for row in there[place].rows} if place in there else {}
        for label in study.axes[0].labels:
            if row := rows.get(label):
                yield [*place, label, str(row.n), *(_wide(row, metric) for metric in metrics)]
            else:
                failed = any(_is_of(trial, (label, *place)) for trial in results.failures)
                words = "cannot go on" if failed else "not computed"
                yield [*place, label, words, *[""] * len(metrics)]


def _is_of(trial: str, place: tuple[str, ...]) -> bool:
    return trial.rpartition(", seed ")[0] == ", ".join(place)


def _wide(row: Row, metric: Metric) -> str:
    found = row.figures.get(metric.name)
    if found is not None:
        return spread(found, metric.unit)
    return f"{row.arrived.get(metric.name, 0)} of {row.n}" if metric.to_target else ""


_COLUMNS: Final = (
    *("reached", "time to it, s", "steps to it", "MB to it", "final accuracy"),
    *("consensus distance", "MB in all", "beside the first"),
)

_TOLD: Final = (
    *("time_to_target_s", "steps_to_target", "bytes_to_target", "accuracy", "consensus_distance"),
    "bytes_sent",
)
"""Metrics in each of these tables."""


def _ranks_by_another(comparison: Comparison) -> bool:
    """True if points are ranked by a figure that no column would show."""
    return comparison.metric.name not in _TOLD


def _cells(row: Row, comparison: Comparison) -> list[str]:
    verdict = verdict_words(row, comparison)
    metric = comparison.metric
    ranked = (
        [spread(row.figures.get(metric.name), metric.unit)] if _ranks_by_another(comparison) else []
    )
    return [
        row.label,
        *(ranked if _ranks_by_another(comparison) else []),
        f"{comparison.reached(row)} of {row.n}",
        _figure(row, "time_to_target_s"),
        _figure(row, "steps_to_target"),
        _figure(row, "bytes_to_target", 1e-6),
        _figure(row, "accuracy"),
        _figure(row, "consensus_distance"),
        number(row.figures["bytes_sent"].mean / 1e6) if "bytes_sent" in row.figures else "-",
        verdict,
    ]


def _figure(row: Row, name: str, scale: float = 1.0) -> str:
    found = row.figures.get(name)
    if found is None:
        return "-"
    return spread(
        replace(found, mean=found.mean * scale, low=found.low * scale, high=found.high * scale)
    )


def _failures(results: Results) -> Iterator[str]:
    failures = results.failures
    if not failures:
        return
    points: dict[str, list[str]] = {}
    for trial, why in failures.items():
        points.setdefault(trial.rpartition(", seed ")[0], []).append(why.partition(":")[0])
    lines = [f"- {point}, {count(len(whys), 'seed')}: {whys[0]}" for point, whys in points.items()]
    yield "\n".join([f"**{count(len(failures), 'trial')} failed:**", "", *lines])


def _caption(name: str) -> str:
    return next((text for key, text in CAPTIONS.items() if name.startswith(key)), name)


def _place(picture: Path) -> tuple[int, int, str]:
    """Return where to show it: in the order of the captions, then by number."""
    kinds = list(CAPTIONS)
    kind = next((i for i, key in enumerate(kinds) if picture.name.startswith(key)), len(kinds))
    part = re.search(r"-(\d+)\.png$", picture.name)
    return kind, int(part[1]) if part else 1, picture.name


def _machine() -> str:
    """Return the processor and its number of cores."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = re.search(r"^model name\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE)
        model = found[1] if found else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores of {model}, {platform.system()}"


def index(out: Path) -> str:
    """Return the list of all pages."""
    lines = [
        "# Studies",
        "",
        "<!-- Written by docs/studies.py: run `make studies` instead of editing. -->",
        "",
        "Results of the built-in studies. `rumor study NAME` repeats one, "
        "`rumor study NAME --copy mine.toml`",
        "gives you its file to edit; [studies.md](../how-to/studies.md) explains how.",
        "",
    ]
    for path in sorted(out.glob("*/README.md")):
        text = path.read_text(encoding="utf-8")
        title = text.partition("\n")[0].removeprefix("# ")
        question = text.split("\n\n")[2]
        lines += [f"- [{title}]({path.parent.name}/README.md): {question}"]
    return "\n".join(lines).rstrip() + "\n"


def _note(results: Results) -> Iterator[str]:
    note = NOTES.get(results.study.name)
    if note is not None:
        yield note(results)


if __name__ == "__main__":
    main()
