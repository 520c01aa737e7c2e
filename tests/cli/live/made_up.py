"""Made-up views of swarms, as an observer might see them."""

import random
from typing import Any

from rumor.gossip.wire.messages import LinkStatus
from rumor.train.observe.view import EventView, LinkView, PeerView, SwarmView
from rumor.train.runtime.telling.stats import METRICS

__all__ = ["a_link", "a_peer", "a_view"]


SETTINGS = {"rule": "gosgd", "topology": "exponential", "wire": "float32"}


def a_peer(id: str = "p0", **fields: Any) -> PeerView:
    """A member that answers and trains."""
    usual: dict[str, Any] = {
        "state": "training",
        "source": "self",
        "incarnation": 1_795_000_000_000,
        "address": "10.0.0.5:7700",
        "step": 12_345,
        "steps_s": 48.2,
        "weight": 1.0,
        "escrow": 0.125,
        "loss": 0.25,
        "accuracy": 0.9722,
        "staleness_mean": 1.5,
        "staleness_steps_max": 8,
        "pushes": 1200,
        "mixed": 1190,
        "refusals": 1,
        "refused": 2,
        "bytes_out_s": 61_000.0,
        "bytes_in_s": 58_000.0,
        "uptime_s": 754.0,
        "silent_s": 0.01,
        "settings": SETTINGS | {"host": "node-a"},
    }
    values = usual | fields
    figures = {name: values.pop(name) for name in METRICS if name in values}
    figures = {name: value for name, value in figures.items() if value is not None}
    return PeerView(id=id, figures=figures, **values)


def a_link(source: str = "p0", target: str = "p1", **fields: Any) -> LinkView:
    """A link on which models travel both ways."""
    rates = {"bytes_out_s": 30_500.0, "bytes_in_s": 29_100.0}
    rates |= {name: fields.pop(name) for name in [*rates] if name in fields}
    usual: dict[str, Any] = {
        "shares_memory": False,
        "bytes_sent": 9_000_000,
        "bytes_received": 8_500_000,
        "pushes": 400,
        "refusals": 0,
        "mixed": 390,
        "in_flight": 1,
        "roundtrip_s": 0.0123,
    }
    return LinkView(source=source, status=LinkStatus(peer=target, **usual | fields), **rates)


def a_view(count: int = 4, seed: int = 0, **fields: Any) -> SwarmView:
    """A view of *count* members; in a larger swarm, some are dead, silent or gone."""
    rng = random.Random(seed)
    peers = []
    for number in range(count):
        fate = {7: "dead", 19: "left", 23: "suspected", 31: "silent", 42: "waiting"}.get(number)
        values: dict[str, Any] = {
            "step": 12_000 + rng.randrange(900),
            "steps_s": rng.uniform(20, 50),
            "weight": rng.lognormvariate(0, 0.7),
            "loss": rng.lognormvariate(-3, 0.6),
            "staleness_mean": rng.uniform(0, 9),
            "bytes_out_s": rng.uniform(2e6, 9e6),
            "bytes_in_s": rng.uniform(2e6, 9e6),
        }
        if fate:
            values["state"] = fate
        if fate in ("dead", "left", "suspected", "silent"):
            values |= {"source": "others", "steps_s": None, "bytes_out_s": None, "bytes_in_s": None}
        values["address"] = f"10.0.{number // 8}.{number % 8 + 10}:7700"
        values["settings"] = SETTINGS | {"host": f"node-{number // 8}"}
        peers.append(a_peer(f"p{number:02}", **values))
    names = [peer.id for peer in peers]
    founded = [(1_794_999_000.0 + number, name) for number, name in enumerate(names[:6])]
    usual: dict[str, Any] = {
        "time_s": 1_795_000_000.0,
        "swarm": "3d42e0d4" * 4,
        "swarm_step": 790_123,
        "answered": sum(peer.source == "self" for peer in peers),
        "peers": tuple(peers),
        "links": tuple(a_link(a, b) for a in names[:8] for b in names[:8] if a != b),
        "events": tuple(
            EventView(time_s=s, event="founded", peer=name, told_by=(name,)) for s, name in founded
        ),
    }
    return SwarmView(**usual | fields)
