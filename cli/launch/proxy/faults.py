"""Faults of a schedule as what is imposed on the network between real peers, and in words."""

from ....sim.kernel.faults import Fault
from .conditions import Condition
from .proxies import Proxies

__all__ = ["impose", "reset", "undone"]


def impose(fault: Fault, network: Proxies) -> tuple[list[Condition], str]:
    """Do a fault to the network.

    Args:
        fault: One that lasts, or ``heal``; peers by name.
        network: The proxies.

    Returns:
        What it imposed, and a sentence about it.
    """
    peer = _name(fault.peer)
    whose = "all messages" if peer is None else f"the messages to and from {peer}"
    match fault.kind:
        case "cut":
            assert peer is not None
            to, one_way = _name(fault.to), bool(fault.one_way)
            which = f"from {peer} to" if one_way else f"between {peer} and"
            cut = network.cut(peer, to, one_way=one_way)
            return [cut], f"nothing passes {which} {to or 'all others'}"
        case "partition":
            groups = [[str(name) for name in group] for group in fault.groups or ()]
            told = " and ".join(", ".join(group) for group in groups)
            return [network.partition(groups)], f"nothing passes between {told} and all others"
        case "heal":
            network.heal()
            return [], "all cuts and partitions end"
        case "loss":
            assert fault.rate is not None
            return [network.lose(fault.rate, peer)], f"{fault.rate:.0%} of {whose} are lost"
        case "duplicate":
            assert fault.rate is not None
            return [network.duplicate(fault.rate, peer)], f"{fault.rate:.0%} of {whose} come twice"
        case "delay":
            assert fault.by_s is not None
            return [network.delay(fault.by_s, peer)], f"{whose} come {fault.by_s:g} s later"
        case _:
            raise AssertionError(f"{fault.kind} is not done to the network")


def reset(fault: Fault, network: Proxies) -> int:
    """Reset the connections that a fault names, and say how many there were."""
    return network.reset(_name(fault.peer))


def undone(fault: Fault) -> str:
    """What to say when a fault is over."""
    match fault.kind:
        case "cut":
            return f"the cut of {fault.peer} ends"
        case "partition":
            return "the partition ends"
        case "heal":
            return "healed"
        case _:
            return f"the {fault.kind} ends"


def _name(peer: str | int | None) -> str | None:
    return None if peer is None else str(peer)
