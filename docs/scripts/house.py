"""Draw the sub-packages and their imports, as docs/images/house.svg: ``make house``.

Reads the imports of every module with ``ast``; nothing is run. Each layer is a box that holds its
sub-packages, importers above what they import. Transitive reduction thins out the arrows. Between
layers there is one arrow for each pair. Paths are relative to the root of the repository.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import mean

import networkx as nx

__all__ = ["PICTURE", "Graph", "draw", "imports", "main", "packages"]

PICTURE = Path("docs/images/house.svg")

FLOORS = (("cli",), ("sim",), ("train",), ("topology",), ("gossip",))
"""Layers, the top one first; layers of one floor stand side by side."""

Graph = dict[str, set[str]]
"""Imports by dotted name without ``rumor.``: ``train`` or ``train.loop``."""

WIDTH, MARGIN, GAP = 1080, 16, 44
BOX_W, BOX_H, ROW_GAP, HEAD = 118, 30, 34, 30

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; text-anchor: middle }
.layer { fill: #818b981a; stroke: #818b98 }
.title { font-weight: 600; text-anchor: start }
.box { fill: #ffffff; stroke: #59636e }
path { fill: none; stroke: #59636e; stroke-width: 1.2 }
.thick { stroke-width: 3 }
marker path { fill: #59636e; stroke: none }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .box { fill: #151b23; stroke: #9198a1 }
  path { stroke: #9198a1 }
  marker path { fill: #9198a1 }
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A layer on the picture, and the places of its sub-packages within it."""

    name: str
    x: float
    y: float
    width: float
    height: float
    centers: Mapping[str, tuple[float, float]]
    paths: tuple[tuple[tuple[float, float], ...], ...]
    """Paths of the arrows, each from the lower edge of a box to the upper edge of another."""


def main() -> None:
    """Write the picture."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
    PICTURE.write_text(draw(imports(root)), encoding="utf-8")


# Imports.


def packages(root: Path) -> dict[str, list[Path]]:
    """Return the modules of each layer and of each of its sub-packages, including nested ones.

    Args:
        root: Root of the repository.
    """
    found: dict[str, list[Path]] = {}
    for layer in (name for floor in FLOORS for name in floor):
        found[layer] = sorted((root / layer).glob("*.py"))
        for folder in sorted(path.parent for path in (root / layer).glob("*/__init__.py")):
            found[f"{layer}.{folder.name}"] = sorted(folder.rglob("*.py"))
    return {name: modules for name, modules in found.items() if modules}


def imports(root: Path) -> Graph:
    """Return the imports between layers and between sub-packages.

    Args:
        root: Root of the repository.
    """
    known = packages(root)
    graph: Graph = {name: set() for name in known}
    for name, modules in known.items():
        for module in modules:
            for target in _imported(root, module):
                home = _home(target, known)
                if home is not None and home != name:
                    graph[name].add(home)
    return graph


def _imported(root: Path, module: Path) -> Iterator[str]:
    """Yield our dotted names that a module imports anywhere, including the names inside modules."""
    parts = module.relative_to(root).with_suffix("").parts
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            start = parts[: len(parts) - node.level] if node.level else ()
            base = ".".join([*start, *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}".removeprefix("rumor.") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("rumor.") for alias in node.names)


def _home(target: str, known: Mapping[str, object]) -> str | None:
    """Return the sub-package that contains a dotted name, else its layer."""
    parts = target.split(".")
    inner = ".".join(parts[:2])
    return inner if inner in known else parts[0] if parts[0] in known else None


# Layout.


def place(layer: str, graph: Graph, x: float, y: float, width: float) -> Placed:
    """Lay out one layer: importers above, and long arrows led between the boxes of a row."""
    inside = nx.DiGraph()
    inside.add_nodes_from(sorted(name for name in graph if name.startswith(f"{layer}.")))
    inside.add_edges_from((a, b) for a in inside for b in sorted(graph[a]) if b in inside)
    edges = sorted(_reduced(inside))
    levels = _levels(inside)
    rows, chains = _rows(levels, edges)
    _sort(rows, chains)
    at: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        widths = [BOX_W if name in levels else 26 for name in row]
        gap = (width - sum(widths)) / (len(row) + 1)
        left = x
        for name, wide in zip(row, widths, strict=True):
            left += gap + wide
            at[name] = (left - wide / 2, y + HEAD + BOX_H / 2 + number * (BOX_H + ROW_GAP))
    height = HEAD + len(rows) * (BOX_H + ROW_GAP) - (ROW_GAP - MARGIN if rows else 0)
    return Placed(
        name=layer,
        x=x,
        y=y,
        width=width,
        height=height,
        centers={name: at[name] for name in levels},
        paths=tuple(_path([at[name] for name in chain]) for chain in chains),
    )


def _reduced(graph: "nx.DiGraph[str]") -> set[tuple[str, str]]:
    """Return edges that longer paths do not imply; within a cycle, all of them."""
    groups = nx.condensation(graph)
    of = groups.graph["mapping"]
    kept = nx.transitive_reduction(groups).edges
    return {(a, b) for a, b in graph.edges if of[a] == of[b] or (of[a], of[b]) in kept}


def _levels(graph: "nx.DiGraph[str]") -> dict[str, int]:
    """Return the row of each package: one below the lowest package that imports it."""
    groups = nx.condensation(graph)
    level: dict[int, int] = {}
    for group in nx.topological_sort(groups):
        level[group] = 1 + max((level[up] for up in groups.predecessors(group)), default=-1)
    return {name: level[group] for name, group in groups.graph["mapping"].items()}


def _rows(
    levels: Mapping[str, int], edges: Iterable[tuple[str, str]]
) -> tuple[list[list[str]], list[list[str]]]:
    """Return rows of boxes and of places where a long arrow passes, and each arrow's way."""
    rows: list[list[str]] = [[] for _ in range(max(levels.values(), default=-1) + 1)]
    for name in sorted(levels):
        rows[levels[name]].append(name)
    chains = []
    for a, b in edges:
        passed = [f"{a}>{b}@{row}" for row in range(levels[a] + 1, levels[b])]
        for offset, name in enumerate(passed):
            rows[levels[a] + 1 + offset].append(name)
        chains.append([a, *passed, b])
    return rows, chains


def _sort(rows: list[list[str]], chains: Iterable[list[str]]) -> None:
    """Order each row by the mean place of its neighbors in the adjacent rows, a few times over."""
    beside: dict[str, set[str]] = {name: set() for row in rows for name in row}
    for chain in chains:
        for a, b in pairwise(chain):
            beside[a].add(b)
            beside[b].add(a)
    for _ in range(12):
        for row in rows:
            spot = {n: (i + 0.5) / len(each) for each in rows for i, n in enumerate(each)}
            row.sort(key=lambda name: mean([spot[n] for n in beside[name]] or [spot[name]]))


def _path(points: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    (x0, y0), *middle, (x1, y1) = points
    return ((x0, y0 + BOX_H / 2), *middle, (x1, y1 - BOX_H / 2 - 2))


# Drawing.


def draw(graph: Graph) -> str:
    """Return the picture as SVG.

    Args:
        graph: Result of ``imports``.
    """
    placed: dict[str, Placed] = {}
    y = float(MARGIN)
    for floor in FLOORS:
        layers = [layer for layer in floor if layer in graph]
        counts = [max(2, sum(name.startswith(f"{layer}.") for name in graph)) for layer in layers]
        free = WIDTH - 2 * MARGIN - GAP * (len(layers) - 1)
        x = float(MARGIN)
        for layer, count in zip(layers, counts, strict=True):
            width = free * count / sum(counts)
            placed[layer] = place(layer, graph, x, y, width)
            x += width + GAP
        y += max((placed[layer].height for layer in layers), default=0) + GAP
    parts = [*_between(graph, placed), *(line for each in placed.values() for line in _layer(each))]
    return _svg(y - GAP + MARGIN, parts)


def _between(graph: Graph, placed: Mapping[str, Placed]) -> Iterator[str]:
    """Yield one thick arrow for each pair of layers that longer paths do not imply."""
    whole = nx.DiGraph()
    whole.add_nodes_from(placed)
    pairs = {(a.split(".")[0], b.split(".")[0]) for a in graph for b in graph[a]}
    whole.add_edges_from((a, b) for a, b in sorted(pairs) if a != b)
    for a, b in sorted(_reduced(whole)):
        upper, lower = placed[a], placed[b]
        if upper.y == lower.y:
            yield _arrow(_sideways(upper, lower), "thick")
            continue
        x = max(upper.x, lower.x) + min(upper.width, lower.width) / 2
        yield _arrow([(x, upper.y + upper.height), (x, lower.y - 4)], "thick")


def _sideways(start: Placed, end: Placed) -> list[tuple[float, float]]:
    """Return a path from the edge of one layer to the layer next to it."""
    y = start.y + HEAD + BOX_H / 2
    if start.x < end.x:
        return [(start.x + start.width, y), (end.x - 4, y)]
    return [(start.x, y), (end.x + end.width + 4, y)]


def _layer(placed: Placed) -> Iterator[str]:
    yield (
        f'<rect class="layer" x="{placed.x:.0f}" y="{placed.y:.0f}" width="{placed.width:.0f}" '
        f'height="{placed.height:.0f}" rx="8"/>'
    )
    x, y = placed.x + 12, placed.y + 20
    yield f'<text class="title" x="{x:.0f}" y="{y:.0f}">{placed.name}/</text>'
    yield from (_arrow(list(path), "thin") for path in placed.paths)
    for name, (x, y) in placed.centers.items():
        yield (
            f'<rect class="box" x="{x - BOX_W / 2:.0f}" y="{y - BOX_H / 2:.0f}" '
            f'width="{BOX_W}" height="{BOX_H}" rx="5"/>'
        )
        yield f'<text x="{x:.0f}" y="{y + 4.5:.0f}">{escape(name.partition(".")[2])}</text>'


def _arrow(points: list[tuple[float, float]], style: str) -> str:
    """Return a smooth line whose ends are vertical, unless it is level."""
    d = f"M{points[0][0]:.0f},{points[0][1]:.0f}"
    for (x0, y0), (x1, y1) in pairwise(points):
        bend = (y1 - y0) / 2
        d += f" C{x0:.0f},{y0 + bend:.0f} {x1:.0f},{y1 - bend:.0f} {x1:.0f},{y1:.0f}"
    return f'<path class="{style}" d="{d}" marker-end="url(#head-{style})"/>'


def _svg(height: float, parts: Iterable[str]) -> str:
    heads = "".join(
        f'<marker id="head-{name}" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="{size}" '
        f'markerHeight="{size}" orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker>'
        for name, size in (("thin", 7), ("thick", 4))
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
            f'width="{WIDTH}" height="{height:.0f}" role="img">',
            "<title>The sub-packages of rumor and what they import</title>",
            f"<style>{STYLE}</style>",
            f"<defs>{heads}</defs>",
            *parts,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    main()
