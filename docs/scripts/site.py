"""Build the documentation as a site that needs no network: ``make site``.

The Markdown files stay unchanged. They are copied to a folder of their own with the other parts of
a site: the pages' order, from docs/README.md; the files outside of docs/ that they link to; and a
page for each package of the API, from its ``__all__``. Sphinx then checks every link and anchor.
Paths are relative to the root of the repository.
"""

import os
import re
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

__all__ = ["PACKAGES", "build", "main", "stage"]

DOCS: Final = Path("docs")
SITE: Final = Path("build/site")
STAGE: Final = Path("build/site-source")

PACKAGES: Final = {
    "rumor.train": "a peer in a loop of one's own, tasks, settings",
    "rumor.train.integrations.transformers": "a callback for the Trainer of transformers",
    "rumor.train.integrations.lightning": "a callback for the Trainer of Lightning",
    "rumor.train.integrations.accelerate": "checkpoints of Accelerate",
    "rumor.train.loggers": "metrics in other tools",
    "rumor.gossip": "the protocol, its rules and errors",
    "rumor.topology": "graphs, schedules and facts about them",
    "rumor.sim": "the same protocol under virtual time",
}
"""Purpose of each public package; packages without their library are left out."""

ROOT_PAGES: Final = {
    Path("README.md"): Path("index.md"),
    Path("CONTRIBUTING.md"): Path("contributing.md"),
    Path("CHANGELOG.md"): Path("changelog.md"),
}

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def _place(path: Path) -> Path:
    """Return the staged path of a file of the repository."""
    if path in ROOT_PAGES:
        return ROOT_PAGES[path]
    return path.relative_to(DOCS) if path.is_relative_to(DOCS) else Path("files") / path


def _relinked(text: str, page: Path, root: Path, stage: Path) -> str:
    """Return a page's text with links to the staged targets, which are copied."""

    def relink(match: re.Match[str]) -> str:
        path, _, anchor = match[1].partition("#")
        if "://" in match[1] or not path:
            return match[0]
        target = Path(os.path.normpath(page.parent / path))
        if (root / target).is_dir():
            target /= "README.md"
        place = _place(target)
        if place.parts[0] == "files" and not (stage / place).exists():
            (stage / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / target, stage / place)
            if target.suffix == ".md":
                # Such a page is in no table of contents, and may have links, also back.
                text = _relinked((root / target).read_text(encoding="utf-8"), target, root, stage)
                (stage / place).write_text(f"---\norphan: true\n---\n\n{text}", encoding="utf-8")
        here = os.path.relpath(place, _place(page).parent)
        return f"]({here}#{anchor})" if anchor else f"]({here})"

    parts = _FENCE.split(text)
    # GitHub renders these blocks; here they are shown as text.
    parts = [part.replace("```mermaid", "```text", 1) for part in parts]
    return "".join(part if i % 2 else _LINK.sub(relink, part) for i, part in enumerate(parts))


def _contents(map_page: str) -> str:
    """Return hidden tables of contents, one for each section of docs/README.md, in its order."""
    made, seen = [], {"README.md"}
    for section in map_page.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        pages = [link.partition("#")[0] for link in _LINK.findall(body)]
        pages = [page for page in dict.fromkeys(pages) if page.endswith(".md") and page not in seen]
        seen.update(pages)
        if title == "Explanation":
            # The last line of that section.
            pages.remove("studies/README.md")
        if title == "Reference":
            pages += ["api/index.md"]
        made.append((title, pages))
    studies = sorted(path.parent.name for path in (DOCS / "studies").glob("*/README.md"))
    made.append(
        ("Studies", ["studies/README.md", *(f"studies/{name}/README.md" for name in studies)])
    )
    made.append(("More", ["README.md", "contributing.md", "changelog.md"]))
    return "".join(
        f"\n\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{chr(10).join(pages)}\n```\n"
        for title, pages in made
    )


def _api(stage: Path) -> None:
    """Write a page for each package with public names."""
    folder, rows, seen = stage / "api", [], set()
    folder.mkdir()
    for package, what in PACKAGES.items():
        try:
            module = import_module(package)
        except ImportError as error:
            print(f"{package} is left out: {error}", file=sys.stderr)
            continue
        text = [f"# {package}\n\n{(module.__doc__ or what).strip()}\n\n```{{eval-rst}}"]
        for name in sorted(module.__all__):
            value = getattr(module, name)
            home = getattr(value, "__module__", None)
            kind = "autoclass" if isinstance(value, type) else "autofunction"
            if home is None or not str(home).startswith("rumor."):
                # Its docstring would be that of its type.
                kind = "py:data"
            if isinstance(value, type) and issubclass(value, BaseException):
                kind = "autoexception"
            # A name that two packages export is described in the first.
            twice = "\n   :no-index:" if id(value) in seen else ""
            seen.add(id(value))
            text.append(f".. {kind}:: {package}.{name}{twice}")
        text.append("```\n")
        (folder / f"{package}.md").write_text("\n".join(text), encoding="utf-8")
        rows.append(f"- [{package}]({package}.md): {what}")
    listed = "\n".join(line.split("(")[1].split(")")[0] for line in rows)
    (folder / "index.md").write_text(
        "# Python API\n\nWhat each package exports.\n\n"
        + "\n".join(rows)
        + f"\n\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n",
        encoding="utf-8",
    )


def stage(root: Path, to: Path) -> None:
    """Copy all pages and their link targets, and write the other parts of a site.

    Args:
        root: Root of the repository.
        to: A folder, which is recreated.
    """
    shutil.rmtree(to, ignore_errors=True)
    scripts = shutil.ignore_patterns("*.py", "__pycache__", "scripts")
    shutil.copytree(root / DOCS, to, ignore=scripts)
    pages = [*ROOT_PAGES, *(page.relative_to(root) for page in (root / DOCS).rglob("*.md"))]
    for page in pages:
        text = _relinked((root / page).read_text(encoding="utf-8"), page, root, to)
        if page == Path("README.md"):
            text += _contents((root / DOCS / "README.md").read_text(encoding="utf-8"))
        (to / _place(page)).write_text(text, encoding="utf-8")
    _api(to)


def build(root: Path, source: Path, site: Path) -> int:
    """Build the site, every warning an error; return the exit status of Sphinx."""
    from sphinx.cmd.build import main as sphinx

    stage(root, source)
    shutil.rmtree(site, ignore_errors=True)
    config = root / DOCS / "scripts" / "sphinx"
    options = ["-W", "--keep-going", "-q", "-b", "html", "-j", "2", "-c", str(config)]
    return int(sphinx([*options, "-d", str(source / ".doctrees"), str(source), str(site)]))


def main() -> None:
    """Build the site from the repository that contains this file."""
    root = Path(__file__).parents[2]
    os.chdir(root)
    if status := build(root, STAGE, SITE):
        sys.exit(status)
    print(f"{SITE}/index.html")


if __name__ == "__main__":
    main()
