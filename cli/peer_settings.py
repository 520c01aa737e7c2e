"""What was typed for ``rumor peer``, as settings; kept in its folder for the next life."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..gossip.errors import ConfigError
from ..gossip.rules import make_rule
from .exchange import ExchangeConfig

if TYPE_CHECKING:
    from ..train.config import PeerConfig
    from ..train.run import RunConfig

__all__ = ["kept_options", "make_settings", "resumed_options"]

# The same file as `train.run.OPTIONS`, which takes a second to import.
_FILE: Final = "options.json"

# They are of one call.
_NOT_KEPT: Final = ("resume", "out", "as_json", "debug")

# With another of these it would not be the same peer, training the same model on the same data.
_FIXED: Final = ("task", "seed", "partition", "index", "count", "batch_size", "id", "shards")

# Options that are called as the fields of the settings are.
_OF_PEER: Final = (
    *("id", "rendezvous", "founders", "topology", "seed", "linger_s", "leave_s"),
    *("join_timeout_s", "out", "socks_proxy"),
)
_OF_RUN: Final = (
    *("task", "steps", "total_steps", "lr", "lr_schedule", "batch_size", "partition", "index"),
    *("count", "seed", "device", "out", "log_every", "eval_every", "step_s_min", "journal"),
    *("prefetch", "checkpoint_every"),
)
_EXCHANGE: Final = (
    *("wire", "shards", "shards_per_push", "shard_order", "exact", "bandwidth"),
    *("mixing", "mix_budget_ms", "no_shared_memory", "timing"),
)


def make_settings(options: Mapping[str, Any]) -> "tuple[RunConfig, PeerConfig]":
    """Make the settings of a peer from its options.

    Args:
        options: By the name of the parameter.

    Raises:
        ConfigError: One is out of range.
    """
    if options["journal"] and options["out"] is None:
        raise ConfigError("--journal needs --out: name a folder for it")
    rule = make_rule(options["rule"], options["p"], options["emission"])
    exchange = ExchangeConfig(**{name: options[name] for name in _EXCHANGE})
    # torch takes a second to import: a typo is answered before.
    from ..train.config import PeerConfig
    from ..train.run import RunConfig

    peer_config = PeerConfig(
        **{name: options[name] for name in _OF_PEER},
        **exchange.settings(),
        bind=_binds(options),
        advertise=tuple(options["advertise"] or ()),
        join=tuple(options["join"] or ()),
        rule=rule,
    )
    run_config = RunConfig(
        **{name: options[name] for name in _OF_RUN},
        resume=options["resume"] is not None,
        options=kept_options(options),
    )
    return run_config, peer_config


def kept_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """What of them the next life needs, as values that JSON has."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in options.items()
        if name not in _NOT_KEPT
    }


def resumed_options(options: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """The options of a peer that resumes: those that it had, and those that are changed now.

    Args:
        options: As typed now, defaults included; ``resume`` is the peer's folder.
        given: Names of those that were typed.

    Raises:
        ConfigError: There is no such peer, or something was typed that it cannot go on with; the
            option is named.
    """
    folder: Path = options["resume"]
    try:
        kept = json.loads((folder / _FILE).read_text())
        if not isinstance(kept, dict):
            raise ValueError("not the options of a peer")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{folder} is not the folder of a peer that can be resumed: {folder / _FILE}: {reason}"
        ) from None
    for name in _FIXED:
        if name in given and options[name] != kept.get(name):
            raise ConfigError(
                f"{_typed(name)} is {options[name]}, and was {kept.get(name)} in {folder}: a peer "
                "that resumes goes on with the same"
            )
    if options["out"] not in (None, folder):
        raise ConfigError(f"--out is {options['out']}: a peer that resumes goes on in {folder}")
    # The journal of a former life stays as it is.
    whole = dict(options) | kept | {"journal": False} | {name: options[name] for name in given}
    if "bind" in given and "dial_only" not in given:
        whole["dial_only"] = False
    if isinstance(whole["rendezvous"], str):
        whole["rendezvous"] = Path(whole["rendezvous"])
    return whole | {"out": folder}


def _binds(options: Mapping[str, Any]) -> str | tuple[str, ...] | None:
    if options["dial_only"]:
        return None
    return tuple(options["bind"]) if options["bind"] else "tcp://127.0.0.1:*"


def _typed(name: str) -> str:
    return "--" + name.replace("_", "-")
