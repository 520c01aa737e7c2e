"""Every life of every worker: each is made here, and what those held that have ended is kept."""

from collections.abc import Sequence
from functools import partial

from ..gossip import Account, Audit, PeerId, Protocol, audit
from ..gossip.crew import Crew
from ..gossip.messages import Incarnation
from ..gossip.streams import stream
from ..gossip.wire import parse_wire
from .plan import FleetPlan
from .swarm_post import address_of
from .worker import Checkpoint, Worker

__all__ = ["Lives"]


class Lives:
    """Makes the protocols of a fleet, and keeps the ledgers of those whose process has ended.

    Args:
        plan: What the fleet is made of.
        crew: The view that all workers share; None where each has its own.
    """

    def __init__(self, plan: FleetPlan, crew: Crew | None) -> None:
        self.ended_s = 0.0
        """How long all lives that have ended lasted together, seconds."""
        self._plan = plan
        self._crew = crew
        self._keeps_anchor = parse_wire(plan.protocol.wire).needs_anchor
        self._ended: list[Account] = []
        self._dead: set[tuple[PeerId, Incarnation]] = set()

    def first(self, index: int) -> Worker:
        """Make the first life of a worker."""
        id = self._plan.ids[index]
        return Worker(index, id, self._protocol(id, 1, None))

    def next(self, before: Worker, kept: Checkpoint | None) -> Worker:
        """Make the life after one that has ended.

        Args:
            before: The one before.
            kept: What it knows of that one, if anything.
        """
        incarnation = before.protocol.account.incarnation + 1
        protocol = self._protocol(before.id, incarnation, kept)
        worker = Worker(before.index, before.id, protocol)
        worker.steps = kept.steps if kept is not None else 0
        worker.repeated = before.steps_of_all_lives - worker.steps
        worker.pushes, worker.mixed, worker.idle_s = before.pushes, before.mixed, before.idle_s
        worker.slowness = before.slowness
        # A later restart may still find it, even where this one was told to do without.
        worker.kept = before.kept
        return worker

    def end(
        self, worker: Worker, now: float, *, died: bool, ledger: Sequence[Account] | None = None
    ) -> None:
        """Note that a life has ended.

        Args:
            worker: Whose.
            now: Virtual time, seconds.
            died: Whether it handed nothing on.
            ledger: What stands in its ledger, where that is less than it had decided.
        """
        self._ended += worker.protocol.accounts if ledger is None else ledger
        if died:
            self._dead.add(worker.protocol.account.life)
        self.ended_s += now - worker.started_s

    def audit(self, workers: Sequence[Worker]) -> Audit:
        """Count all weight, by the ledgers of all lives.

        Args:
            workers: The latest life of each.
        """
        running = [a for worker in workers if worker.running for a in worker.protocol.accounts]
        return audit([*self._ended, *running], self._dead)

    def _protocol(self, id: PeerId, incarnation: Incarnation, kept: Checkpoint | None) -> Protocol:
        plan = self._plan
        return Protocol(
            id=id,
            incarnation=incarnation,
            schema=plan.schema,
            anchor=plan.anchor,
            rule=plan.rule(),
            neighbors=plan.neighbors,
            rng=partial(stream, plan.seed, id if incarnation == 1 else f"{id}:{incarnation}"),
            config=plan.protocol,
            addresses=() if self._crew is not None else (address_of(id),),
            crew=self._crew,
            keeps_anchor=self._keeps_anchor,
            clock=dict(kept.clock) if kept is not None else {},
        )
