"""The server of the page over real HTTP: files, streamed views, and refused requests."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rumor.cli.live import web
from rumor.cli.live.web import Feed

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
@pytest.mark.parametrize("path", [*FILES, "/status.json", "/nothing"])
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
@pytest.mark.parametrize("path", ["/", "/status.json", "/events"])
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
    _, text = site.get("/status.json")
    status = json.loads(text)
    assert [peer["id"] for peer in status["peers"]] == ["p00", "p01", "p02", "p03"]
    assert status["swarm_step"] == 790_123 and len(status["links"]) == 12


@pytest.mark.extended
def test_a_stream_begins_with_everything_and_continues_with_views() -> None:
    with served(a_view(4)) as site:
        stream = site.events()
        name, first = next(stream)
        assert name == "everything" and len(first["curves"]["peers"]) == 4
        name, news = next(stream)
        assert name in ("view", "everything") and news["view"]["time_s"] > first["view"]["time_s"]
        site.show(replace(a_view(4), peers=(*a_view(4).peers, a_peer("late")), answered=0))
        for _, news in stream:
            if news["view"]["peers"][-1]["id"] == "late":
                break
        assert news["view"]["answered"] == 0
        stream.close()
        # A page that is opened later gets the same data.
        _, all_ = next(site.events())
        assert all_["view"]["peers"][-1]["id"] == "late"
        assert len(all_["curves"]["times_s"]) >= 3


@pytest.mark.extended
def test_peer_names_cannot_break_the_event_stream() -> None:
    peers = (a_peer(HOSTILE, loss=float("inf"), settings={HOSTILE: HOSTILE, "host": HOSTILE}),)
    with served(replace(a_view(2), peers=peers, events=())) as site:
        stream = site.events()
        for _ in range(3):
            name, event = next(stream)
            assert name in ("everything", "view")
            (peer,) = event["view"]["peers"]
            assert peer["id"] == HOSTILE and peer["loss"] == "inf"
        stream.close()


def test_a_client_that_missed_a_view_gets_everything_again() -> None:
    feed = Feed(a_view(2))
    stream = feed.stream()
    found = [next(stream)]
    feed.add(a_view(2))
    found.append(next(stream))
    feed.add(a_view(2))
    feed.add(a_view(2))
    found.append(next(stream))
    feed.close()
    assert list(stream) == []
    names = [text.splitlines()[0] for text in found]
    assert names == ["event: everything", "event: view", "event: everything"]


@pytest.mark.extended
def test_an_idle_stream_is_kept_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_KEEPALIVE_S", 0.01)
    stream = Feed(a_view(2)).stream()
    next(stream)
    assert next(stream).startswith(":")


@pytest.mark.extended
def test_open_streams_end_with_the_server() -> None:
    with served(a_view(2)) as site:
        stream = site.events()
        next(stream)
        site.stop()
        # The stream ends although its reader is still connected.
        assert sum(1 for _ in stream) < 1000
