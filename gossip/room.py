"""Room for newcomers in a view that is full of names.

Every name that ever was a member is kept, to be dialled again, and machines that are rented come
and go under ever new ones. When there is room for no more, those are forgotten of whom least is to
be hoped: who fell silent before it was a member, then whoever has been silent for longest. Never
one that lives, nor one with which weight is still to be settled.
"""

from collections import deque

from .effects import Part
from .events import ViewFull
from .messages import Member, PeerId
from .state import State

__all__ = ["Room"]


class Room:
    """Lets go of the dead where a newcomer would find no place.

    Args:
        state: What the protocol remembers.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        # Who may go, in order; None where that is to be looked up. A stranger can name thousands
        # in one message, and sorting all that are known for each would keep this peer busy.
        self._spare: deque[PeerId] | None = None
        self._said = False

    def tick(self) -> None:
        """Note that time has passed, so that others may go now; once per gossip interval."""
        self._spare = None

    def make(self, member: Member, now: float) -> PeerId | None:
        """Forget somebody, where *member* is new and finds no place.

        Returns:
            Who was forgotten.
        """
        roster = self._state.roster
        if not roster.lacks_room_for(member, now):
            return None
        if self._spare is None:
            self._spare = deque(roster.spare())
        while self._spare:
            peer = self._spare.popleft()
            # It may be back, or gone, since that was looked up.
            if roster.is_known(peer) and not roster.is_alive(peer) and not self._is_owed(peer):
                roster.disown(peer)
                self._state.agenda.ask(Part(peer))
                return peer
        if not self._said:
            self._said = True
            self._state.agenda.ask(ViewFull(len(roster)))
        return None

    def _is_owed(self, peer: PeerId) -> bool:
        return any([lane.outbox.is_busy(peer) for lane in self._state.lanes])
