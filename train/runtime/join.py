"""Joining a swarm, with an incarnation that its members accept."""

import logging
import threading
from typing import Final

from ...gossip import RumorError, TransportError
from ...gossip.wire.messages import later_life
from . import shutdown
from .peer_folder import PeerFolder
from .search import StaleIncarnationError
from .session import Made, PeerSession

__all__ = ["begin"]

_log = logging.getLogger("rumor")

# After so many later incarnations of its own name, a peer reports that something is wrong.
_INCARNATIONS_MAX: Final = 8


def begin(made: Made, folder: PeerFolder, stop: threading.Event) -> PeerSession:
    """Found or join; where others know a later incarnation of this peer, as a still later one.

    Args:
        made: The peer.
        folder: What it kept of its earlier incarnations.
        stop: When set, the search is given up.

    Returns:
        The session that is a member now.

    Raises:
        ConfigError: As `PeerSession` does.
        TransportError: No swarm was found in time, or before *stop* was set; what weight had come
            by then was handed on.
        IncompatiblePeer: The swarm trains another model; the first difference is named.
        TrainingError: The ledger cannot be written, or the donor's extra state did not fit.
    """
    incarnation = folder.next_incarnation(made.id)
    for _ in range(_INCARNATIONS_MAX):
        session = PeerSession(made, incarnation, folder.past, folder.seeds)
        try:
            session.search.run(stop)
            # What the network thread mixed until now is done before what training does next.
            made.vector.follow()
            if made.vector.extra_state is not None:
                made.vector.extra_state.unpack()
            folder.entered()
            return session
        except StaleIncarnationError as later:
            session.close()
            _log.warning("%s; beginning anew, as a later incarnation", later)
            incarnation = later_life(later.incarnation, incarnation)
        except BaseException:
            try:
                _hand_on(session, made)
            finally:
                session.close()
            raise
    raise TransportError(
        f"others know ever later incarnations of {made.id}: is another peer called so, too?"
    )


def _hand_on(session: PeerSession, made: Made) -> None:
    """Hand on the shards that arrived of an incomplete copy: they arrive one by one."""
    runtime = session.runtime
    if not (runtime.is_sound and runtime.look(lambda protocol: protocol.weight)):
        return
    try:
        shutdown.leave(runtime, made.counters, made.config.leave_s, 0.0, made.vector)
    except RumorError as failure:
        _log.warning("could not leave in good order: %s", failure)
