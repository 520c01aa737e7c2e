"""The report of a study: one file that needs nothing but a browser."""

import json
import shlex
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ....train.storage.files import drafted
from ..analysis.ranking import Comparison, comparisons
from ..analysis.search import Search, searched
from ..analysis.verdicts import figure_words, headlines, verdict_words
from ..execution.trial import code_version, versions
from ..format import count, listed, number, place, shown
from ..metrics import metrics_known
from ..results import Results
from ..study import Study, Trial
from . import charts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["command", "page", "write_report"]

_CSS: Final = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1b1f24; max-width: 72rem; margin: 2rem auto;
  padding: 0 1rem; }
img { max-width: 100%; } h2 { margin-top: 2.5rem; border-top: 1px solid #e1e5ea; }
.scroll { overflow-x: auto; } pre { white-space: pre-wrap; word-break: break-all; }
table { border-collapse: collapse; font-size: 14px; }
th, td { padding: 4px 10px; text-align: left; border-bottom: 1px solid #e1e5ea; }
.even { color: #0068a6; } .warning { background: #fdf1ea; padding: .5rem 1rem; }
dt { font-weight: 600; float: left; clear: left; margin-right: .6rem; } dd { margin-left: 10rem; }
footer, .note { color: #59616c; font-size: 14px; }
"""


def write_report(results: Results, folder: Path) -> Path:
    """Write ``report.html`` to a study's folder.

    Raises:
        OSError: Writing failed; an older page is kept.
    """
    path = folder / "report.html"
    with drafted(path) as draft:
        draft.write_text(page(results), encoding="utf-8")
    return path


def page(results: Results) -> str:
    """Return the page as HTML, pictures included."""
    # All comparisons use the best value of the tuned axis.
    best, search = searched(results)
    study, found = results.study, comparisons(best)
    libraries = ", ".join(f"{name} {version}" for name, version in versions().items() if version)
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(study.title)}</title><style>{_CSS}</style></head><body>",
        f"<h1>{escape(study.title)}</h1>",
        f"<p>{escape(study.question)}</p>" if study.question else "",
        _warning(results),
        _list("ol", headlines(best)),
        f"<dl>{_facts(results)}</dl>",
    ]
    if found:
        parts += ["<h2>How to read it</h2>", f'<p class="note">{escape(_legend(study))}</p>']
        colors = charts.standing(best.study, found)
        for one in found:
            where = f"With {place(one.at)}" if one.at else "What came out"
            parts.append(f"<h2>{escape(where)}</h2>")
            parts.append(_image(charts.curves([one], colors), "curves"))
            parts.append(_image(charts.ranking([one]), "ranking"))
            parts.append(_table_of(best, one, search))
            parts.append(f"<p>{escape(search.words)}</p>" if search is not None else "")
        metrics = [one for one in metrics_known(best) if one.is_shown][:3]
        if (axis := charts.number_axis(best.study)) is not None and metrics:
            parts.append(f"<h2>What {escape(axis.name)} does</h2>")
            parts.append(_image(charts.response(best, metrics), "response"))
    parts += [
        "<h2>Repeat it</h2><p>Each command has every argument of its trial; what is not given is "
        "left to rumor simulate. Files are looked for in the folder that the study was run in.</p>",
        f"<details><summary>The command of each trial</summary><pre>"
        f"{escape(chr(10).join(map(command, study.trials())))}</pre></details>",
        f"<footer>Code version {code_version()}; {escape(libraries)}. Times are virtual: what "
        "clocks on the workers' walls would show.</footer></body></html>\n",
    ]
    return "\n".join(filter(None, parts))


def command(trial: Trial) -> str:
    """Return the shell command that runs one trial by itself.

    >>> command(Trial(labels={}, settings={"topology": "ring", "step_s": 0.5, "seed": 3}))
    'rumor simulate --set topology=ring --set step_s=0.5 --set seed=3'
    """
    words = [word for name, value in trial.settings.items() for word in _option(name, value)]
    return shlex.join(["rumor", "simulate", *words])


def _legend(study: Study) -> str:
    seeds = len(study.seeds)
    if seeds == 1:
        return "One seed, so how much of a difference is noise is not known."
    words = (
        f"Lines and dots are means over {seeds} seeds, bands reach from the lowest seed to the "
        "highest, bars are 95 % intervals (Student's t; of the logarithms on a logarithmic axis). "
        "Blue: no significant difference from the first, which does not mean as good. Differences "
        "from the first are tested pair by pair on the same seeds, corrected for there being "
        "several (Holm, 5 %). Detectable: the smallest true difference that would be significant "
        "in 4 of 5 studies."
    )
    if study.reference:
        words += (
            f" Where {study.reference} is first, the study's reference, as many comparisons count "
            "as there are other points; else all pairs."
        )
    return words


def _warning(results: Results) -> str:
    """Say which trials are missing; empty if none is."""
    failed = len(results.failures)
    unrun = sum(1 for _ in results.study.trials()) - len(results.results) - failed
    parts = [f"{count(failed, 'trial')} failed"] if failed else []
    if unrun > 0:
        parts.append(f"{count(unrun, 'trial')} {'has' if unrun == 1 else 'have'} not run")
    if not parts:
        return ""
    whys = [f"{trial}: {why}" for trial, why in results.failures.items()]
    return (
        f'<div class="warning"><strong>{" and ".join(parts)}.</strong> All that follows is about '
        f"the others alone.{_list('ul', whys)}</div>"
    )


def _facts(results: Results) -> str:
    study, known = results.study, {}
    for name, words in (("optimizer", "Optimizer"), ("momentum", "Momentum"),
                        ("lr", "Learning rate")):  # fmt: skip
        values = dict.fromkeys(one.summary.get(name) for one in results.results)
        used = [v if isinstance(v, str) else number(v) for v in values if v is not None]
        if used:
            known[words] = listed(used)
    if known and study.source:
        known["Source"] = study.source
    grid = [f"{axis.name} ({len(axis.points)})" for axis in study.axes]
    known["Trials"] = f"{len(results.results):,} of {sum(1 for _ in study.trials()):,}"
    known["Grid"] = " × ".join([*grid, count(len(study.seeds), "seed")])
    if any(study.goal in result.series for result in results.results):
        unit = "" if study.goal == "loss" else "%"
        known[f"Target {study.goal}"] = shown(study.target, unit)
    return "".join(f"<dt>{escape(n)}</dt><dd>{escape(text)}</dd>" for n, text in known.items())


def _table_of(results: Results, comparison: Comparison, search: Search | None) -> str:
    rows = comparison.rows
    there = (one for found in comparison.groups.values() for one in found)
    metrics = [
        metric
        for metric in metrics_known(replace(results, results=tuple(there)))
        # A metric that is 0 everywhere is hidden, unless it is the metric of the ranking.
        if metric.name == comparison.metric.name
        or any(row.figures[metric.name].mean for row in rows if metric.name in row.figures)
    ]
    tuned = [search] if search is not None else []
    heads = [comparison.axis, *(one.axis.name for one in tuned), "Compared with the first"]
    heads += [metric.title for metric in metrics]
    lines = ["".join(f"<th>{escape(head)}</th>" for head in heads)]
    for row in rows:
        cells = [
            row.label,
            *(one.taken[row.label, *comparison.at.values()] for one in tuned),
            verdict_words(row, comparison),
            *(figure_words(row, metric) for metric in metrics),
        ]
        style = " class=even" if row.may_be_first else ""
        lines.append("".join(f"<td{style}>{escape(cell)}</td>" for cell in cells))
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="scroll"><table>{body}</table></div>'


def _image(figure: "Figure", what: str) -> str:
    data = b64encode(charts.png(figure)).decode()
    return f'<img alt="{what}" src="data:image/png;base64,{data}">'


def _list(kind: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<{kind}>{items}</{kind}>" if lines else ""


def _option(name: str, value: Any) -> Iterator[str]:
    if value is None or value == ():
        return
    if name == "faults" and not isinstance(value, str | Path):
        value = json.dumps(list(value), default=str)
    for one in value if isinstance(value, list | tuple) else (value,):
        text = str(one).lower() if isinstance(one, bool) else str(one)
        yield from ("--set", f"{name}={text}")
