"""Measure how formats and shards affect training, and write the tables of docs/reference/wires.md.

``make wires``, from the root of the repository; it takes about ten minutes. Text above the marker
on the page is written by hand, and kept.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rumor.sim import simulate

__all__ = ["MARKER", "PAGE", "STUDIES", "WAYS", "Study", "main", "measure", "row", "table"]

PAGE = Path("docs/reference/wires.md")
MARKER = "<!-- Below, all is written by docs/scripts/wires.py: run `make wires`, do not edit. -->"

WORKERS = 16
SEEDS = (0, 1, 2)
PUSHES = (0.1, 1.0)
"""Probabilities of a push after a step."""

WAYS: Mapping[str, Mapping[str, Any]] = {
    "float32": {},
    "bfloat16": {"wire": "bfloat16"},
    "float16": {"wire": "float16"},
    "int8": {"wire": "int8"},
    "topk:0.1": {"wire": "topk:0.1"},
    "topk:0.01": {"wire": "topk:0.01"},
    "8 shards, 1 per push": {"shards": 8},
    "8 shards, int8": {"shards": 8, "wire": "int8"},
}
"""Compared settings of `simulate`, by their names in the tables."""

FIGURES = {"accuracy": ".3f", "loss": ".3g", "consensus_distance": ".2g", "mb_sent": ".3g"}
"""Columns of the tables, and the formats of their figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One table: a task, and the data of each worker."""

    title: str
    task: str
    partition: str


STUDIES = (
    Study(title="Digits, all data at each worker", task="digits", partition="shared"),
    Study(
        title="Digits, a few classes at each worker",
        task="digits",
        partition="dirichlet:0.1",
    ),
)


def main() -> None:
    """Measure everything and write the page."""
    tables = []
    for study in STUDIES:
        for p in PUSHES:
            tables.append(table(study, p))
            print(tables[-1], file=sys.stderr)
    head = PAGE.read_text().partition(MARKER)[0]
    PAGE.write_text("\n\n".join([head + MARKER, *tables]) + "\n")


def table(study: Study, p: float) -> str:
    """Return one table of the page, with its heading."""
    columns = ["accuracy", "loss", "consensus distance", "MB sent"]
    lines = [
        f"## {study.title}, p = {p:g}",
        "",
        f"`rumor simulate -n {WORKERS} --task {study.task} --partition {study.partition} "
        f"--set p={p:g} --wire ... --shards ...`, seeds {', '.join(map(str, SEEDS))}.",
        "",
        "| | " + " | ".join(columns) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    return "\n".join(lines + [row(study, p, way) for way in WAYS])


def row(study: Study, p: float, way: str) -> str:
    """Return one line of a table: means over the seeds; model quality with least and most."""
    found = [measure(study, p, way, seed) for seed in SEEDS]
    cells = []
    for name, digits in FIGURES.items():
        values = [each[name] for each in found]
        mean = sum(values) / len(values)
        spread = f" ({min(values):{digits}} to {max(values):{digits}})"
        cells.append(f"{mean:{digits}}" + spread * (name in ("accuracy", "loss")))
    return f"| {way} | " + " | ".join(cells) + " |"


def measure(study: Study, p: float, way: str, seed: int) -> dict[str, float]:
    """Return figures of one run: of the merged model, and of the exchange."""
    summary = simulate(
        task=study.task,
        partition=study.partition,
        workers=WORKERS,
        p=p,
        seed=seed,
        # Curves are not needed here: one point in the middle and one at the end.
        eval_every=400,
        **WAYS[way],
    ).summary
    figures = summary | {"mb_sent": summary["bytes_sent"] / 1e6}
    return {name: figures[name] for name in FIGURES}


if __name__ == "__main__":
    main()
