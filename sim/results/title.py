"""A run in words: what is trained, by how many, how they exchange, over what."""

from collections.abc import Mapping
from typing import Any

from ...gossip.rules.registry import parts_of_spec
from ...gossip.wire.formats import NATIVE

__all__ = ["describe", "describe_world"]


WORLD = {
    "network": "network {}",
    "network_latency_s": "latency {:g} s",
    "network_bandwidth_mbit": "uplinks of {:g} Mbit/s",
    "network_downlink_mbit": "downlinks of {:g} Mbit/s",
    "network_loss": "loss {:g}",
    "network_duplicates": "duplicates {:g}",
    "step_s": "steps of {:g} s",
    "pace": "pace {}",
    "speeds": "speeds {}",
    "slow": "slow {}",
    "partition": "data {}",
    "mixing": "mixing {}",
    "seed": "seed {}",
}
"""Keys of a summary that say what the workers live in, and what is written of each."""


def describe(settings: Mapping[str, Any]) -> str:
    """Say what is trained, by how many workers, and how they exchange.

    Args:
        settings: A run's summary, or the fields of its configuration.

    >>> describe({"task": "digits", "workers": 8, "topology": "ring", "rule": "gosgd", "p": 0.1,
    ...           "emission": "per-step"})
    'digits on 8 workers, ring, gosgd with p = 0.1 per step'
    >>> describe({"task": "digits", "workers": 8, "topology": "ring", "rule": "sgp",
    ...           "wire": "int8", "shards": 4})
    'digits on 8 workers, ring, sgp, int8, 1 of 4 shards a push'
    >>> describe({"task": "digits", "workers": 8, "topology": "ring", "rule": "mine",
    ...           "rule_spec": "rules:Mine:p=0.5,every=3", "p": 0.5})
    'digits on 8 workers, ring, mine with p = 0.5 per step, every = 3'
    >>> describe({"task": "digits", "workers": 8, "topology": "ring", "rule": "gosgd:p=0.5"})
    'digits on 8 workers, ring, gosgd with p = 0.5 per step'
    """
    workers = settings["workers"]
    several = "1 worker" if workers == 1 else f"{workers:,} workers"
    parts = [f"{settings['task']} on {several}", settings["topology"], _rule(settings)]
    return ", ".join([*parts, *_shares(settings)])


def describe_world(settings: Mapping[str, Any]) -> str:
    """Say what the workers of a summary live in: network, speeds, who has which data.

    >>> describe_world({"network": "lan", "step_s": 0.1, "slow": ["3:10"], "seed": 0})
    'network lan, steps of 0.1 s, slow 3:10, seed 0'
    """
    parts: list[str] = []
    for name, words in WORLD.items():
        value = settings.get(name)
        if value is None or value in ([], ()):
            continue
        text = " ".join(value) if isinstance(value, list | tuple) else value
        parts.append(words.format(text))
    faults = len(settings.get("faults") or ())
    if faults:
        several = "1 fault" if faults == 1 else f"{faults:,} faults"
        parts.append(f"{several}, timing {settings.get('timing')}")
    return ", ".join(parts)


def _rule(settings: Mapping[str, Any]) -> str:
    name, text = parts_of_spec(settings.get("rule_spec") or settings["rule"])
    given = dict(pair.split("=", 1) for pair in (text or "").split(",") if "=" in pair)
    p, emission = given.pop("p", None), given.pop("emission", None)
    p = p if settings.get("p") is None else f"{settings['p']:g}"
    words = [f"{key} = {value}" for key, value in given.items()]
    if p is not None:
        per = "second" if "per-second" in (emission, settings.get("emission")) else "step"
        words.insert(0, f"p = {p} per {per}")
    # A summary has the rule's own name beside the spec.
    shown = settings["rule"] if settings.get("rule_spec") else name
    return f"{shown} with {', '.join(words)}" if words else str(shown)


def _shares(settings: Mapping[str, Any]) -> list[str]:
    """What is particular about the shares, if anything is."""
    parts = []
    if settings.get("wire", NATIVE) != NATIVE:
        parts.append(settings["wire"])
    if settings.get("shards", 1) > 1:
        per_push = settings.get("shards_per_push", 1)
        parts.append(f"{per_push} of {settings['shards']} shards a push")
    if settings.get("exact"):
        parts.append("exact")
    if settings.get("push_mbit") is not None:
        parts.append(f"at most {settings['push_mbit']:g} Mbit/s each")
    return parts
