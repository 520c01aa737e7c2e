"""The page of a swarm in a real browser: light and dark, on a desktop and a phone."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from rumor.train.observe.view import EventView, SwarmView

from ...chromium import Browser, browser, missing_program
from ...waiting import until
from .made_up import a_link, a_view
from .served import Site, served

pytestmark = [
    pytest.mark.live,
    pytest.mark.browser,
    pytest.mark.skipif(missing_program() is not None, reason=str(missing_program())),
]

LOOKS = [(1400, False), (1400, True), (400, False), (400, True)]
HOSTILE = [
    "<img src=x onerror=boom()>",
    "</script><script>boom()</script>",
    "__proto__",
    "\u202egnp",
]

NODES = "return document.querySelectorAll('#graph .node').length"
ROWS = "return [...document.querySelectorAll('#members tbody th')].map((e) => e.textContent)"
CURVES = """return [...document.querySelectorAll(`#${arguments[0]} .curve`)]
    .filter((line) => (line.getAttribute("d").match(/L/g) ?? []).length >= 2).length"""
TEXT = "return document.querySelector(arguments[0])?.textContent ?? ''"
HIDDEN = "return document.querySelector(arguments[0]).hidden"
MARKS = "return document.querySelectorAll('#lanes .mark').length"

# The lowest contrast of any text with its background, by the formula of WCAG 2, and its element.
CONTRAST = """
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const channels = (color) => {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = color;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const luminance = (color) => {
  const [r, g, b] = color.slice(0, 3).map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const found = channels(getComputedStyle(at).backgroundColor);
    if (found[3] === 255) return found;
  }
  return channels("white");
};
const all = [...document.querySelectorAll("body *")].filter((element) =>
  element.getClientRects().length && !element.closest("noscript, .out-of-sight, .skip") &&
  [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()));
const found = all.map((element) => {
  const style = getComputedStyle(element);
  const ink = luminance(channels(element.closest("svg") ? style.fill : style.color));
  const ground = luminance(behind(element));
  const ratio = (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
  return [ratio, element.tagName + "." + element.className + ": " + element.textContent];
});
found.sort((a, b) => a[0] - b[0]);
return [found.length, ...found[0]];
"""


def swarm(count: int, **fields: Any) -> SwarmView:
    """A view of *count* members, each of which pushes to a few others."""
    view = a_view(count)
    peers = tuple(replace(p, distance=0.01 * n + 0.1) for n, p in enumerate(view.peers))
    names = [peer.id for peer in peers]
    links = tuple(
        a_link(name, names[(at + 2**hop) % count], bytes_out_s=1e6 * (at + hop + 1))
        for at, name in enumerate(names)
        for hop in range(int(math.log2(count)))
    )
    return replace(view, **{"peers": peers, "links": links} | fields)


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def site() -> Iterator[Site]:
    with served(swarm(4)) as found:
        yield found


def wait_for(page: Browser, script: str, *arguments: Any, is_: Any) -> None:
    """Wait until a script returns the expected value."""
    until(lambda: page.run(script, *arguments) == is_, lambda: page.run(script, *arguments))


@pytest.fixture
def page(window: Browser, site: Site) -> Browser:
    window.look(width=1400, dark=False)
    window.open(site.address)
    wait_for(window, CURVES, "loss", is_=4)
    window.console_messages()
    return window


@pytest.mark.parametrize("count", [4, 64])
@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_everything_is_legible_and_nothing_overflows(
    window: Browser, width: int, dark: bool, count: int
) -> None:
    with served(swarm(count)) as site:
        window.look(width=width, dark=dark)
        window.console_messages()
        window.open(site.address)
        answering = sum(peer.source == "self" for peer in site.view.peers)
        # With many members, the median is also drawn.
        wait_for(window, CURVES, "loss", is_=answering + (count > 7))
        wait_for(window, CURVES, "distance", is_=answering + (count > 7))
        assert window.run(NODES) == count == len(window.run(ROWS))
        arcs = "return document.querySelectorAll('#graph .arc').length"
        assert window.run(arcs) == len(site.view.links)
        lanes = "return document.querySelectorAll('#lanes rect.bar').length"
        assert window.run(lanes) == count
        window.run("document.querySelector('#members tbody button').click()")
        wait_for(window, TEXT, "#peer-title", is_="p00")
        assert window.run("return document.documentElement.scrollWidth") <= width
        texts, least, element = window.run(CONTRAST)
        assert texts > 50 and least >= 4.5, element
        assert window.console_messages() == []


CUT = """const box = document.querySelector("#graph").getBoundingClientRect();
return [...document.querySelectorAll("#graph .label")].filter((label) => {
  const at = label.getBoundingClientRect();
  return at.left < box.left || at.right > box.right || at.top < box.top || at.bottom > box.bottom;
}).map((label) => label.textContent);"""


@pytest.mark.parametrize("width", [1400, 400])
def test_no_name_in_the_graph_is_truncated(window: Browser, width: int) -> None:
    for count in (1, 2, 6, 12, 13, 24):
        view = swarm(count)
        named = (replace(p, id=f"worker-{n:02}-of-24") for n, p in enumerate(view.peers))
        with served(replace(view, peers=tuple(named), links=())) as site:
            window.look(width=width, dark=False)
            window.open(site.address)
            wait_for(window, NODES, is_=count)
            # Nodes move to their places gradually.
            wait_for(window, CUT, is_=[])


@pytest.mark.parametrize("name", HOSTILE)
def test_text_from_peers_is_never_executed(page: Browser, site: Site, name: str) -> None:
    honest, *others = swarm(4).peers
    settings = {name: name, "host": name, "rule": "<b>gosgd</b>"}
    hostile = replace(honest, id=name, address=name, settings=settings)
    unknown_event: Any = name
    events = (
        EventView(time_s=site.view.time_s, event="joined", peer=name, donor=name),
        EventView(time_s=site.view.time_s, event=unknown_event, peer=name, told_by=(name,)),
    )
    links = (a_link(name, "p01"), a_link("p01", name))
    site.show(replace(swarm(4), peers=(hostile, *others), links=links, events=events))
    shown = "return [...document.querySelectorAll('#graph .node')].map((e) => e.dataset.id).sort()"
    wait_for(page, shown, is_=sorted([name, "p01", "p02", "p03"]))
    page.run(
        "[...document.querySelectorAll('#members tbody button')]"
        ".find((e) => e.dataset.id === arguments[0]).click()",
        name,
    )
    visible = name.replace("\u202e", "\ufffd")
    wait_for(page, TEXT, "#peer-title", is_=visible)
    assert visible in page.run(TEXT, "#peer-body") and "<b>gosgd</b>" in page.run(
        TEXT, "#peer-body"
    )
    assert page.run("return document.querySelectorAll('#content :is(img, b, script)').length") == 0
    assert page.console_messages() == []


def test_a_dead_member_is_shown_and_the_page_continues(page: Browser, site: Site) -> None:
    first, *others = swarm(4).peers
    dead = replace(first, state="dead", source="others", steps_s=None, dead_by=3)
    died = EventView(time_s=site.view.time_s + 2, event="died", peer="p00", told_by=("p01", "p02"))
    site.show(replace(swarm(4), peers=(dead, *others), events=(died,), answered=3))
    wait_for(page, "return document.querySelectorAll('#graph .is-dead').length", is_=1)
    assert page.run(NODES) == 4 and page.run(MARKS) >= 1
    assert "p00 is considered dead (reported by 2 members)" in page.run(TEXT, "#events")
    assert "1 dead" in page.run(TEXT, "#tiles")
    assert page.run(HIDDEN, "#banner")
    assert page.console_messages() == []


def test_a_partition_is_reported(page: Browser, site: Site) -> None:
    cut = [replace(p, state="cut off") if n < 2 else p for n, p in enumerate(swarm(4).peers)]
    site.show(replace(swarm(4), peers=tuple(cut)))
    words = "Partition: 2 members answer here, but other members do not hear them."
    wait_for(page, TEXT, "#banner", is_=words)
    site.show(swarm(4))
    wait_for(page, HIDDEN, "#banner", is_=True)


def test_the_page_reports_when_no_member_answers_and_when_the_server_ends(
    window: Browser,
) -> None:
    with served(swarm(4)) as site:
        window.look(width=1400, dark=False)
        window.open(site.address)
        wait_for(window, HIDDEN, "#banner", is_=True)
        site.show(replace(swarm(4), answered=0))
        wait_for(window, HIDDEN, "#banner", is_=False)
        assert window.run(TEXT, "#banner").startswith("No member answers any more.")
        site.show(swarm(4))
        wait_for(window, HIDDEN, "#banner", is_=True)
    lost = "return document.querySelector('#banner').textContent.startsWith('rumor top does not')"
    wait_for(window, lost, is_=True)
    assert window.run(NODES) == 4
    # The browser only complains about the missing server.
    assert all(
        "ERR_CONNECTION_REFUSED" in each or ".json" in each for each in window.console_messages()
    )


def test_without_measurements_there_is_no_consensus_curve(page: Browser, site: Site) -> None:
    with served(a_view(4)) as other:
        page.open(other.address)
        wait_for(page, CURVES, "loss", is_=4)
        assert page.run(HIDDEN, "#distance-none") is False
        assert page.run(CURVES, "distance") == 0
        assert page.run("return getComputedStyle(document.querySelector('#distance')).display") == (
            "none"
        )


def test_a_click_on_a_node_opens_its_details_and_a_second_closes_them(
    page: Browser,
) -> None:
    click = """document.querySelector('#graph [data-id=p02]')
        .dispatchEvent(new MouseEvent('click', { bubbles: true }))"""
    page.run(click)
    wait_for(page, TEXT, "#peer-title", is_="p02")
    assert {"gosgd", "exponential"} <= set(
        page.run("return [...document.querySelectorAll('#peer dd')].map((e) => e.textContent)")
    )
    links = (
        "return [...document.querySelectorAll('.links tbody th')].map((e) => e.textContent).sort()"
    )
    assert page.run(links) == ["p00", "p03"]
    page.run(click)
    wait_for(page, TEXT, "#peer-title", is_="A member")


def test_nodes_can_be_selected_by_keyboard(page: Browser) -> None:
    page.run("document.querySelector('#graph [data-id=p00]').focus()")
    press = """document.activeElement.dispatchEvent(
        new KeyboardEvent('keydown', { key: arguments[0], bubbles: true, cancelable: true }))"""
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowLeft", "ArrowLeft"):
        page.run(press, key)
    assert page.run("return document.activeElement.dataset.id") == "p03"
    page.run(press, "Enter")
    wait_for(page, TEXT, "#peer-title", is_="p03")
    assert page.run("return document.activeElement.getAttribute('aria-pressed')") == "true"


def test_nodes_keep_their_places(page: Browser, site: Site) -> None:
    where = """return [...document.querySelectorAll('#graph .node')]
        .map((node) => [node.dataset.id, node.style.transform])"""
    before = page.run(where)
    site.show(
        replace(swarm(4), peers=tuple(replace(p, figures={"weight": 3.0}) for p in swarm(4).peers))
    )
    assert page.run(where) == before and len(before) == 4


def test_members_are_sorted_and_filtered(page: Browser) -> None:
    sort = """document.querySelectorAll('#members thead button')[arguments[0]].click();
        return [...document.querySelectorAll('#members tbody tr')]
            .map((row) => Number(row.cells[arguments[0]].textContent))"""
    falling = page.run(sort, 4)
    assert falling == sorted(falling, reverse=True) and len(set(falling)) > 1
    assert page.run(sort, 4) == falling[::-1]
    page.run(
        "const input = document.querySelector('#filter'); input.value = 'P02 training';"
        "input.dispatchEvent(new Event('input'))"
    )
    assert page.run(ROWS) == ["p02"]
    assert page.run(TEXT, "#matching") == "1 of 4"


def test_curves_are_over_time_or_total_steps(page: Browser, site: Site) -> None:
    label = "return document.querySelector('#loss').getAttribute('aria-label')"
    assert "step" not in page.run(label)
    for thousands in (801, 802, 803):
        site.show(replace(swarm(4), swarm_step=1000 * thousands))
        # The page asks once a second, and would miss views in between.
        until(lambda shown=str(thousands): shown in page.run(TEXT, "#tiles"))  # type: ignore[misc]
    page.run("document.querySelector('input[value=step]').click()")
    assert page.run(label).startswith("Loss. step 8")
    page.run("document.querySelector('#log').click()")
    assert page.run(CURVES, "loss") == 4 and page.console_messages() == []


def test_a_button_switches_between_light_and_dark(page: Browser) -> None:
    ground = "return getComputedStyle(document.documentElement).backgroundColor"
    day = page.run(ground)
    page.click("#theme")
    assert page.run(ground) != day and page.run(TEXT, "#theme") == "Light"
    page.click("#theme")
    assert page.run(ground) == day
