"""How a peer's part in a swarm comes to its end: merging with the others, or leaving them."""

import logging
import time
from functools import partial
from typing import Final

from ..gossip import Protocol
from ..gossip.weight import founders
from .driver import Driver
from .inputs import Finish, Leave
from .tally import Tally

__all__ = ["leave", "merge"]

_log = logging.getLogger("rumor")

_POLL_S: Final = 0.05
_PACE_S_MAX: Final = 1.0
_MERGING_POLL_S: Final = 0.005


def merge(driver: Driver, timeout_s: float, pace_s: float) -> bool:
    """Take no more steps, wait for the others to finish, and agree with them.

    Args:
        driver: Runs the peer.
        timeout_s: How long that may take, seconds.
        pace_s: What a step took the peer: until the others are done, it pushes as often as it did
            while it trained.

    Returns:
        Whether all live peers had finished.
    """
    driver.call(Finish())
    give_up_s = time.monotonic() + timeout_s
    while not driver.look(lambda protocol: protocol.done) and time.monotonic() < give_up_s:
        merging = driver.look(lambda protocol: protocol.merging)
        nap_s = _MERGING_POLL_S if merging else max(pace_s, _MERGING_POLL_S)
        time.sleep(min(nap_s, _PACE_S_MAX))
        driver.step(trained=False)
    driver.settle()
    return driver.look(lambda protocol: protocol.done)


def leave(driver: Driver, tally: Tally, timeout_s: float, patience_s: float, *, burn: bool) -> None:
    """Hand the weight on and go; says what could not be handed on.

    Args:
        driver: Runs the peer.
        tally: Counts what it sends.
        timeout_s: How long that may take, seconds.
        patience_s: How long to wait while nothing moves, neither a unit nor a frame of a share, and
            nobody is heard who could still take something.
        burn: Destroy the weight, because the values are of no use.
    """
    driver.call(Leave(burn))
    now = moved_s = time.monotonic()
    give_up_s, before = now + timeout_s, _position(driver, tally)
    while not driver.look(lambda protocol: protocol.done):
        looked_s = now
        time.sleep(_POLL_S)
        now, position = time.monotonic(), _position(driver, tally)
        heard = partial(Protocol.is_worth_waiting, since_s=looked_s)
        # On a slow link a share may be on its way for long after its last frame was handed over.
        if position != before or driver.look(heard):
            moved_s, before = now, position
        if now >= give_up_s or now - moved_s >= patience_s:
            _log.warning("left although %s", driver.look(_left_over))
            break
    # Others may still ask what became of the shares that were refused.
    time.sleep(_POLL_S)


def _position(driver: Driver, tally: Tally) -> tuple[int, ...]:
    units = driver.look(_units)
    return *units, tally.frames


def _units(protocol: Protocol) -> tuple[int, int, int]:
    """Units held, units in escrow, and how many escrows there are."""
    accounts = protocol.accounts
    escrows = [each.escrow for account in accounts for each in account.outstanding.values()]
    return sum(account.weight for account in accounts), sum(escrows), len(escrows)


def _left_over(protocol: Protocol) -> str:
    held, on_its_way, _ = _units(protocol)
    shards = len(protocol.accounts)
    silent = sorted({peer for a in protocol.accounts for peer, _ in a.outstanding})
    words = [f"a weight of {founders(held) / shards:.4g} found nobody to take it"] if held else []
    if on_its_way:
        words.append(
            f"{', '.join(silent)} did not say what became of a weight of "
            f"{founders(on_its_way) / shards:.4g}"
        )
    return " and ".join(words) or "others may still have questions"
