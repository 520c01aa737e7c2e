"""Draw every topology family, and write docs/reference/topologies.md: ``make gallery``.

Text above the marker on the page is written by hand, and kept. Paths are relative to the
root of the repository.
"""

from pathlib import Path

from PIL import Image

from rumor.cli.reports.topology import describe
from rumor.topology import Facts, Topology, facts, parse
from rumor.topology.drawing import draw
from rumor.topology.families.registry import FAMILIES

__all__ = ["MARKER", "PAGE", "PICTURES", "below", "facts_row", "main", "section"]

PAGE = Path("docs/reference/topologies.md")
PICTURES = Path("docs/images/topologies")
MARKER = "<!-- Below, all is written by docs/scripts/gallery.py: run `make gallery`. -->"

SIZES = (16, 64)

SPECS = {
    "spanning-tree": ("spanning-tree:of=torus", "spanning-tree:of=torus"),
    "hosts": ("hosts:sizes=4x4x8", "hosts:sizes=16x16x32"),
    "file": ("file:path=examples/cluster.graphml", None),
}
"""Specs drawn for families that need a parameter, at both sizes."""

COLUMNS = {
    "pushes": "pushes",
    "links": "links",
    "rounds": "rounds",
    "diameter": "diameter",
    "cut nodes": "cut nodes",
    "spectral gap": "gap",
    "contraction": "contraction",
    "exact": "exact after",
    "effective neighbors": "effective neighbors",
}
"""Rows of `rumor topology` that fit into a table, and their headings there."""

DPI, COLORS = 110, 64


def main() -> None:
    """Write the pictures and the page."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name in FAMILIES:
        draw_family(name)
    head = PAGE.read_text().partition(MARKER)[0]
    PAGE.write_text(head + below())


def draw_family(name: str) -> None:
    """Draw a family at both sizes in one picture, with few colors to keep it small."""
    path = PICTURES / f"{name}.png"
    draw([known(name, n) for n in SIZES if spec_of(name, n)], path, dpi=DPI)
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def below() -> str:
    """Return the computed part of the page."""
    n = SIZES[0]
    parts = [MARKER, "", f"## Facts at n = {n}", "", *_table_head("family", *COLUMNS.values())]
    parts += [facts_row(name, n) for name in FAMILIES]
    parts += ["", "## The families", ""]
    for name in FAMILIES:
        parts += [*section(name), ""]
    return "\n".join(parts).rstrip() + "\n"


def known(name: str, n: int) -> tuple[Topology, Facts]:
    """Return the drawn topology of a family, and its facts."""
    spec = spec_of(name, n)
    assert spec is not None
    topology = parse(spec, n)
    return topology, facts(topology)


def spec_of(name: str, n: int) -> str | None:
    """Return the spec of a family at one of both sizes; None if it has none."""
    return SPECS.get(name, (name, name))[SIZES.index(n)]


def facts_row(name: str, n: int) -> str:
    """Return a family's row in the table of facts."""
    topology, found = known(name, n)
    values = {row.name: row.value for row in describe(found, topology.names)}
    cells = (values[column].removesuffix(" rounds").removesuffix(" round") for column in COLUMNS)
    return _row(f"[{name}](#{name})", *cells)


def section(name: str) -> list[str]:
    """Return the lines of the page about a family."""
    family = FAMILIES[name]
    lines = [f"### {name}", "", f"{family.summary}. *{family.source}.*", ""]
    lines += [f"- `{parameter.name}=`: {parameter.about}" for parameter in family.parameters]
    lines += [f"- On a live view: {family.fallback}.", ""]
    sizes = " and ".join(f"n = {n}" for n in SIZES if spec_of(name, n))
    return [*lines, f"![{name} at {sizes}](../images/topologies/{name}.png)"]


def _table_head(*names: str) -> list[str]:
    return [_row(*names), _row("---", *("---:" for _ in names[1:]))]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
