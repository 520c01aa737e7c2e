"""What Prometheus finds when it scrapes a peer."""

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


def scraped(url: str) -> dict[str, Metric]:
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
def taken() -> Iterator[int]:
    """A port on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        yield holder.getsockname()[1]


def test_a_scrape_has_what_the_peer_has_counted(caplog: pytest.LogCaptureFixture) -> None:
    with Peer(nn.Linear(2, 1), PeerConfig(id="solo", linger_s=0, metrics_port=0)) as peer:
        url = url_in(caplog.text)
        before = scraped(url)
        for _ in range(3):
            peer.step(loss=torch.tensor(0.25, requires_grad=True))
        peer.log(accuracy=0.5)
        peer._counters.pushes, peer._counters.bytes_sent = 7, 1000
        peer._counters.mixed, peer._counters.staleness_steps = 4, -2
        after = scraped(url)
        assert (before["rumor_steps"].type, after["rumor_weight"].type) == ("counter", "gauge")
        (info,) = after["rumor_peer_info"].samples
        expected = {"peer": "solo", "rule": "gosgd", "topology": "exponential"}
        assert info.labels == {**expected, "swarm": peer.stats().swarm}
        assert "rumor_loss" not in before and values(before)["rumor_steps_total"] == 0
        told = values(after)
        assert (told["rumor_steps_total"], told["rumor_swarm_steps"]) == (3, 3)
        assert (told["rumor_loss"], told["rumor_accuracy"]) == (0.25, 0.5)
        assert (told["rumor_pushes_total"], told["rumor_bytes_sent_total"]) == (7, 1000)
        assert (told["rumor_weight"], told["rumor_live"]) == (1, 1)
        assert told["rumor_staleness_steps_sum"] == -2
        assert "rumor_test_loss" not in told
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
        scraped(url)


def test_a_peer_that_looks_for_a_swarm_is_scraped_and_one_that_gave_up_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    late = Member(Peer(linear(), settings("late", join=("tcp://127.0.0.1:9",), metrics_port=0)))
    until(lambda: "metrics at" in caplog.text)
    found = scraped(url_in(caplog.text))
    late.end(at_once=True)
    assert isinstance(late.error, TransportError)
    assert {name for name in found if name.startswith("rumor_")} == {"rumor_peer_info"}
    with pytest.raises(OSError):
        scraped(url_in(caplog.text))


def test_a_port_in_use_is_an_error_before_the_peer_starts(taken: int) -> None:
    peer = Peer(nn.Linear(2, 1), PeerConfig(linger_s=0, metrics_port=taken))
    with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{taken} .*choose another"), peer:
        pytest.fail("it began")
    assert peer.address is None


def test_the_ports_of_several_peers_are_looked_at_at_once(taken: int) -> None:
    # Another program may have the port below.
    with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:({taken - 1}|{taken}) "):
        require_free_ports(taken - 1, 3)
    require_free_ports(0, 3)


@pytest.mark.parametrize(("port", "peers"), [(-1, 1), (65_536, 1), (65_535, 2)])
def test_what_is_no_port_is_refused(port: int, peers: int) -> None:
    with pytest.raises(ConfigError, match=f"metrics_port is {port}"):
        check_metrics_port(port, peers)


def test_without_the_package_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "find_spec", lambda module: None)
    with pytest.raises(ConfigError, match=r"pip install -e '\.\[prometheus\]'"):
        PeerConfig(metrics_port=0)


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_metrics_are_served_to_this_machine_alone_unless_told_otherwise(host: str) -> None:
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

    def waits() -> None:
        assert may_step.wait(LIMIT_S)
        late.step()

    with swarm(Member(early), Member(late, waits), at_once=True):
        url = early.stats().metrics_url or ""
        # Under such a rule each peer counts as many steps of the others: after one, it waits.
        until(lambda: values(scraped(url)).get("rumor_swarm_steps") == 2)
        assert early.steps == 0 and values(scraped(url))["rumor_live"] == 2
        may_step.set()
        until(lambda: early.steps)
