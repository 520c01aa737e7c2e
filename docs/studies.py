"""Write docs/studies/ from the folders of finished studies: ``make studies``.

``python docs/studies.py runs/study-graphs ...``, from the root of the repository. Each folder gives
a page of what came out, its pictures and its table of trials; all figures and sentences on a page
are computed from what is in the folder. ``docs/studies/README.md`` lists all pages that are there.
"""

import argparse
import datetime
import math
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Final

from PIL import Image

from rumor.sim.study import Results, built_in_studies, find_study, load_results
from rumor.sim.study.analysis.findings import findings, margin
from rumor.sim.study.analysis.ranking import SIGNIFICANT, Comparison, Row, comparisons
from rumor.sim.study.analysis.search import Search, searched
from rumor.sim.study.analysis.verdicts import verdict_words
from rumor.sim.study.execution.halving import Rung, load_rungs
from rumor.sim.study.format import count, listed, number, percent, sentence, spread
from rumor.sim.study.metrics import METRICS, Metric, values_of
from rumor.sim.study.statistics import Difference, difference, holm, interval, least_seen
from rumor.sim.study.study import Halving

__all__ = ["NOTES", "OUT", "index", "main", "page", "relay_order", "shrink", "write"]

OUT: Final = Path("docs/studies")
SOURCES: Final = "../../../sim/study/built_in"
"""Where the studies' files are, seen from a page."""

NAMES: Final = tuple(study.name for study in built_in_studies())

COLORS: Final = 128
"""Of a picture. More are not needed for lines and points, and cost bytes."""

CAPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "curves": "Accuracy and consensus distance, bands over seeds",
        "ranking": "In order; blue are those that are not told apart from the first",
        "predictions": "What facts about the graph foretell",
        "response": "What it depends on",
        "heat": "Both axes at once",
        "graphs": "The graphs",
    }
)
"""What pictures show, by the beginnings of their names, in the order in which they are shown."""


def main() -> None:
    """Read the command line, write the pages."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path, help="of finished studies")
    parser.add_argument("--machine", default=_machine(), help="what they were computed on")
    parser.add_argument(
        "--date", default=datetime.date.today().isoformat(), help="when they were computed"
    )
    asked = parser.parse_args()
    for folder in asked.folders:
        write(folder, OUT, machine=asked.machine, date=asked.date)
    (OUT / "README.md").write_text(index(OUT), encoding="utf-8")


def write(folder: Path, out: Path, *, machine: str, date: str) -> None:
    """Write the page of one study, its pictures and its table.

    Args:
        folder: Where it was computed, with ``summary.csv`` and ``pictures``.
        out: Of all pages; this one comes into a folder of the study's name.
        machine: In words.
        date: As 2026-11-21.
    """
    results = load_results(folder)
    here = out / results.study.name
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    shutil.copyfile(folder / "summary.csv", here / "summary.csv")
    pictures = sorted((folder / "pictures").glob("*.png"), key=_place)
    for picture in pictures:
        shrink(picture, here / picture.name)
    names = [picture.name for picture in pictures]
    asked = find_study(results.study.name) if results.study.name in NAMES else None
    search = None if asked is None else asked.search
    rungs = () if search is None else load_rungs(folder, search)
    text = page(results, names, machine=machine, date=date, rungs=rungs, search=search)
    (here / "README.md").write_text(text, encoding="utf-8")


def shrink(source: Path, target: Path) -> None:
    """Copy a picture with few colors, so that it is small."""
    with Image.open(source) as picture:
        small = picture.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE)
    small.save(target, optimize=True)


def page(
    results: Results,
    pictures: Sequence[str],
    *,
    machine: str,
    date: str,
    rungs: Sequence[Rung] = (),
    search: Halving | None = None,
) -> str:
    """The page of a study, in Markdown.

    Args:
        results: Of all its trials.
        pictures: Names of files beside the page.
        machine: In words.
        date: As 2026-11-21.
        rungs: Of the search by successive halving that was before them, if there was one, and
        search: What it looked for.
    """
    study = results.study
    everything, (results, found) = results, searched(results)
    parts = [
        f"# {study.title}",
        "<!-- Written by docs/studies.py: run `make studies` instead of editing. -->",
        study.question,
        "## What came out",
        "\n".join(f"- {sentence}" for sentence in findings(results)),
        *_note(results),
        *_failures(results),
        *(f"![{_caption(name)}]({name})" for name in pictures),
        "## In figures",
        *_reference(study.reference),
        *_tables(results),
        *_searched(found, comparisons(results)),
        *_halved(rungs, search),
        "## How it was computed",
        _how(everything, machine, date),
    ]
    return "\n\n".join(parts) + "\n"


def _searched(search: Search | None, found: Sequence[Comparison]) -> Iterator[str]:
    """What each value of a tuned axis gave, and which was taken."""
    if search is None:
        return
    yield f"## Which {search.axis.name} was taken\n\n{search.words}"
    for comparison in found:
        heads, lines = search.table(comparison.at)
        at = ", ".join(f"{axis}: {label}" for axis, label in comparison.at.items())
        rows = [_row(heads), _row(["---"] * len(heads)), *map(_row, lines)]
        yield "\n".join([*([f"### {at}", ""] if at else []), *rows])


def _halved(rungs: Sequence[Rung], search: Halving | None) -> Iterator[str]:
    """What each round of a search by successive halving gave."""
    if search is None:
        return
    metric, name = METRICS[search.metric], search.axis.name
    where = listed([f"{axis} {label}" for axis, label in search.at.items()])
    yield f"""## Which {name} was taken

Searched first, with {where} and seed {search.seed}, by successive halving, with the same trials for
all: each value for {listed([percent(rung.part) for rung in rungs])} of the steps in turn. After a
round the better half goes on; the best of the last one is taken. Figures: {metric.words}."""
    labels = search.axis.labels
    heads = ["", *(f"{label}, round {n}" for n in range(1, len(rungs) + 1) for label in labels)]
    lines = [_row([*heads, "taken"]), _row(["---", *["---:"] * len(heads)])]
    for point, kept in rungs[-1].kept.items():
        figures = [
            metric.shown(value) if (value := rung.found[point].get(label)) is not None else "–"
            for rung in rungs
            for label in labels
        ]
        edge = ", the edge of what was tried" if kept[0] in (labels[0], labels[-1]) else ""
        lines.append(_row([point, *figures, f"**{kept[0]}**{edge}"]))
    yield "\n".join(lines)


LEGEND: Final = """\
Means over the seeds with 95 % intervals (Student's t). Time, bytes and steps are those at which the
merged model was first measured to be right on {target} of the held-out data; time is virtual, bytes
are those of all workers together. *Not told apart*: the difference to the first row may be noise
(5 %, paired by seed, corrected for the number of comparisons), which does not make the two equal:
behind it stands the smallest true difference that would have been seen in 4 of 5 studies. Who did
not get to the target with every seed has no mean time, and is held against the first by how many
seeds did and by how far the others came ([how](../../explanation/statistics.md))."""


def _reference(named: str) -> Iterator[str]:
    """That comparisons are fewer, where the study has named what points are held against."""
    if named:
        yield (
            f"Others are held against **{named}**, which the study's file names as its "
            "[reference](../../explanation/statistics.md#a-reference-named-beforehand): where it "
            "is first, as many comparisons count as there are other points, and not all pairs."
        )


def _how(results: Results, machine: str, date: str) -> str:
    study = results.study
    seeds = listed(sorted({str(one.trial.seed) for one in results.results}), at_most=10)
    core_s = sum(result.wall_s for result in results.results)
    lines = [
        f"- Command: `rumor study {study.name}`, which also writes a page with all of this to "
        "click through, every argument, and the command that repeats a trial",
        f"- The study's file: [{study.name}.toml]({SOURCES}/{study.name}.toml)",
        f"- {count(len(results.results), 'trial')}, seeds {seeds}; one row for each in "
        "[summary.csv](summary.csv)",
        *_trained_by(results),
        f"- Machine: {machine}; {core_s / 60:.1f} core-minutes in all",
        f"- Python {platform.python_version()}, torch {version('torch')}, numpy {version('numpy')}",
        f"- Date: {date}",
    ]
    return "\n".join(lines)


def _trained_by(results: Results) -> Iterator[str]:
    """Optimizer, momentum and learning rate, and where they come from."""
    words = {"optimizer": "optimizer", "momentum": "momentum", "lr": "learning rate"}
    parts = []
    for name, called in words.items():
        values = dict.fromkeys(one.summary.get(name) for one in results.results)
        shown = [v if isinstance(v, str) else number(v) for v in values if v is not None]
        parts += [f"{called} {listed(shown)}"] if shown else []
    if parts:
        source = f" ({results.study.source})" if results.study.source else ""
        yield f"- Trained with {', '.join(parts)}{source}"


_WIDE: Final = 4
"""A study that names more metrics than that has tables of these, and none of the usual columns."""


def _tables(results: Results) -> Iterator[str]:
    """A table for each place of the further axes."""
    study, found = results.study, comparisons(results)
    if len(study.metrics) <= _WIDE:
        yield LEGEND.format(target=percent(study.target))
        yield from (_table(comparison) for comparison in found)
        return
    to_loss = any("_to_loss" in name for name in study.metrics)
    yield (
        "Means over the seeds with 95 % intervals (Student's t), where there are several seeds. "
        + f"Times and bytes are counted to a loss of {number(study.target)}. " * to_loss
        + "An empty cell was not computed; nothing is guessed. "
        + "[What each figure means](../../reference/simulation.md)."
    )
    there = {tuple(comparison.at.values()): comparison for comparison in found}
    for place in product(*(axis.labels for axis in study.axes[1:])):
        comparison = there.get(place)
        if comparison is not None:
            yield _wide_table(comparison, results)
        else:
            yield f"### {', '.join(place)}\n\nNot computed: it did not fit into the time."


def _wide_table(comparison: Comparison, results: Results) -> str:
    """The metrics that a study names, of all points: those without a result are empty."""
    study, metrics = results.study, [METRICS[name] for name in results.study.metrics]
    at = ", ".join(f"{axis}: {label}" for axis, label in comparison.at.items())
    lines = [f"### {at}", "", _row([comparison.axis, "seeds", *(m.words for m in metrics)])]
    lines.append(_row(["---", *["---:"] * (len(metrics) + 1)]))
    for row in comparison.rows:
        figures = [_wide(row, metric) for metric in metrics]
        lines.append(_row([row.label, str(row.n), *figures]))
    for label in study.axes[0].labels:
        if all(row.label != label for row in comparison.rows):
            place = {comparison.axis: label, **comparison.at}
            failed = any(_is_of(trial, place) for trial in results.failures)
            words = "cannot go on" if failed else ""
            lines.append(_row([label, words, *[""] * len(metrics)]))
    return "\n".join([*lines, "", sentence(margin(comparison))])


def _is_of(trial: str, place: Mapping[str, str]) -> bool:
    return trial.rpartition(", seed ")[0] == ", ".join(place.values())


def _wide(row: Row, metric: Metric) -> str:
    found = row.figures.get(metric.name)
    if found is not None:
        return metric.spread(found)
    return f"{row.arrived.get(metric.name, 0)} of {row.n}" if metric.to_target else "–"


def _table(comparison: Comparison) -> str:
    at = ", ".join(f"{axis}: {label}" for axis, label in comparison.at.items())
    ranked = [comparison.metric.words] if _ranks_by_another(comparison) else []
    columns = [
        comparison.axis, *ranked, "reached", "time to it, s", "steps to it", "MB to it",
        "final accuracy", "consensus distance", "MB in all", "",
    ]  # fmt: skip
    lines = [f"### {at}", ""] if at else []
    lines += [_row(columns), _row(["---", *["---:"] * (len(columns) - 2), "---"])]
    lines += [_row(_cells(row, comparison)) for row in comparison.rows]
    lines += ["", sentence(margin(comparison))]
    return "\n".join(lines)


_TOLD: Final = (
    *("time_to_target_s", "steps_to_target", "bytes_to_target", "accuracy", "consensus_distance"),
    "bytes_sent",
)
"""Figures that each table has."""


def _ranks_by_another(comparison: Comparison) -> bool:
    """Whether points are ranked by a figure that no column would show."""
    return comparison.metric.name not in _TOLD


def _cells(row: Row, comparison: Comparison) -> list[str]:
    verdict = verdict_words(row, comparison)
    metric = comparison.metric
    ranked = [metric.spread(row.figures.get(metric.name))] if _ranks_by_another(comparison) else []
    return [
        row.label,
        *ranked,
        f"{comparison.reached(row)} of {row.n}",
        _figure(row, "time_to_target_s"),
        _figure(row, "steps_to_target"),
        _figure(row, "bytes_to_target", 1e-6),
        _figure(row, "accuracy"),
        _figure(row, "consensus_distance"),
        number(row.figures["bytes_sent"].mean / 1e6) if "bytes_sent" in row.figures else "-",
        f"**{verdict}**" if row is comparison.rows[0] else verdict,
    ]


def _figure(row: Row, name: str, scale: float = 1.0) -> str:
    found = row.figures.get(name)
    if found is None:
        return "-"
    return spread(
        replace(found, mean=found.mean * scale, low=found.low * scale, high=found.high * scale)
    )


def _row(trials: Sequence[str]) -> str:
    return f"| {' | '.join(trial.replace('|', '/') for trial in trials)} |"


def _failures(results: Results) -> Iterator[str]:
    if results.failures:
        lines = [f"- {trial}: {why}" for trial, why in results.failures.items()]
        yield "\n".join([f"**{count(len(lines), 'trial')} failed:**", "", *lines])


def _caption(name: str) -> str:
    return next((text for key, text in CAPTIONS.items() if name.startswith(key)), name)


def _place(picture: Path) -> tuple[int, int, str]:
    """Where to show it: in the order of the captions, then by number."""
    kinds = list(CAPTIONS)
    kind = next((i for i, key in enumerate(kinds) if picture.name.startswith(key)), len(kinds))
    part = re.search(r"-(\d+)\.png$", picture.name)
    return kind, int(part[1]) if part else 1, picture.name


def _machine() -> str:
    """The processor and how many cores of it there are."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = re.search(r"^model name\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE)
        model = found[1] if found else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores of {model}, {platform.system()}"


def index(out: Path) -> str:
    """The list of all pages that are there."""
    lines = [
        "# Studies",
        "",
        "<!-- Written by docs/studies.py: run `make studies` instead of editing. -->",
        "",
        "What came of the studies that come with rumor. `rumor study NAME` repeats one, "
        "`rumor study NAME --copy mine.toml`",
        "gives you its file to change; [studies.md](../how-to/studies.md) says how.",
        "",
    ]
    for path in sorted(out.glob("*/README.md")):
        text = path.read_text(encoding="utf-8")
        title = text.partition("\n")[0].removeprefix("# ")
        found = re.search(r"^## What came out\n\n((?:- .*\n)+)", text, re.MULTILINE)
        lines += [f"## [{title}]({path.parent.name}/README.md)", ""]
        lines += [found[1] if found else ""]
    return "\n".join(lines).rstrip() + "\n"


def _note(results: Results) -> Iterator[str]:
    note = NOTES.get(results.study.name)
    if note is not None:
        yield note(results)


def relay_order(results: Results) -> str:
    """Whether the order of RelaySGD's table comes out, said from the data."""
    table = [_values(results, name, "accuracy") for name in RELAY]
    if not all(table):
        return "Trials are missing to say whether the order of RelaySGD's table comes out."
    below, beside = _steps(table)
    would = number(100 * least_seen(beside, SIGNIFICANT / len((below, beside))), 2)
    verdict = VERDICTS[below.p < SIGNIFICANT and below.mean > 0, not beside.p < SIGNIFICANT].format(
        would=f"{would} points would have been"
    )
    shown = listed([percent(interval(values.values()).mean) for values in table])
    return f"""\
### The order of RelaySGD's table

Vogels et al. (NeurIPS 2021; CIFAR-10, VGG-11, 16 workers, Dirichlet 0.01) report 53.9 % for D-PSGD
on a ring, 86.7 % for SGP on a time-varying exponential graph, and 87.0 % for all-reduce. Here,
final accuracies at Dirichlet 0.01 are {shown}:
SGP in rounds is {_points(below)} above the ring;
all-reduce is {_points(beside)} above SGP in rounds.
**{verdict}**

Accuracy on 360 images is coarse, and near what this network reaches at all. Finer, of the
same trials, in the order of that table:

- {_finer(results, "loss")}
- {_finer(results, "time_to_target_s")}

What is different here: handwritten digits instead of photographs, 2,410 parameters,
{count(len(results.study.seeds), "seed")}. The figures are those with momentum {MOMENTUM}."""


def _steps(table: Sequence[Mapping[int, float]]) -> tuple[Difference, Difference]:
    """SGP in rounds against the ring, all-reduce against it; p is corrected for two of them."""
    ring, rounds, mean = table
    found = difference(rounds, ring), difference(mean, rounds)
    below, beside = (
        replace(one, p=p) for one, p in zip(found, holm([one.p for one in found]), strict=True)
    )
    return below, beside


def _points(found: Difference) -> str:
    """A difference of accuracies in words."""
    between = f"{100 * found.low:+.2g} to {100 * found.high:+.2g}"
    return f"{100 * found.mean:+.2g} points ({between}, {_judged(found)})"


def _finer(results: Results, name: str) -> str:
    """How the three stand in a metric that is a ratio, in words."""
    metric = METRICS[name]
    table = [_values(results, method, name) for method in RELAY]
    if any(len(values) < len(results.study.seeds) for values in table):
        return f"{metric.words} is not known of all seeds"
    shown = listed([metric.shown(interval(values.values()).mean) for values in table])
    logs = [{seed: math.log(value) for seed, value in values.items()} for values in table]
    below, beside = (f"{math.exp(one.mean):.2f} times ({_judged(one)})" for one in _steps(logs))
    return (
        f"{metric.words} is {shown}, that of SGP in rounds {below} that of the ring, "
        f"that of all-reduce {beside} that of SGP in rounds"
    )


def _judged(found: Difference) -> str:
    return f"p = {found.p:.2g}: {'more than noise' if found.p < 0.05 else 'not told from noise'}"


def _values(results: Results, method: str, name: str) -> dict[int, float]:
    """A metric of one method where data differ most, by seed."""
    places = {"method": method, "data": "Dirichlet 0.01", "momentum": MOMENTUM}
    axes = {axis.name for axis in results.study.axes}
    found = results.where(**{k: v for k, v in places.items() if k in axes}).results
    return values_of(found, METRICS[name], results.study.target)


VERDICTS: Final[Mapping[tuple[bool, bool], str]] = MappingProxyType(
    {
        (True, True): "It comes out as far as these seeds tell: the ring is behind, and all-reduce "
        "is not told apart from SGP in rounds ({would}).",
        (True, False): "Half of it comes out: the ring is behind SGP in rounds, but that is behind "
        "all-reduce.",
        (False, True): "Half of it comes out: SGP in rounds is not told apart from all-reduce "
        "({would}), but the ring is not told from it either.",
        (False, False): "It does not come out: SGP in rounds is not ahead of the ring, and is told "
        "apart from all-reduce.",
    }
)
"""By whether the ring is behind, and whether all-reduce is not ahead."""

MOMENTUM: Final = "0.9"
"""Of the trials that are held against that table, where the study has several."""

RELAY: Final = ("D-PSGD on a ring", "SGP in rounds", "all-reduce")
"""Points of the study's axis that stand for rows of that table, the worst there first."""

PUBLISHED: Final = (
    ("training efficiency, a failure every 60 s, 30 groups (torchft, PyTorch's blog, June 2025)",
     "81.2 %", "at least 98 %", "torchft-60s", "goodput"),
    ("the same, a failure about every 15 s", "13.4 %", "at least 60 %", "torchft-15s", "goodput"),
    ("replicas in each exchange, 32 of them, 125 faults an hour (ft-diloco, 2026)",
     "16, though 30 are alive", "all that are alive", "ft-diloco-125", "members_taking_part"),
    ("the same: until a victim is fully back", "149 s", "-", "ft-diloco-125", "back_s"),
    ("the same: a survivor's next exchange after a kill, 2 replicas", "12 to 14 s",
     "2 steps, 6 s", "ft-diloco-125", "wait_s_longest"),
)  # fmt: skip
"""Published figures: what, how much, the aim, and which condition and metric answer."""


def against_published(results: Results) -> str:
    """Who wins where, and published figures beside those of the first rule of each family."""
    study, lines = results.study, []
    for at in study.axes[1].labels:
        there = results.where(**{study.axes[1].name: at})
        firsts = [_first_of(there, name) for name in ("time_to_loss_s", "loss", "bytes_to_loss")]
        ours, theirs = (_first_of(there, "time_to_loss_s", of) for of in ("GoSGD", "DiLoCo"))
        times = number(theirs[1] / ours[1]) if ours and theirs else ""
        lines.append(_row([at, *(f[0] if f else "" for f in (*firsts, ours, theirs)), times]))
    heads = ["", "first at the loss", "lowest loss at equal tokens", "fewest bytes to the loss",
             "best GoSGD", "best DiLoCo", "DiLoCo's time over GoSGD's"]  # fmt: skip
    told = [
        _row([what, figure, aim, condition, *_of_families(results, condition, name)])
        for what, figure, aim, condition, name in PUBLISHED
    ]
    columns = ["published", "figure", "aim", "condition here", "best GoSGD", "best DiLoCo"]
    return "\n".join(
        ["### Who wins where", "", _row(heads), _row(["---"] * len(heads)), *lines, "",
         "### Beside published figures", "", "Published ones are of other machines, models and "
         "clocks; those here are simulated. Efficiency is held against goodput. [Slow links]"
         "(../utilization/README.md) and [SPARTA at 256](../sparta/README.md) have pages of "
         "their own.", "", _row(columns), _row(["---"] * len(columns)), *told]
    )  # fmt: skip


def _first_of(there: Results, name: str, of: str = "") -> tuple[str, float] | None:
    """Who has the best mean of a metric, and that; of those whose names begin so."""
    metric, found = METRICS[name], []
    for (label, *_), group in there.groups().items():
        values = values_of(group, metric, there.study.target)
        if label.startswith(of) and len(values) == len(group):
            found.append((label, interval(values.values()).mean))
    key = (lambda one: one[1]) if metric.lower_is_better else (lambda one: -one[1])
    return min(found, key=key) if found else None


def _of_families(results: Results, condition: str, name: str) -> Iterator[str]:
    there = results.where(**{results.study.axes[1].name: condition})
    for of in ("GoSGD", "DiLoCo"):
        # Of the one that is first at the loss: who never exchanges anything never waits, either.
        first = _first_of(there, "time_to_loss_s", of) or _first_of(there, "loss", of)
        found = _first_of(there, name, first[0]) if first else None
        yield f"{METRICS[name].shown(found[1])} ({found[0]})" if found else "not computed"


NOTES: Final[Mapping[str, Callable[[Results], str]]] = MappingProxyType(
    {"heterogeneous-data": relay_order, "proof": against_published}
)
"""What else a study's page says, by the study's name."""


if __name__ == "__main__":
    main()
