"""Which addresses a peer tells others to dial."""

import logging
from collections.abc import Sequence

from ..gossip.address import is_loopback, is_wildcard, split_address
from ..gossip.transport import local_host
from .config import PeerConfig

__all__ = ["advertised"]

_log = logging.getLogger("rumor")


def advertised(config: PeerConfig, bound: Sequence[str]) -> tuple[str, ...]:
    """Addresses to advertise for a peer that listens at *bound*; none if it only dials out.

    Warns where strangers can reach the peer, because messages are not encrypted or authenticated.
    """
    open_ones = [address for address in bound if not is_loopback(address)]
    if open_ones:
        _log.warning(
            "listening at %s without keys: anybody who reaches this port can take part. "
            "Use it in a network you trust.",
            ", ".join(open_ones),
        )
    if config.advertise:
        return config.advertise
    remote = [address for address in config.join if not is_loopback(address)]
    if bound and not open_ones and remote:
        _log.info("only dialling out: other machines cannot reach %s; see `bind`", ", ".join(bound))
        return ()
    toward = split_address(remote[0])[0] if remote else None
    # Another machine that dials a loopback address finds itself.
    found = (_dialable(address, toward) for address in open_ones or bound)
    return tuple(dict.fromkeys(found))


def _dialable(address: str, toward: str | None) -> str:
    if not is_wildcard(address):
        return address
    host = local_host(toward)
    return f"tcp://{f'[{host}]' if ':' in host else host}:{split_address(address)[1]}"
