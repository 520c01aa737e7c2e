"""``rumor stop``: end a whole swarm, from any member's address."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from ...gossip.errors import ConfigError, TransportError
from ...gossip.specs.parameter import setting
from ...train.config import TrustSettings
from ..errors import FAILED
from ..reports.console import print_json
from ..settings.options import Json, Members, Source, config_of, options_of

if TYPE_CHECKING:
    from ...train.observe.stop import SwarmStop

__all__ = ["StopConfig", "stop"]

_AGAIN = (
    "Start it again from its checkpoints with the same `rumor peer --resume --out DIR` for each "
    "peer, or the same `rumor launch --resume --out DIR`."
)
_WAITED = (
    "They waited for one another, so that they have left and not merged: `rumor merge` averages "
    "what is in their folders."
)


@dataclass(frozen=True, kw_only=True)
class StopConfig(TrustSettings):
    """How a swarm is stopped."""

    wait_s: float = setting(
        60.0, "How long to wait for the end of all peers.", above=0, high=86_400
    )


@options_of(Source(StopConfig))
def stop(addresses: Members, *, as_json: Json = False, **settings: Any) -> None:
    """End a whole swarm in good order, by any member's address.

    All peers finish their step, merge, write checkpoints and exit. A member that is reached passes
    the request on, so that one reachable member is enough. The request names the peers that run
    now: it does not stop a peer that is started later. Under rules whose peers wait for one
    another, peers leave as if by Ctrl-C, and do not merge.

    If the swarm has keys, --key must be that of the roster's owner: peers refuse all others.

    Exit status: 0 if all have ended; 1 if a peer has not ended in time, was lost or refused; 2 for
    wrong arguments.
    """
    config = config_of(StopConfig, settings)
    from ...gossip.transport.keys.keyring import read_keyring
    from ...train.observe.observer import Observer
    from ...train.observe.stop import SwarmStop

    keyring = read_keyring(config.key, config.roster)
    if keyring is not None and keyring.own.signs != keyring.roster.signs:
        raise ConfigError(
            f"{config.key} is not the key of the owner of {config.roster}: no peer obeys"
        )
    with Observer(addresses, keyring=keyring) as observer:
        try:
            request = SwarmStop(observer, keyring=keyring)
        except TransportError as error:
            raise TransportError(f"{error}; `rumor doctor {addresses[0]}` says more") from None
        _follow(request, config.wait_s)
        if as_json:
            print_json(_as_json(request))
        else:
            _print(request)
        if not request.is_clean:
            raise typer.Exit(FAILED)


def _follow(request: "SwarmStop", timeout_s: float) -> None:
    number, swarm = len(request.peers), request.swarm[:8]
    print(f"asking {number} peers of swarm {swarm} to stop", file=sys.stderr, flush=True)
    said: dict[str, str] = {}
    for peers in request.run(timeout_s):
        for peer in peers.values():
            if said.get(peer.id) != peer.end and (peer.id in said or peer.end != "asked"):
                over = f"{sum(each.is_over for each in peers.values())} of {len(peers)} over"
                told = f"{peer.id}: {peer.end} after {peer.step} steps ({over})"
                print(told, file=sys.stderr, flush=True)
            said[peer.id] = peer.end


def _print(request: "SwarmStop") -> None:
    from ...gossip.weight import founders

    peers = list(request.peers.values())
    for peer in peers:
        why = f": {peer.why}" if peer.why else ""
        weight = ", its weight is unknown"
        if peer.weight is not None:
            weight = f", with a weight of {founders(peer.weight) / request.shards:.4f}"
        print(f"{peer.id}: {peer.end} after {peer.step} steps{weight}{why}")
    print(f"{sum(peer.end == 'gone' for peer in peers)} of {len(peers)} peers have ended.")
    if request.is_clean:
        # A peer that merges keeps its weight.
        print(_WAITED if all(peer.weight == 0 for peer in peers) else _AGAIN)


def _as_json(request: "SwarmStop") -> dict[str, Any]:
    from ...gossip.weight import in_units

    return {
        "swarm": request.swarm,
        "stopped": request.is_clean,
        "peers": [
            {
                "id": peer.id,
                "incarnation": peer.incarnation,
                "state": peer.end,
                "steps": peer.step,
                "weight_units": None if peer.weight is None else in_units(peer.weight),
                "why": peer.why,
            }
            for peer in request.peers.values()
        ],
    }
