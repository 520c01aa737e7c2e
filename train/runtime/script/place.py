"""The place of a peer in a list of addresses that all peers of a swarm are given.

With the same list on every machine, no machine is special: each peer listens at the listed address
that is its machine's, and dials the others. The first peers that meet found the swarm.
"""

import logging
import os
import socket
from dataclasses import replace
from typing import Final

from ....gossip.protocol.rule import requirements_of
from ....gossip.transport.addresses import (
    PORT_MAX,
    is_loopback,
    is_name_of_many,
    is_own,
    join_address,
    split_address,
)
from ...config import PeerConfig
from .cluster import bind_at

__all__ = ["take_place"]

# Peers per machine beyond those listed.
_FURTHER_MAX: Final = 64

_log = logging.getLogger("rumor")

_claimed: Final[set[int]] = set()


def take_place(config: PeerConfig) -> PeerConfig:
    """Return the settings of a peer that listens at a listed address of its machine.

    If another process has that address, the peer takes the next one of its machine in the list, and
    then, unless it is a loopback address, the ports that follow. Nothing changes if ``bind`` is
    given, or no listed address is this machine's.
    """
    if config.is_given("bind") or config.rendezvous is not None:
        return config
    listed = [each for each in config.join if not is_name_of_many(each)]
    # Behind a router that forwards the port, the listed address is not one of this machine's.
    own = [each for each in listed if each in config.advertise or is_own(split_address(each)[0])]
    # A single address on this machine is that of a founder, which may start later.
    if not own or (len(config.join) == 1 and is_loopback(own[0])):
        return config
    host, first = split_address(own[0])
    if not (config.advertise or is_loopback(own[0])):
        ports = range(int(first) + 1, min(int(first) + _FURTHER_MAX, PORT_MAX) + 1)
        own += [join_address(host, str(port)) for port in ports]
    for address in own:
        host, port = split_address(address)
        if not _is_claimed(int(port)) or (bind := bind_at(host, int(port))).endswith("*"):
            continue
        if address not in listed:
            _log.warning("port %s is in use, perhaps by a peer: this one takes %s", first, port)
        founders = config.founders
        if requirements_of(config.make_rule()).fixed_members and founders == 1:
            founders = len(listed)  # such a rule admits no newcomer
        advertise = config.advertise or address
        return replace(config, bind=bind, advertise=advertise, founders=founders)
    return config


def _is_claimed(port: int) -> bool:
    """Claim a port for this process, so that processes that start together take different ones."""
    # The UDP port of the same number: nothing else needs it, and it ends with the process.
    if port not in _claimed:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as claim:
            try:
                claim.bind(("127.0.0.1", port))
            except OSError:
                return False
            # It stays open, also in the script that `rumor run` becomes.
            os.set_inheritable(claim.detach(), True)
        _claimed.add(port)
    return True
