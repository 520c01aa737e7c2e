"""Which address a peer tells others to dial."""

import logging

from ..gossip.address import is_loopback, is_wildcard, split_address
from ..gossip.transport import local_host
from .config import PeerConfig

__all__ = ["advertised"]

_log = logging.getLogger("rumor")


def advertised(config: PeerConfig, bound: str | None) -> tuple[str, ...]:
    """Addresses to advertise for a peer that listens at *bound*; none if it only dials out.

    Warns where strangers can reach the peer, because messages are not encrypted or authenticated.
    """
    if bound is not None and not is_loopback(bound):
        _log.warning(
            "listening at %s without keys: anybody who reaches this port can take part. "
            "Use it in a network you trust.",
            bound,
        )
    if config.advertise is not None:
        return (config.advertise,)
    if bound is None:
        return ()
    remote = [address for address in config.join if not is_loopback(address)]
    if is_loopback(bound) and remote:
        _log.info("only dialling out: other machines cannot reach %s; see `bind`", bound)
        return ()
    if is_wildcard(bound):
        toward = split_address(remote[0])[0] if remote else None
        return (f"tcp://{local_host(toward)}:{split_address(bound)[1]}",)
    return (bound,)
