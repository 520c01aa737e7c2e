"""Applies protocols' effects in a fleet: as operations of a program and as deliveries."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...gossip.effects import effects as fx
from ...gossip.effects.events import Event, PushSkipped, ShareMixed
from ...gossip.effects.ledger import Entry, Kind
from ...gossip.errors import LocalProtocolError
from ...gossip.types import SharePart
from ...gossip.wire.messages import Envelope
from .plan import Measuring
from .program import Cut, Slot
from .worker import Handler, Payload, Worker

if TYPE_CHECKING:
    from .fleet import Fleet

__all__ = ["EffectExecutor", "SegmentHolders"]

# Looked up once: an enum member's attribute lookup takes 50 ns.
_PUSHED, _SETTLED = Kind.PUSHED, Kind.SETTLED


class EffectExecutor:
    """Applies the effects of a fleet's protocols without touching a value.

    Args:
        more: Handlers of further effects; effects without a handler are only for people to read.
    """

    def __init__(
        self,
        fleet: "Fleet",
        measure: Measuring | None,
        send: Callable[[Worker, Envelope, Payload], None],
        more: Mapping[type, Handler],
    ) -> None:
        self.waits = False
        """True if a rule has asked to wait since this was last cleared."""
        self.halted: str | None = None
        """Why a rule cannot continue, if one has reported that since this was last cleared."""
        self._fleet = fleet
        self._program = program = fleet.program
        self._traffic = fleet.traffic
        self._measure_values = measure
        self._send = send
        self._handlers: dict[type, Handler] = {
            fx.Snapshot: self._snapshot,
            fx.Release: lambda w, e, _: program.let_go(w.snapshots.pop(e.snapshot)),
            fx.Attach: self._attach,
            fx.Inspect: self._inspect,
            fx.Measure: self._measure,
            fx.Mix: self._mix,
            fx.Combine: self._combine,
            fx.Exchange: self._exchange,
            fx.Drop: self._drop,
            **more,
        }
        self._harness, self._observer = fleet.harness, fleet.observer
        self._stage = _stage if self._harness is None else self._harness.stage
        self._segments: dict[tuple[bytes, str], Slot] = {}
        self._holders = SegmentHolders()

    def apply(
        self,
        worker: Worker,
        effects: Sequence[fx.Effect | Event],
        now: float,
        cause: object = None,
        payload: Payload = None,
    ) -> None:
        """Apply effects in order; drop those of a process that has ended.

        Args:
            now: Time on the worker's clock, seconds.
            cause: A message or a word for the event; None if they follow from another effect.
            payload: Payload of that message.
        """
        if not worker.running:
            return
        harness = crash_point = after = None
        if cause is not None:
            harness, crash_point = self._harness, worker.crash_point
            if harness is not None:
                harness.decided(worker, cause)
            after = None if crash_point is None else crash_point.after
        handlers, traffic, observer = self._handlers, self._traffic, self._observer
        for effect in effects if after is None else effects[:after]:
            handler = handlers.get(type(effect))
            if handler is not None:
                handler(worker, effect, now)
            # The most frequent effect is handled without a call.
            elif type(effect) is Entry:
                if effect.kind is _PUSHED:
                    worker.pushes += 1
                    traffic.pushes += 1
                elif effect.kind is _SETTLED and effect.weight == 0:
                    traffic.refusals += 1
                if worker.crash_point is not None:
                    worker.crash_point.ledger[effect.shard].apply(effect)
            elif type(effect) is fx.Send:
                envelope, sent = effect.envelope, None
                if effect.snapshot is not None and envelope.frame_bytes:
                    sent = worker.snapshots.get(effect.snapshot)
                    if sent is None:
                        # The network refused an earlier part, and the share came back.
                        continue
                self._send(worker, envelope, sent)
            elif type(effect) is fx.Stage:
                self._stage(worker, effect, payload)
            elif type(effect) is ShareMixed:
                worker.mixed += 1
                traffic.mixed += 1
                traffic.staleness_steps += effect.staleness_steps
            elif type(effect) is PushSkipped:
                traffic.skipped += 1
            elif type(effect) is fx.Wait:
                self.waits = True
            elif type(effect) is fx.EndTraining:
                worker.finishing = True
            elif type(effect) is fx.Halt:
                self.halted = effect.reason
            if observer is not None:
                observer.carried(worker, effect)
            if (harness is not None or crash_point is not None) and not worker.running:
                return
            if (
                crash_point is not None
                and after is None
                and type(effect) is Entry
                and effect.kind is Kind.ACCEPTED
                and effect.weight > 0
            ):
                self._crash(worker)
                return
        if effects and after is not None:
            self._crash(worker)
        elif harness is not None:
            harness.done(worker)

    def _crash(self, worker: Worker) -> None:
        assert self._fleet.faults is not None
        self._fleet.faults.crash(worker)

    def _snapshot(self, worker: Worker, effect: fx.Snapshot, now: float) -> None:
        cut = Cut(effect.register, effect.form, effect.shard)
        slot = self._program.snapshot(worker.index, cut, effect.id)
        worker.snapshots[effect.id] = slot

    def _attach(self, worker: Worker, effect: fx.Attach, now: float) -> None:
        # Each worker is its own host: no memory is shared.
        effects = worker.protocol.attached(effect.share, now, usable=False)
        self.apply(worker, effects, now)

    def _inspect(self, worker: Worker, effect: fx.Inspect, now: float) -> None:
        # Values are checked for finiteness afterwards, in bulk: a value that is not becomes a
        # stop of its worker, and the run restarts with it. For a forged share it is known here.
        finite = worker.shares[effect.share].is_finite
        effects = worker.protocol.inspected(effect.share, now, finite=finite)
        if effects:
            self.apply(worker, effects, now)

    def _measure(self, worker: Worker, effect: fx.Measure, now: float) -> None:
        if self._harness is not None:
            distances = self._harness.measure(worker, effect)
        elif self._measure_values is None:
            raise LocalProtocolError("values are computed later: requirements.measures is not set")
        else:
            slots = {s: worker.shares[s].number for s in effect.shares if s in worker.shares}
            levels = self._program.take()
            found = self._measure_values(levels, worker.index, [*slots.values()])
            distances = dict(zip(slots, found, strict=True))
        effects = worker.protocol.measured(distances, now)
        # The rule's answer to the measurement replaces that of the whole turn.
        self.waits = False
        self.apply(worker, effects, now, "measured")

    def _mix(self, worker: Worker, effect: fx.Mix, now: float) -> None:
        slot = worker.shares.pop(effect.share)
        self._program.mix(worker.index, slot, effect.fraction)
        self._program.let_go(slot)

    def _combine(self, worker: Worker, effect: fx.Combine, now: float) -> None:
        shares = worker.shares
        terms: list[tuple[float, str | tuple[Slot, int]]] = []
        for coefficient, term in effect.terms:
            if isinstance(term, str):
                terms.append((coefficient, term))
            elif isinstance(term, int):
                terms.append((coefficient, (worker.snapshots[term], 0)))
            else:
                share, part = SharePart.of(term)
                terms.append((coefficient, (shares[share], part)))
        self._program.combine(worker.index, effect.register, tuple(terms))

    def _exchange(self, worker: Worker, effect: fx.Exchange, now: float) -> None:
        key = effect.swarm, effect.segment
        slot = self._segments.get(key)
        if slot is None:
            slot = self._segments[key] = self._program.segment()
        self._program.exchange(
            worker.index,
            slot,
            effect.register,
            taken=effect.taken,
            given=effect.given,
            fresh=self._holders.enter(worker, effect),
        )

    def _drop(self, worker: Worker, effect: fx.Drop, now: float) -> None:
        slot = worker.shares.pop(effect.share, None)
        if slot is not None:
            self._program.let_go(slot)


class SegmentHolders:
    """Processes that hold the segments of the machine that all workers share.

    A segment is gone with the last process that has exchanged with it.
    """

    def __init__(self) -> None:
        self._holders: dict[tuple[bytes, str], set[Worker]] = {}

    def enter(self, worker: Worker, effect: fx.Exchange) -> bool:
        """Let a worker hold a segment; return True if it is created by that."""
        holders = self._holders.setdefault((effect.swarm, effect.segment), set())
        is_new = not any(holder.running for holder in holders)
        if is_new:
            holders.clear()
        holders.add(worker)
        return is_new


def _stage(worker: Worker, effect: fx.Stage, payload: Payload) -> None:
    if effect.share not in worker.shares:
        assert payload is not None
        payload.readers += 1
        worker.shares[effect.share] = payload
