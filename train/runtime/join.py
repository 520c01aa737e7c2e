"""How a peer's part in a swarm begins: with a life that others believe, and that finds them."""

import logging
import threading
from typing import Final

from ...gossip import RumorError, TransportError
from ...gossip.wire.messages import later_life
from . import shutdown as ending
from .peer_folder import PeerFolder
from .search import StaleIncarnationError
from .session import Made, PeerSession

__all__ = ["begin"]

_log = logging.getLogger("rumor")

# So many lives of itself a peer outdoes before it says that something is wrong.
_LIVES_MAX: Final = 8


def begin(made: Made, memory: PeerFolder, stop: threading.Event) -> PeerSession:
    """Found or join; where others know a later life of this peer, as a still later one.

    Args:
        made: The peer.
        memory: What it kept of its former lives.
        stop: When set, the search is given up.

    Returns:
        The life that is a member now.

    Raises:
        ConfigError: As `PeerSession` does.
        TransportError: No swarm was found in time, or before *stop* was set; what weight had come
            by then was handed on.
        IncompatiblePeer: The swarm trains another model; the first difference is named.
        TrainingError: The ledger cannot be written.
    """
    incarnation = memory.next_incarnation(made.id)
    for _ in range(_LIVES_MAX):
        life = PeerSession(made, incarnation, memory.past, memory.seeds)
        try:
            life.search.run(stop)
            memory.entered()
            return life
        except StaleIncarnationError as later:
            life.close()
            _log.warning("%s; beginning anew, as a later life", later)
            incarnation = later_life(later.incarnation, incarnation)
        except BaseException:
            try:
                _hand_on(life, made)
            finally:
                life.close()
            raise
    raise TransportError(
        f"others know ever later lives of {made.id}: is another peer called so, too?"
    )


def _hand_on(life: PeerSession, made: Made) -> None:
    """Give away what came of a copy that was never whole: shards arrive one by one."""
    driver = life.driver
    if not (driver.is_sound and driver.look(lambda protocol: protocol.weight)):
        return
    try:
        ending.leave(driver, made.tally, made.config.leave_s, 0.0, made.vector)
    except RumorError as failure:
        _log.warning("could not leave in good order: %s", failure)
