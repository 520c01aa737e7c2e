"""Mutants: known bugs, planted into the protocol to see whether a campaign finds them.

Each changes a single protocol object, as if its code had been written wrong. Both concern what such
protocols get wrong most easily: what has been decided already, and what may still come.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ....gossip import PeerId, Protocol
from ....gossip.protocol.state import ShardState
from ....gossip.types import Incarnation, ShareId
from ....gossip.wire.messages import Ack, Offer
from ..trial import Mutant

__all__ = ["MUTANTS"]

_Life = tuple[PeerId, Incarnation]


class _Forgetful(dict[_Life, tuple[int, int]]):
    """What was decided, which can be forgotten for a moment."""

    blind = False

    def get(self, key: _Life, default: Any = None, /) -> Any:
        return default if self.blind else super().get(key, default)

    def blindly(self, act: Callable[..., None], *arguments: Any) -> None:
        self.blind = True
        try:
            act(*arguments)
        finally:
            self.blind = False


def _without_deduplication(protocol: Protocol) -> None:
    """A share that comes again after its decision is decided again."""
    for shard_state in protocol._state.shard_states:
        _decide_again(shard_state)


def _decide_again(shard_state: ShardState) -> None:
    account = shard_state.log.account
    decided = account.decided = _Forgetful(account.decided)

    def forgetting(take: Callable[..., None]) -> Callable[..., None]:
        def taken(share: ShareId, message: Offer, *rest: Any) -> None:
            if share.seq <= _last(shard_state, share):
                decided.blindly(take, share, message, *rest)
            else:
                take(share, message, *rest)

        return taken

    record = shard_state.log.record
    _replace(shard_state.log, "record", lambda entry: decided.blindly(record, entry))
    _replace(shard_state.inbox, "push", forgetting(shard_state.inbox.push))
    _replace(shard_state.inbox, "offer", forgetting(shard_state.inbox.offer))


def _without_fence(protocol: Protocol) -> None:
    """A question about a share that never came is answered, and the share is let in later."""
    for shard_state in protocol._state.shard_states:
        _answer_only(shard_state)


def _answer_only(shard_state: ShardState) -> None:
    query = shard_state.inbox.query

    def answer(share: ShareId, now: float) -> None:
        if share.seq > _last(shard_state, share) and shard_state.inbox._find(share) is None:
            shard_state.log.send(share.sender, share.incarnation, Ack(share.seq, 0))
        else:
            query(share, now)

    _replace(shard_state.inbox, "query", answer)


def _last(shard_state: ShardState, share: ShareId) -> int:
    """Number of the last share of a sender that was decided."""
    return shard_state.log.account.decided.get((share.sender, share.incarnation), (0, 0))[0]


def _replace(owner: object, name: str, method: Callable[..., None]) -> None:
    setattr(owner, name, method)


MUTANTS: Mapping[str, Mutant] = MappingProxyType(
    {"no-deduplication": _without_deduplication, "lost-fence": _without_fence}
)
"""By the name that people type."""
