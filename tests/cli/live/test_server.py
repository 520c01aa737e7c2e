"""The server of the page over real HTTP: files, views, and refused requests."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise

import pytest

from rumor.cli.live.web import Page

from ...waiting import until
from .made_up import a_peer, a_view
from .served import Site, served

pytestmark = pytest.mark.live

FILES = ["/", "/page.css", "/page.js", "/charts.js", "/graph.js", "/words.js", "/icon.svg"]
HOSTILE = "</script><script>boom()</script>\u2028\n\nevent: view\ndata: {}"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served(a_view(4)) as found:
        yield found


@pytest.mark.extended
@pytest.mark.parametrize("path", [*FILES, "/status.json", "/history.json", "/nothing"])
def test_every_response_restricts_requests_to_this_server(site: Site, path: str) -> None:
    response, text = site.get(path)
    assert response.status == (404 if path == "/nothing" else 200) and text
    policy = response.getheader("content-security-policy", "")
    assert policy.startswith("default-src 'self';") and "unsafe" not in policy
    assert response.getheader("x-content-type-options") == "nosniff"
    assert response.getheader("cross-origin-resource-policy") == "same-origin"
    assert response.getheader("access-control-allow-origin") is None
    assert response.getheader("cache-control") == "no-store"


@pytest.mark.extended
def test_the_page_has_no_inline_script_or_style_and_uses_no_other_server(site: Site) -> None:
    _, page = site.get("/")
    assert re.findall(r"<script[^>]*>(.*?)</script>", page) == [""]
    assert "<style" not in page and " style=" not in page and not re.search(r"\son\w+=", page)
    for path in FILES:
        _, text = site.get(path)
        elsewhere = re.findall(r"https?://[^\s\"'`]+", text)
        assert set(elsewhere) <= {"http://www.w3.org/2000/svg"}, path
        assert "innerHTML" not in text and "insertAdjacentHTML" not in text


@pytest.mark.extended
@pytest.mark.parametrize("host", ["localhost:1", "192.0.2.7", "NODE-A:80"])
def test_the_server_accepts_ip_addresses_localhost_and_its_name_as_host(
    site: Site, host: str
) -> None:
    response, _ = site.get("/status.json", host=host)
    assert response.status == 200


@pytest.mark.extended
@pytest.mark.parametrize("path", ["/", "/status.json", "/history.json"])
@pytest.mark.parametrize("host", ["evil.example:80", "localhost.evil.example:1"])
def test_requests_with_another_host_name_are_refused(site: Site, host: str, path: str) -> None:
    response, text = site.get(path, host=host)
    assert response.status == 421 and "not the host that you named" in text
    assert response.getheader("content-security-policy") is not None


@pytest.mark.extended
def test_post_requests_are_refused(site: Site) -> None:
    response, _ = site.get("/status.json", method="POST")
    assert response.status == 501


def test_the_status_is_the_last_view(site: Site) -> None:
    status = site.json("/status.json")
    assert [peer["id"] for peer in status["peers"]] == ["p00", "p01", "p02", "p03"]
    assert status["swarm_step"] == 790_123 and len(status["links"]) == 12


@pytest.mark.extended
def test_silent_connections_take_a_limited_number_of_threads() -> None:
    with served(a_view(2)) as site, ExitStack() as stack:
        before = threading.active_count()
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", site.port)))
        until(lambda: threading.active_count() > before)
        with pytest.raises(OSError):
            site.get("/status.json")
        assert threading.active_count() <= 64


@pytest.mark.extended
def test_a_page_that_is_opened_late_gets_the_views_before() -> None:
    with served(a_view(4)) as site:
        site.show(replace(a_view(4), peers=(*a_view(4).peers, a_peer("late")), answered=0))
        status, history = site.json("/status.json"), site.json("/history.json")
    assert status["peers"][-1]["id"] == "late" and status["answered"] == 0
    assert [len(each["members"]) for each in history[:1]] == [4] and len(history) >= 2
    assert history[-1]["members"][-1][:2] == ["late", "training"]
    times = [each["time_s"] for each in history]
    assert times == sorted(set(times))


@pytest.mark.extended
def test_names_and_figures_of_peers_cannot_break_a_response() -> None:
    peers = (a_peer(HOSTILE, loss=float("inf"), settings={HOSTILE: HOSTILE, "host": HOSTILE}),)
    with served(replace(a_view(2), peers=peers, events=())) as site:
        (peer,) = site.json("/status.json")["peers"]
        assert peer["id"] == HOSTILE and peer["loss"] == "inf"
        assert site.json("/history.json")[0]["members"] == [[HOSTILE, "training", None, None]]


def test_the_history_has_the_state_loss_and_distance_of_each_member() -> None:
    silent = a_peer("b", loss=3.0, source="others", state="dead")
    page = Page(replace(a_view(2), peers=(a_peer("a", loss=2.0, distance=0.5), silent)))
    (sample,) = page.history
    assert (sample["time_s"], sample["swarm_step"]) == (1_795_000_000.0, 790_123)
    assert sample["members"] == [("a", "training", 2.0, 0.5), ("b", "dead", None, None)]
    page.add(replace(a_view(2), peers=tuple(a_peer(f"p{number}") for number in range(300))))
    assert len(page.history[-1]["members"]) == 256


def test_in_long_runs_every_other_sample_is_dropped() -> None:
    view = replace(a_view(1), time_s=0.0)
    page = Page(view)
    for second in range(1, 2000):
        page.add(replace(view, time_s=float(second)))
    times = [sample["time_s"] for sample in page.history]
    assert 300 <= len(times) <= 600
    assert times[0] == 0 and {b - a for a, b in pairwise(times)} == {4}
