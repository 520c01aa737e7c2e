"""Documentation: links resolve, snippets compile, and generated pages match the code."""

import pkgutil
import re
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rumor.sim import simulate

from .layout import LAYERS, load_script, modules

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="the docs are not next to the tests")

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
TEXTS = [*PAGES, *sorted(DOCS.rglob("*.py")), *sorted((ROOT / "examples").glob("*.py"))]

MODULES = modules()
FOLDERS = f"(?:{'|'.join(LAYERS)}|tests|docs|examples)"


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def script(stem: str) -> ModuleType:
    return load_script(DOCS / "scripts" / f"{stem}.py")


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub generates from a page's headings."""
    found: Counter[str] = Counter()
    names = set()
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        names.add(slug if not found[slug] else f"{slug}-{found[slug]}")
        found[slug] += 1
    return names


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=name)
def test_links_resolve(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(target), f"{link} names no heading"


def dangling_names(text: str) -> list[str]:
    """Return names of our modules and files in a text that do not exist."""
    dotted = re.findall(rf"\brumor\.{FOLDERS}(?:\.\w+)+", text)
    files = re.findall(rf"(?<![\w/.-]){FOLDERS}/[\w/.-]*\.(?:py|md|toml|svg|png|txt|json)\b", text)
    folders = re.findall(rf"`({FOLDERS}/[\w/-]*)`", text)
    return [
        *(each for each in dotted if not is_importable(each)),
        *(each for each in [*files, *folders] if not (ROOT / each).exists()),
    ]


def is_importable(dotted: str) -> bool:
    """Return whether a dotted name is one of our modules, or an attribute of one."""
    # Tests are not installed; `make check` links them only for static tools.
    if dotted.startswith("rumor.tests."):
        return ROOT.joinpath(*dotted.split(".")[1:]).with_suffix(".py").exists()
    try:
        pkgutil.resolve_name(dotted)
    except (ImportError, AttributeError):
        # Some attributes need optional libraries.
        package = dotted.rpartition(".")[0]
        return package == "rumor.train.integrations" and find_spec(dotted) is not None
    return True


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_named_modules_and_files_exist(page: Path) -> None:
    assert not dangling_names(page.read_text(encoding="utf-8"))


def test_pages_named_in_the_code_exist() -> None:
    texts = {module: path.read_text(encoding="utf-8") for module, path in MODULES.items()}
    named = {m: re.findall(r"(?<![\w/.-])docs/[\w/.-]*\.\w+", text) for m, text in texts.items()}
    assert [
        (m, page) for m, all in named.items() for page in all if not (ROOT / page).exists()
    ] == []


def test_missing_modules_and_files_are_detected() -> None:
    assert not dangling_names("`rumor.gossip.Rule` of gossip/protocol/rule.py, `sim/fuzz`")
    assert dangling_names(
        "rumor.gossip.agenda, rumor.gossip.Diary, (gossip/agenda.py) `sim/torture`"
    ) == ["rumor.gossip.agenda", "rumor.gossip.Diary", "gossip/agenda.py", "sim/torture"]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_snippets_compile(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL), 1):
        compile(code, f"{name(page)}, snippet {number}", "exec")


@pytest.mark.extended
def test_tasks_of_the_how_to_page_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DOCS / "how-to" / "extend" / "task.md").read_text(encoding="utf-8")
    module = ModuleType("mytasks")
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(code, module.__dict__)
    made = [getattr(module, each)() for each in ("rings", "sequences", "augmented")]
    monkeypatch.setitem(sys.modules, "mytasks", module)
    split = "mytasks:by_ring"
    assert simulate(task=made[0], workers=3, steps=2, partition=split).summary["steps"] == 6
    for task in made:
        run = simulate(task=task, workers=2, steps=40, partition="iid", p=0.5)
        assert run.summary["accuracy"] > 0.75


def test_the_map_links_every_page() -> None:
    linked = set(re.findall(r"\]\(([^)#]+)", (DOCS / "README.md").read_text(encoding="utf-8")))
    pages = {
        str(page.relative_to(DOCS))
        for page in DOCS.rglob("*.md")
        if "studies" not in page.relative_to(DOCS).parts
    }
    assert pages - linked == {"README.md"}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


@pytest.mark.parametrize("page", ["commands.md", "config.md", "metrics.md"])
def test_generated_pages_match_the_code(page: str) -> None:
    written = (DOCS / "reference" / page).read_text(encoding="utf-8")
    assert script("reference").pages()[page] == written, "run `make reference`"


def is_current(example: Any) -> bool:
    """Return whether a page shows the output of its command, up to rounding."""
    outputs = script("outputs")
    number = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
    stated, printed = outputs.stated(example), outputs.printed(example)
    if number.sub("", stated).split() != number.sub("", printed).split():
        return False
    pairs = zip(number.findall(stated), number.findall(printed), strict=True)
    # Other processors add in another order, which may change the class of a sample.
    return all(float(one) == pytest.approx(float(other), rel=0.05) for one, other in pairs)


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(each, id=each.page, marks=() if each.is_quick else pytest.mark.slow)
        for each in script("outputs").EXAMPLES
    ],
)
def test_examples_show_the_output_of_their_commands(example: Any) -> None:
    assert is_current(example), "run `make outputs`"


def test_every_command_and_field_is_explained() -> None:
    reference = script("reference")
    assert "\n- `--task NAME` (`digits`): " in reference.commands()
    assert all(f"\n- `{name}: " in reference.config() for name in ("dead_s", "linger_s", "workers"))
    # The line of an option without help would end in a colon.
    assert ": \n" not in reference.commands() + reference.config()


@pytest.mark.extended
def test_the_house_diagram_matches_the_imports() -> None:
    house = script("house")
    drawn = house.draw(house.imports(ROOT))
    assert (DOCS / "images" / "house.svg").read_text(encoding="utf-8") == drawn, "run `make house`"
