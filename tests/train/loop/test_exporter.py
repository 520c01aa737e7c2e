"""Metrics that Prometheus scrapes from a peer."""

import re
import socket
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from torch import nn

from rumor.gossip import ConfigError, TransportError
from rumor.train import Peer, PeerConfig
from rumor.train.loop import exporter
from rumor.train.loop.exporter import check_metrics_port, require_free_ports

from ...waiting import LIMIT_S, until
from ..members import Member, linear, settings, swarm


def scrape(url: str) -> dict[str, Metric]:
    """The families of one scrape, by name."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=LIMIT_S) as answer:
        text = answer.read().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def values(found: dict[str, Metric]) -> dict[str, float]:
    return {sample.name: sample.value for family in found.values() for sample in family.samples}


def url_in(text: str) -> str:
    found = re.search(r"metrics at (\S+)", text)
    assert found is not None, text
    return found[1]


@pytest.fixture
def used_port() -> Iterator[int]:
    """A port in use."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        yield holder.getsockname()[1]


def test_a_scrape_reports_the_counters_of_the_peer(caplog: pytest.LogCaptureFixture) -> None:
    with Peer(nn.Linear(2, 1), PeerConfig(id="solo", linger_s=0, metrics_port=0)) as peer:
        url = url_in(caplog.text)
        before = scrape(url)
        for _ in range(3):
            peer.step(loss=torch.tensor(0.25, requires_grad=True))
        peer.log(accuracy=0.5)
        peer._counters.pushes, peer._counters.bytes_sent = 7, 1000
        peer._counters.mixed, peer._counters.staleness_steps = 4, -2
        after = scrape(url)
        assert (before["rumor_steps"].type, after["rumor_weight"].type) == ("counter", "gauge")
        (info,) = after["rumor_peer_info"].samples
        expected = {"peer": "solo", "rule": "gosgd", "topology": "exponential"}
        assert info.labels == {**expected, "swarm": peer.stats().swarm}
        assert "rumor_loss" not in before and values(before)["rumor_steps_total"] == 0
        metrics = values(after)
        assert (metrics["rumor_steps_total"], metrics["rumor_swarm_steps"]) == (3, 3)
        assert (metrics["rumor_loss"], metrics["rumor_accuracy"]) == (0.25, 0.5)
        assert (metrics["rumor_pushes_total"], metrics["rumor_bytes_sent_total"]) == (7, 1000)
        assert (metrics["rumor_weight"], metrics["rumor_live"]) == (1, 1)
        assert metrics["rumor_staleness_steps_sum"] == -2
        assert "rumor_test_loss" not in metrics
    # Names follow the conventions of Prometheus.
    own = {name: family for name, family in after.items() if name.startswith("rumor_")}
    assert len(own) > 12
    for family in own.values():
        assert family.documentation.endswith(".")
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")
            # A label for each neighbor would make as many series as there are pairs.
            assert set(sample.labels) <= {"peer", "rule", "topology", "swarm"}
    with pytest.raises(OSError):
        scrape(url)


def test_a_searching_peer_is_scraped_until_it_gives_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    late = Member(Peer(linear(), settings("late", join=("tcp://127.0.0.1:9",), metrics_port=0)))
    until(lambda: "metrics at" in caplog.text)
    found = scrape(url_in(caplog.text))
    late.end(at_once=True)
    assert isinstance(late.error, TransportError)
    assert {name for name in found if name.startswith("rumor_")} == {"rumor_peer_info"}
    with pytest.raises(OSError):
        scrape(url_in(caplog.text))


def test_a_port_in_use_is_an_error_before_the_peer_starts(used_port: int) -> None:
    peer = Peer(nn.Linear(2, 1), PeerConfig(linger_s=0, metrics_port=used_port))
    with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{used_port} .*choose another"), peer:
        pytest.fail("the peer started")
    assert peer.address is None


def test_the_ports_of_several_peers_are_checked_together(used_port: int) -> None:
    # Another program may use the port below.
    with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:({used_port - 1}|{used_port}) "):
        require_free_ports(used_port - 1, 3)
    require_free_ports(0, 3)


@pytest.mark.parametrize(("port", "peers"), [(-1, 1), (65_536, 1), (65_535, 2)])
def test_an_invalid_port_is_refused(port: int, peers: int) -> None:
    with pytest.raises(ConfigError, match=f"metrics_port is {port}"):
        check_metrics_port(port, peers)


def test_a_missing_package_is_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "find_spec", lambda module: None)
    with pytest.raises(ConfigError, match=r"pip install -e '\.\[prometheus\]'"):
        PeerConfig(metrics_port=0)


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_metrics_are_served_on_loopback_by_default(host: str) -> None:
    config = PeerConfig(id="ann", bind="tcp://0.0.0.0:*", metrics_port=0, signals=False)
    assert config.metrics_host == "127.0.0.1"
    with Peer(nn.Linear(2, 1), replace(config, metrics_host=host)) as peer:
        assert (peer.stats().metrics_url or "").startswith(f"http://{host}:")


@pytest.mark.extended
@pytest.mark.live
def test_a_scrape_is_answered_while_a_peer_waits_within_a_round(tmp_path: Path) -> None:
    may_step = threading.Event()
    given: dict[str, Any] = {"founders": 2, "rendezvous": tmp_path, "rule": "allreduce"}
    both = (settings(name, metrics_port=0, **given) for name in ("early", "late"))
    early, late = (Peer(linear(), config) for config in both)

    def wait_and_step() -> None:
        assert may_step.wait(LIMIT_S)
        late.step()

    with swarm(Member(early), Member(late, wait_and_step), at_once=True):
        url = early.stats().metrics_url or ""
        # Under allreduce, a peer counts its own steps for all peers: after one step, it waits.
        until(lambda: values(scrape(url)).get("rumor_swarm_steps") == 2)
        assert early.steps == 0 and values(scrape(url))["rumor_live"] == 2
        may_step.set()
        until(lambda: early.steps)
