"""Where this machine is on its network."""

import socket as sockets

__all__ = ["local_host"]


def local_host(toward: str | None = None) -> str:
    """This machine's address on the network.

    Args:
        toward: A host: the address is that of the interface which leads to it. The interface of
            the default route unless given.

    Returns:
        An IPv4 address; an IPv6 one toward a host that is given by such a one; or the machine's
        name where it has no route.
    """
    family = sockets.AF_INET6 if ":" in (toward or "") else sockets.AF_INET
    with sockets.socket(family, sockets.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing; it only looks the route up.
            probe.connect((toward or "192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except (OSError, UnicodeError):  # the latter for a name that can be none
            return sockets.gethostname()
