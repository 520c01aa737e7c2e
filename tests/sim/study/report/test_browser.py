"""The page of a study in a real browser: by day and by night, on a desk and in a hand."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rumor.sim.study.report.page import page as page_of
from rumor.sim.study.results import Results
from rumor.sim.study.study import Point

from ..made_up import Course, results_of
from .chromium import Browser, browser, why_not

pytestmark = [
    pytest.mark.live,
    pytest.mark.browser,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]

GRAPHS = ["ring", "path", "star", "complete", "torus", "hypercube", "exponential", "base-k", "tree"]
DATA = [Point("iid", {"partition": "shared"}), Point("skewed", {"partition": "dirichlet:0.1"})]
LOOKS = [(1400, False), (1400, True), (390, False), (390, True)]

DRAWN = """
return [...document.querySelectorAll('.plot')]
    .filter((plot) => plot.getClientRects().length)
    .map((plot) => [plot.closest('section').id, plot.getAttribute('aria-label'),
                    plot.data ? plot.data.length : 0])
"""
SEEN = "return document.querySelector(arguments[0]).getClientRects().length > 0"
BACKGROUND = "return getComputedStyle(document.documentElement).backgroundColor"


def written(results: Results, folder: Path) -> Path:
    """The page in a folder."""
    path = folder / "report.html"
    path.write_text(page_of(results), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    return written(results_of({"topology": GRAPHS, "data": DATA}), folder)


@pytest.fixture
def page(window: Browser, report: Path) -> Browser:
    window.look(width=1400, dark=False)
    window.open(report)
    window.complaints()
    return window


def pressed(page: Browser) -> list[str]:
    chips = "[...document.querySelectorAll('.chip[aria-pressed=true]')]"
    found: list[str] = page.run(f"return {chips}.map(chip => chip.dataset.label)")
    return found


def texts(page: Browser, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
    found: list[str] = page.run(script, selector)
    return found


def title_of_x(page: Browser) -> str:
    script = """return [...document.querySelectorAll('.plot')]
        .find((plot) => plot.getClientRects().length).querySelector('.xtitle').textContent"""
    return str(page.run(script))


def choose(page: Browser, name: str, value: str) -> None:
    page.run(
        """const [name, value] = arguments;
        const input = document.querySelector(`[data-chooses=${name}] input[value="${value}"]`);
        if (input) input.click();
        else {
            const list = document.querySelector(`select[data-chooses=${name}]`);
            list.value = value;
            list.dispatchEvent(new Event('change'));
        }""",
        name,
        value,
    )


@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_everything_is_drawn_and_the_console_is_silent(
    window: Browser, report: Path, width: int, dark: bool
) -> None:
    window.look(width=width, dark=dark)
    window.complaints()
    window.open(report)
    assert window.complaints() == []
    drawn = {(section, label): traces for section, label, traces in window.run(DRAWN)}
    sections = [section for section, _ in drawn]
    assert sections == ["curves"] * 2 + ["ranking"] * 2 + ["predictions"] * 2 + ["heat"]
    # Nine lines; those that stand out have a band each.
    assert drawn["curves", "Accuracy"] == len(GRAPHS) + len(pressed(window))
    assert all(traces > 0 for traces in drawn.values())
    assert window.run("return document.querySelectorAll('svg.graph').length") == len(GRAPHS)


@pytest.mark.parametrize("width", [360, 390, 768, 1400, 1600])
def test_nothing_sticks_out_at_the_side(window: Browser, report: Path, width: int) -> None:
    window.look(width=width, dark=False)
    window.open(report)
    assert window.run("return document.documentElement.scrollWidth") <= width


# Charts are drawn anew once the window has been laid out.
STICKING_OUT = """
const frame = () => new Promise((done) => requestAnimationFrame(done));
return frame().then(frame).then(() => [...document.querySelectorAll("[data-figure]")]
  .filter((plot) => plot.getClientRects().length && !plot.style.minWidth)
  .map((plot) => plot.querySelector("svg").getBoundingClientRect().width - plot.clientWidth)
  .filter((wider) => wider > 1));
"""


def test_charts_become_narrower_with_the_window(window: Browser, report: Path) -> None:
    window.look(width=1000, dark=False)
    window.open(report)
    window.look(width=400, dark=False)
    assert window.run(STICKING_OUT) == []


def test_the_page_asks_for_nothing_but_itself(window: Browser, report: Path) -> None:
    window.requests()
    window.open(report)
    asked = [address for address in window.requests() if not address.startswith("data:")]
    assert asked == [report.as_uri()]


def test_it_is_dark_for_those_who_like_it_dark_and_a_button_changes_that(
    window: Browser, report: Path
) -> None:
    window.look(width=1400, dark=True)
    window.open(report)
    night = window.run(BACKGROUND)
    window.click("#theme")
    day = window.run(BACKGROUND)
    assert sum(channels(day)[:3]) > 700 > 200 > sum(channels(night)[:3])
    ink = "return document.querySelector('.plot .xtitle').style.fill"
    by_day = window.run(ink)
    window.click("#theme")
    assert window.run(ink) != by_day


def channels(color: str) -> list[int]:
    return [int(part) for part in color[color.index("(") + 1 : -1].split(",")]


def test_curves_go_over_what_is_chosen(page: Browser) -> None:
    titles = [title_of_x(page)]
    for place in ("steps", "bytes_sent"):
        choose(page, "x", place)
        titles.append(title_of_x(page))
    # Sparse graphs send far less than dense ones.
    sent = "sent by all workers, MB, logarithmic"
    assert titles == ["virtual time, s", "steps of each worker", sent]
    choose(page, "x", "time_s")
    page.click("#log-x")
    shown = "[...document.querySelectorAll('.plot')].find((plot) => plot.getClientRects().length)"
    assert page.run(f"return {shown}.layout.xaxis.type") == "log"
    assert page.complaints() == []


def test_a_line_stands_out_when_its_name_is_clicked_and_no_longer_when_clicked_again(
    page: Browser,
) -> None:
    before = pressed(page)
    (other,) = [label for label in GRAPHS if label not in before][:1]
    page.click(f".chip[data-label={other}]")
    assert set(pressed(page)) == {*before, other}
    page.click(f".chip[data-label={other}]")
    assert pressed(page) == before
    page.click("#nobody")
    assert pressed(page) == []
    page.click("#best")
    assert pressed(page) == before


def test_a_line_stands_out_while_the_pointer_is_on_its_name(page: Browser) -> None:
    (other,) = [label for label in GRAPHS if label not in pressed(page)][:1]
    width = """const plot = document.querySelector('.plot');
        return plot.data.find(line => line.meta === arguments[0]).line.width"""
    point = "document.querySelector(arguments[0]).dispatchEvent(new PointerEvent(arguments[1]))"
    thin = page.run(width, other)
    page.run(point, f".chip[data-label={other}]", "pointerenter")
    assert page.run(width, other) > thin
    page.run(point, f".chip[data-label={other}]", "pointerleave")
    assert page.run(width, other) == thin


def test_all_charts_and_tables_follow_the_point_of_the_further_axis(page: Browser) -> None:
    assert page.run(SEEN, "#ranking [data-show='facet=0']")
    assert not page.run(SEEN, "#ranking [data-show='facet=1']")
    curve = """return [...document.querySelectorAll('.plot')]
        .find((plot) => plot.getClientRects().length).data.at(-1).y.at(-1)"""
    before = page.run(curve)
    choose(page, "facet", "1")
    for part in ("ranking", "table", "predictions"):
        assert not page.run(SEEN, f"#{part} [data-show='facet=0']")
        assert page.run(SEEN, f"#{part} [data-show='facet=1']")
    assert page.run(curve) != before


def test_a_fact_and_an_outcome_show_their_points(page: Browser) -> None:
    seen = """return [...document.querySelectorAll('#predictions .note')]
        .filter((note) => note.getClientRects().length).map((note) => note.textContent)"""
    (before,) = page.run(seen)
    pairs = "return [...document.querySelectorAll('select[data-chooses=pair] option')]"
    choose(page, "pair", page.run(f"{pairs}.map((option) => option.value)")[3])
    (words,) = page.run(seen)
    assert words != before and words.startswith("ρ = ")
    assert page.complaints() == []


def test_a_click_on_a_heading_sorts_and_another_turns_it_round(page: Browser) -> None:
    column = """const table = document.querySelector('#table table');
        const heads = [...table.tHead.rows[0].cells];
        const at = heads.findIndex(head => head.innerText.startsWith(arguments[0]));
        heads[at].querySelector('button').click();
        return [...table.tBodies[0].rows].map(row => row.cells[at].dataset.value)"""
    rising = numbers(page.run(column, "Final accuracy"))
    assert rising == sorted(rising)
    falling = numbers(page.run(column, "Final accuracy"))
    assert falling == sorted(rising, reverse=True)
    assert len(set(rising)) > 1


def numbers(texts: list[str]) -> list[float]:
    return [float(text) for text in texts]


def test_the_command_follows_the_chosen_trial_and_can_be_copied(page: Browser) -> None:
    shown = "return document.querySelector('#command').textContent"
    assert "--set topology=ring --set partition=shared --set seed=0" in page.run(shown)
    page.run("document.querySelectorAll('[data-chooses=trial] input[value=\"2\"]')[0].click()")
    text = page.run(shown)
    assert text.endswith("--set topology=ring --set partition=shared --set seed=2")
    page.run(
        "window.copied = null; navigator.clipboard.writeText = async (t) => { window.copied = t; }"
    )
    page.click("#copy")
    assert page.run("return window.copied") == text


def test_without_results_there_is_still_a_page(window: Browser, tmp_path: Path) -> None:
    nothing = results_of({"topology": ["ring", "star"]}, lambda labels: None)
    window.complaints()
    window.open(written(nothing, tmp_path))
    assert window.complaints() == []
    assert "6 trials failed" in window.run("return document.querySelector('.warning').innerText")
    assert window.run(SEEN, "#command")


@pytest.mark.parametrize(
    "label", ["</script><script>boom()</script>", "<img src=x onerror=boom()>"]
)
def test_what_a_study_says_is_never_taken_for_code(
    window: Browser, tmp_path: Path, label: str
) -> None:
    points: list[Any] = [Point(label, {"topology": "ring"}), Point("a & b", {"topology": "star"})]
    results = results_of({"graph": points}, title=label, question=label, task=label)
    window.complaints()
    window.open(written(results, tmp_path))
    assert window.complaints() == []
    assert window.run("return document.querySelector('h1').textContent") == label
    assert label in window.run("return document.querySelector('#command').textContent")
    assert "a & b" in texts(window, "text")


def test_a_combination_that_the_study_leaves_out_is_said_to_have_no_results(
    window: Browser, tmp_path: Path
) -> None:
    def course(labels: Mapping[str, str]) -> Course | None:
        return None if labels["data"] == "skewed" else Course()

    results = results_of({"topology": GRAPHS[:3], "data": DATA}, course)
    window.complaints()
    window.open(written(results, tmp_path))
    assert not window.run(SEEN, ".gap")
    choose(window, "facet", "1")
    assert window.run(SEEN, ".gap")
    assert {section for section, _, _ in window.run(DRAWN)} == {"heat"}
    assert window.complaints() == []


def test_an_axis_of_numbers_is_drawn_with_every_number_below(
    window: Browser, tmp_path: Path
) -> None:
    grid: dict[str, Any] = {"p": [0.01, 0.1, 1.0], "rule": ["gosgd", "sgp"]}
    results = results_of(grid, lambda labels: Course(rate_s=1 / (0.1 + float(labels["p"]))))
    window.complaints()
    window.open(written(results, tmp_path))
    assert window.complaints() == []
    assert set(texts(window, "#response .xtick text")) >= {"0.01", "0.1", "1.0"}
    lines = """return [...document.querySelectorAll('#response .plot')]
        .find((plot) => plot.getClientRects().length).data.map((trace) => trace.name)"""
    assert window.run(lines) == ["gosgd", "sgp"]
    choose(window, "response", "accuracy")
    title = """return [...document.querySelectorAll('#response .plot')]
        .find((plot) => plot.getClientRects().length).querySelector('.ytitle').textContent"""
    assert window.run(title) == "Final accuracy, %"
