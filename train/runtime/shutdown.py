"""The end of a peer's part in a swarm: merging with the others, or leaving them."""

import logging
import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ...gossip import RumorError
from ...gossip.protocol.protocol import Protocol
from ...gossip.weight import founders
from ...gossip.wire.messages import Member, Phase
from ..tensors.blocks import is_finite_tensor
from .runner import PeerRuntime

__all__ = ["MergeResult", "leave", "leave_or_warn", "merge", "nap_s"]

_log = logging.getLogger("rumor")

_POLL_S: Final = 0.05
_PACE_S_MAX: Final = 1.0
_MERGING_POLL_S: Final = 0.005

# A neighbor answers a leaving peer only after its own step.
_PATIENCE_S: Final = 3.0
_PATIENCE_STEPS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """Result of a merge, as far as the peer knows; true if the model is the average."""

    complete: bool
    """True if all live peers had finished, and every two of their models are within
    `ProtocolConfig.merge_tolerance` of each other, as measured."""
    unfinished: Mapping[str, int] = field(default_factory=dict)
    """Live peers that were still training when the call ended, with their last known optimizer
    steps."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """Members that died, with their steps; their progress since their last push is in no model.
    Members that left in good order handed over their weight, and are not missing."""
    distance: float | None = None
    """Largest distance between two peers' models at the last comparison: Euclidean, relative to the
    smaller norm. It is estimated to within a few percent, and exact for models of at most 128
    numbers. None without a comparison."""

    def __bool__(self) -> bool:
        return self.complete


def merge(
    runtime: PeerRuntime, timeout_s: float, pace_s: float, stop: threading.Event
) -> MergeResult:
    """Wait for the others to finish and agree with them, until *stop* is set at the latest.

    If that fails, a warning names the peers at fault. *pace_s* is the duration of the peer's steps.
    """
    runtime.call("finish")
    give_up_s = time.monotonic() + timeout_s
    while not runtime.look(lambda protocol: protocol.done) and time.monotonic() < give_up_s:
        merging = runtime.look(lambda protocol: protocol.merging)
        if stop.wait(nap_s(pace_s, merging=merging)):
            break
        runtime.step(trained=False, stop=stop)
    result, strays = runtime.look(_result), runtime.look(lambda protocol: protocol.strays)
    if not result and runtime.look(
        lambda p: len(p.table.live()) > 1 or p.agreement.distance is not None or strays
    ):
        own_steps = runtime.look(lambda protocol: protocol.table.step)
        _log.warning("merge ended without the average: %s", _why(result, own_steps, strays))
    elif result.missing:
        _log.info("the average is without %s", _steps(result.missing))
    return result


def nap_s(pace_s: float, *, merging: bool) -> float:
    """Return how long a finished peer waits before its next turn, seconds."""
    # Until all others are merging, too, it pushes as often as during training.
    return _MERGING_POLL_S if merging else min(max(pace_s, _MERGING_POLL_S), _PACE_S_MAX)


def _result(protocol: Protocol) -> MergeResult:
    distance = protocol.agreement.distance
    live, dead = protocol.table.live(), protocol.last_heard()[len(protocol.table.live()) - 1 :]
    return MergeResult(
        complete=protocol.done and protocol.agreement.reached and not protocol.strays,
        unfinished=_by_id([m for m in live if m.phase <= Phase.TRAINING]),
        missing=_by_id([m for m in dead if m.phase in _HELD]),
        distance=distance if distance is not None and math.isfinite(distance) else None,
    )


# The weight of a peer that dies in one of these phases is lost. A quiet peer had agreed.
_HELD: Final = (Phase.TRAINING, Phase.FINISHED, Phase.LEAVING)


def _by_id(members: list[Member]) -> Mapping[str, int]:
    return dict(sorted((member.id, member.step) for member in members))


def _why(result: MergeResult, own_steps: int, strays: Sequence[str]) -> str:
    words = []
    if strays:
        words.append(
            f"{', '.join(strays)} founded another swarm, with another initial model; make the same "
            "model everywhere, for example by torch.manual_seed(0)"
        )
    if result.unfinished:
        many = "are" if len(result.unfinished) > 1 else "is"
        words.append(
            f"{_steps(result.unfinished)} {many} not finished (this peer has taken {own_steps} "
            "steps); wait longer with timeout_s, or linger_s at the end of the block"
        )
    elif result.distance is None and not strays:
        words.append(
            "time ran out before the models were compared; wait longer with timeout_s or linger_s"
        )
    elif result.distance is not None and not (result.missing or strays):
        words.append(
            f"two models are {result.distance:.2g} of their norm apart; wait longer with timeout_s "
            "or linger_s, or allow more with merge_tolerance"
        )
    if result.missing:
        words.append(f"{_steps(result.missing)} died")
    return "; ".join(words)


def _steps(peers: Mapping[str, int]) -> str:
    return ", ".join(f"{peer} (step {step})" for peer, step in peers.items())


def leave(runtime: PeerRuntime, timeout_s: float, pace_s: float) -> None:
    """Hand over the weight and leave, or destroy it if a value is not finite; log what remains.

    *pace_s* is the duration of a step of this peer, and probably of others, seconds.
    """
    runtime.call("leave", burn=not all(map(is_finite_tensor, runtime.vector.flats)))
    # Waiting longer is pointless while no quantum or frame moves and no possible receiver is heard.
    patience_s = max(_PATIENCE_S, _PATIENCE_STEPS * pace_s)
    now = moved_s = time.monotonic()
    give_up_s, before = now + timeout_s, _position(runtime)
    while not runtime.look(lambda protocol: protocol.done):
        looked_s = now
        time.sleep(_POLL_S)
        runtime.require_sound()
        now, position = time.monotonic(), _position(runtime)
        heard = partial(Protocol.is_worth_waiting, since_s=looked_s)
        # On a slow link, a share may be in flight long after its last frame was handed over.
        if position != before or runtime.look(heard):
            moved_s, before = now, position
        if now >= give_up_s or now - moved_s >= patience_s:
            _log.warning("left although %s", runtime.look(_left_over))
            break
    # Others may still query the outcome of refused shares.
    time.sleep(_POLL_S)


def leave_or_warn(runtime: PeerRuntime, timeout_s: float, pace_s: float) -> None:
    """Leave, see `leave`, and log a failure, which follows from another one or ends nothing."""
    try:
        leave(runtime, timeout_s, pace_s)
    except RumorError as failure:
        _log.warning("could not leave in good order: %s", failure)


def _position(runtime: PeerRuntime) -> tuple[int, ...]:
    return *runtime.look(_weight), runtime.counters.frames


def _weight(protocol: Protocol) -> tuple[int, int, int]:
    """Return the weight held, the weight in escrow, and the number of escrows."""
    accounts = protocol.accounts
    escrows = [each.escrow for account in accounts for each in account.outstanding.values()]
    return sum(account.weight for account in accounts), sum(escrows), len(escrows)


def _left_over(protocol: Protocol) -> str:
    held, on_its_way, _ = _weight(protocol)
    shards = len(protocol.accounts)
    silent = sorted({peer for a in protocol.accounts for peer, _ in a.outstanding})
    words = [f"a weight of {founders(held) / shards:.4g} found no peer to take it"] if held else []
    if on_its_way:
        words.append(
            f"{', '.join(silent)} did not say what became of a weight of "
            f"{founders(on_its_way) / shards:.4g}"
        )
    return " and ".join(words) or "others may still have questions"
