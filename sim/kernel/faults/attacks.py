"""Byzantine workers: what they send is forged on its way out, for each receiver separately.

A Byzantine worker runs the same protocol, rule and training as all others; only what it sends to an
honest worker is forged. Values are forged by the program, as they are computed later (`forgeries`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ....gossip import ConfigError, Rule
from ....gossip.protocol.rule import requirements_of
from ....gossip.types import PeerId
from ....gossip.wire.formats import parse_wire
from ....gossip.wire.messages import Ack, Envelope, Offer, Push
from ....train.faults.schedule import KINDS, Fault
from ..clock import TURN
from ..plan import Attack, FleetPlan
from ..program import Program, Slot
from ..worker import Payload, Worker
from .forgeries import FORGERS, Forgery, alie_z

if TYPE_CHECKING:
    from ..fleet import Fleet

__all__ = ["Attacks", "attacks_of", "require_attackable"]

_Send = Callable[[Worker, Envelope, Payload], None]


def attacks_of(faults: Iterable[Fault], ids: Sequence[PeerId]) -> tuple[Attack, ...]:
    """Return the attacks among faults, which have names in place of positions."""
    chosen = [fault for fault in faults if KINDS[fault.kind].is_attack]
    rows = {id: row for row, id in enumerate(ids)}
    told = [frozenset([rows[str(peer)] for peer in fault.peers or ()]) for fault in chosen]
    n_liars = len(frozenset().union(*told))
    if chosen and n_liars == len(ids):
        raise ConfigError(f"all {n_liars} peers attack: at least one must be honest")
    found = []
    for fault, liars in zip(chosen, told, strict=True):
        strength = KINDS[fault.kind].strength if fault.strength is None else fault.strength
        if strength is None:
            strength = alie_z(len(ids), n_liars)
        stop_s = float("inf") if fault.for_s is None else fault.at_s + fault.for_s
        found.append(Attack(fault.kind, liars, strength, fault.at_s, stop_s))
    return tuple(found)


def require_attackable(attacks: Sequence[Attack], rule: Rule, wire: str) -> None:
    """Refuse attacks that cannot be forged."""
    requirements = requirements_of(rule)
    sends_models = requirements.share_registers == 1 and not requirements.bare
    for attack in attacks:
        forges = attack.kind in FORGERS
        if forges and not (sends_models and parse_wire(wire).is_dense):
            raise ConfigError(
                f"{attack.kind} forges models, and rule {rule.name!r} with wire {wire!r} sends "
                "something else: use gosgd, sgp, dpsgd or another rule whose shares are whole "
                "models, and wire float32, bfloat16, float16 or int8"
            )
        if attack.kind == "flood" and requirements.waits:
            raise ConfigError(
                f"flood pushes more often than others, which rule {rule.name!r} does not let "
                "anybody: use gosgd or sgp"
            )


class Attacks:
    """Carries out the attacks of a fleet."""

    def __init__(self, fleet: "Fleet", plan: FleetPlan, program: Program) -> None:
        self.liars = frozenset().union(*[attack.liars for attack in plan.attacks])
        self._fleet = fleet
        self._program = program
        self._plan = plan
        self._claims: dict[tuple[int, int, int], Offer] = {}
        """Last offer of each liar to each worker, by shard."""
        self._forged: dict[tuple[int, int], tuple[int, Slot]] = {}
        """Slot last forged for a way, and the number of the slot that it replaces."""

    def begin(self) -> None:
        for attack in self._plan.attacks:
            for liar in sorted(attack.liars) if attack.kind == "flood" else ():
                self._fleet.clock.at(attack.start_s, TURN, self._flood, attack, liar)

    def through(self, send: _Send) -> _Send:
        """Return a function that forges messages and passes them to *send*."""

        def lying(worker: Worker, envelope: Envelope, payload: Payload) -> None:
            to = self._fleet.index.get(envelope.destination)
            if to is not None and worker.index in self.liars and to not in self.liars:
                envelope = self._inflated(worker, to, envelope)
                if payload is not None:
                    payload = self._forge(worker, to, envelope, payload)
            elif to in self.liars and type(envelope.body) is Ack:
                envelope = self._deflated(worker, to, envelope, envelope.body)
            send(worker, envelope, payload)

        return lying

    def _active(self, liar: int, kinds: Callable[[str], bool]) -> Attack | None:
        """Return the last attack in the list that is active for a liar now."""
        now = self._fleet.now
        for attack in reversed(self._plan.attacks):
            is_active = liar in attack.liars and attack.start_s <= now < attack.stop_s
            if is_active and kinds(attack.kind):
                return attack
        return None

    def _forge(self, worker: Worker, to: int, envelope: Envelope, payload: Slot) -> Slot:
        # The frames of one share have the same forgery.
        attack = self._active(worker.index, FORGERS.__contains__)
        if attack is None or payload.cut is None or not isinstance(payload.cut.register, str):
            return payload
        way = worker.index, to
        source, slot = self._forged.get(way, (-1, None))
        if slot is not None and source == payload.number:
            return slot
        if slot is not None:
            self._program.let_go(slot)
        weights, liars = self._row(worker.index, to, getattr(envelope.body, "round", 0))
        peers, held = tuple(weights), tuple(weights.values())
        forgery = Forgery(FORGERS[attack.kind], attack.strength, to, peers, held, liars)
        slot = self._program.forge(worker.index, payload, forgery)
        slot.is_finite = attack.kind != "nan"
        self._forged[way] = payload.number, slot
        return slot

    def _row(self, liar: int, to: int, round: int) -> tuple[dict[int, float], float]:
        """Return a worker's weights of its other honest neighbors, and of all liars."""
        fleet = self._fleet
        running = [worker.index for worker in fleet.workers if worker.running]
        row = dict.fromkeys(running, 1.0)
        if (weights := getattr(self._plan.neighbors, "weights", None)) is not None:
            ids = self._plan.ids
            told = weights(tuple(sorted([ids[index] for index in running])), ids[to], round)
            known = {fleet.index[peer]: weight for peer, weight in told.items()}
            # Under rules that choose their targets, the round may belong to other peers.
            row = known if known.get(liar, 0.0) > 0 else row
        liars = sum([weight for peer, weight in row.items() if peer in self.liars])
        honest = {p: w for p, w in row.items() if p != to and p not in self.liars}
        return honest, liars

    def _inflated(self, worker: Worker, to: int, envelope: Envelope) -> Envelope:
        body = envelope.body
        attack = self._active(worker.index, "inflate".__eq__)
        if attack is None or type(body) not in (Offer, Push):
            return envelope
        assert isinstance(body, Offer)
        self._claims[worker.index, to, envelope.shard] = body
        claimed = int(body.escrow * attack.strength)
        return replace(envelope, body=replace(body, escrow=claimed))

    def _deflated(self, worker: Worker, to: int, envelope: Envelope, ack: Ack) -> Envelope:
        # A liar has set aside no more than it has in truth.
        claim = self._claims.get((to, worker.index, envelope.shard))
        if claim is None or claim.seq != ack.seq:
            return envelope
        return replace(envelope, body=replace(ack, accepted=min(ack.accepted, claim.escrow)))

    def _flood(self, attack: Attack, liar: int) -> None:
        """Take one extra turn of the rule, and schedule the next."""
        fleet = self._fleet
        worker = fleet.workers[liar]
        if worker.awake and not worker.searching:
            effects = worker.protocol.step(fleet.now + worker.ahead_s, trained=False)
            fleet.executor.apply(worker, effects, fleet.now + worker.ahead_s, "flood")
        next_s = fleet.now + self._plan.pace.mean_s(liar) / attack.strength
        if next_s < attack.stop_s:
            fleet.clock.at(next_s, TURN, self._flood, attack, liar)
