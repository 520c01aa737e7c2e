"""What a peer that looks for its swarm says it waits for."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rumor.gossip import TransportError
from rumor.gossip.protocol.leave import STOPPED
from rumor.gossip.wire.messages import Member, Phase
from rumor.train import PeerConfig
from rumor.train.runtime.search import Search

NEW = SimpleNamespace(past=None, seeds=())


def words(
    *greeted: str,
    live: tuple[str, ...] = (),
    join: tuple[str, ...] = (),
    refusals: dict[str, str] | None = None,
    ended_by: str = "",
) -> str:
    """What is said by one that has greeted these, and knows who listens at some of them."""
    members = [
        Member(id=a, incarnation=1, heartbeat=1, phase=Phase.TRAINING, step=0, addresses=(a,))
        for a in ("me", *live)
    ]
    runtime = SimpleNamespace(
        queue=SimpleNamespace(greeted=dict.fromkeys(greeted)),
        transport=SimpleNamespace(
            keyring=None,
            refusal=lambda address: (refusals or {}).get(address, ""),
        ),
        call=lambda method, **arguments: False,
        step=lambda trained: None,
        look=lambda glance: glance(
            SimpleNamespace(phase=Phase.SEEKING, table=SimpleNamespace(live=lambda: members))
        ),
        wait_for_share=lambda seconds: None,
        addresses=(),
        refusal=None,
        outlived=None,
        ended_by=ended_by,
    )
    search = Search(cast(Any, runtime), PeerConfig(join=join), "me", cast(Any, NEW))
    stop = threading.Event()
    if not ended_by:
        stop.set()
    with pytest.raises(TransportError) as caught:
        search.run(stop)
    assert stop.is_set()
    return str(caught.value)


def test_each_of_a_few_addresses_is_named() -> None:
    said = words("tcp://b:1", "tcp://a:1", live=("tcp://a:1",))
    assert said == (
        "stopped while joining: tcp://b:1 does not answer; tcp://a:1 answers; "
        "waiting for a first share"
    )


def test_an_address_that_cannot_be_reached_is_told_from_a_host_that_is_silent() -> None:
    said = words("tcp://b:1", "tcp://a:1", refusals={"tcp://b:1": "has no keys"})
    assert said == ("stopped while joining: tcp://b:1 has no keys; tcp://a:1 does not answer")


def test_of_hundreds_of_addresses_a_few_are_named_and_the_rest_counted() -> None:
    many = [f"tcp://10.0.0.{number}:7700" for number in range(250)]
    said = words(*many, live=(many[7], many[200]))
    assert many[0] in said and many[3] in said and many[4] not in said
    assert "of 246 others 2 answer" in said and len(said) < 400


def test_one_that_has_greeted_nobody_says_so() -> None:
    assert words() == "stopped while joining: no peer has answered yet"


def test_one_whose_swarm_is_told_to_stop_seeks_no_longer() -> None:
    assert words(ended_by=STOPPED) == "stopped while joining: no peer has answered yet"


def test_joining_without_any_founder_says_what_to_do() -> None:
    said = words("tcp://a:1", join=("tcp://a:1",))
    assert "if all peers were given join, start one without it" in said


def test_the_founders_of_a_run_that_goes_on_wait_for_one_another(tmp_path: Path) -> None:
    joined: list[object] = []
    stop = threading.Event()
    runtime = SimpleNamespace(
        queue=SimpleNamespace(greeted={}),
        transport=SimpleNamespace(keyring=None),
        call=lambda method, **arguments: joined.append((method, arguments)),
        step=lambda trained: None,
        look=lambda glance: glance(
            SimpleNamespace(phase=Phase.TRAINING, table=SimpleNamespace(live=list))
        ),
        settle_network=lambda: None,
        wait_for_share=lambda seconds: stop.set(),
        addresses=("tcp://a:1",),
        refusal=None,
        ended_by="",
    )
    folder = SimpleNamespace(past=SimpleNamespace(returns=True), seeds=())
    config = PeerConfig(rendezvous=tmp_path, founders=2)

    def search() -> None:
        Search(cast(Any, runtime), config, "me", cast(Any, folder), goes_on=True).run(stop)

    with pytest.raises(TransportError, match="1 of 2 peers of the resumed run are there"):
        search()
    assert not joined
    (tmp_path / "other.addr").write_text("tcp://b:1\n")
    stop.clear()
    search()
    assert joined == [("join", {"seeds": ("tcp://b:1",), "founders": 1, "returning": True})]
    assert (tmp_path / "me.addr").read_text() == "tcp://a:1\n"
