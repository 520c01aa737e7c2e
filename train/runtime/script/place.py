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
    then, unless it is a loopback address, the ports that follow. With a rule whose members are
    fixed, all that are listed found together. Nothing changes if ``bind`` is given, or no listed
    address is this machine's: such a peer only dials out.
    """
    if config.is_given("bind") or config.rendezvous is not None:
        return config
    listed = [address for address in config.join if not is_name_of_many(address)]
    hosts = {host: is_own(host) for host in {split_address(each)[0] for each in listed}}
    own = [split_address(each) for each in listed if hosts[split_address(each)[0]]]
    # Behind a router that forwards the port, no address of the list is one of this machine's.
    own += [split_address(each) for each in config.advertise if each in listed]
    # A single address on this machine is that of a founder, which may start later.
    if not own or (len(config.join) == 1 and is_loopback(listed[0])):
        return config
    host, first = own[0]
    is_fixed = bool(config.advertise) or is_loopback(join_address(host, first))
    last = int(first) if is_fixed else min(int(first) + _FURTHER_MAX, PORT_MAX)
    further = [(host, str(port)) for port in range(int(first) + 1, last + 1)]
    for host, port in (*own, *further):
        if _is_claimed(int(port)) and not (bind := bind_at(host, int(port))).endswith("*"):
            if (host, port) not in own:
                text = "port %s is in use here, perhaps by another peer: this one takes %s"
                _log.warning(text, first, port)
            advertise = config.advertise or join_address(host, port)
            founders = config.founders
            if requirements_of(config.make_rule()).fixed_members and founders == 1:
                founders = len(listed)  # such a rule admits no newcomer
            return replace(config, bind=bind, advertise=advertise, founders=founders)
    return config


def _is_claimed(port: int) -> bool:
    """Claim a port for this process, so that processes that start together take different ones.

    The claim is the UDP port of the same number: nothing else needs it, and it ends with the
    process.
    """
    if port in _claimed:
        return True
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as claim:
        try:
            claim.bind(("127.0.0.1", port))
        except OSError:
            return False
        # It stays open, also in the script that `rumor run` becomes.
        os.set_inheritable(claim.detach(), True)
    _claimed.add(port)
    return True
