"""All-reduce: after every step, every peer gets the mean of all."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, NamedTuple

from ...effects.effects import Halt, Wait, X
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...protocol.share import Term
from ...specs.parameter import Parameter, checked
from ...types import PeerId
from .rounds import SYNCHRONOUS, RoundRule

__all__ = ["AllReduce"]


class _Stage(NamedTuple):
    """One exchange of whole vectors with one partner."""

    number: int
    """Number within a round; the same at both ends."""
    partner: PeerId
    sends: bool
    takes: bool
    adds: bool = True
    """True if the received vector is added to the partial sum; False if it replaces that."""


class AllReduce(RoundRule):
    """``x_i <- mean of all x_j``, synchronous: a barrier after every optimizer step.

    Recursive doubling: in stage s, peer i swaps partial sums with peer ``i ^ 2^(s-1)`` and adds the
    two, so that ``2^k`` peers have the whole sum after k stages. Any further peer first hands its
    model to one of the others, and gets the mean at the end. All peers end a round with identical
    bits: both peers of a pair add the same two numbers.

    With ``levels`` of 2, the peers of one machine (those that can share memory) sum up first, along
    a binomial tree; the first of them, the leader, then doubles recursively with the leaders of
    other machines; and the result goes back down the tree.

    Source: Thakur, Rabenseifner and Gropp, IJHPCA 2005, section 4; two levels: Awan, Hamidouche,
    Hashmi and Panda, PPoPP 2017 (S-Caffe), there of gradients.
    """

    name = "allreduce"
    summary = "the mean of all"
    registers: tuple[str, ...] = ("part/0", "part/1")
    requirements: Requirements = replace(SYNCHRONOUS, lossless=True)
    agrees = True

    @checked
    def __init__(
        self,
        *,
        levels: Annotated[
            int,
            Parameter(
                "2 to sum up within each machine before its leader exchanges with those of others; "
                "1 where all are alike.",
                low=1,
                high=2,
            ),
        ] = 1,
    ) -> None:
        super().__init__()
        self.levels = levels
        self.requirements = replace(self.requirements, by_machine=levels > 1)
        # The stages of this round that are not over; None before the first.
        self._todo: deque[_Stage] | None = None
        self._sent = -1
        self._parity = 0

    def _send(self, context: RuleContext) -> Wait | Halt | None:
        members = self._members
        if self._todo is not None or len(members) == 1:
            return None
        # Divided before it is added, so that sums of 16-bit floats do not overflow.
        outcome = self._fill(context, [(1.0 / len(members), X)])
        if outcome is None:
            self._todo = deque(self._stages(context, members))
        return outcome

    def _average(self, context: RuleContext) -> Wait | Halt | None:
        if self._todo is None:
            return None
        while self._todo:
            outcome = self._pass(context, self._todo[0])
            if outcome is not None:
                return outcome
            self._todo.popleft()
        self._todo = None
        context.combine(X, [(1.0, self._part)])
        return None

    def _pass(self, context: RuleContext, stage: _Stage) -> Wait | Halt | None:
        partner, tag = stage.partner, self._tag + stage.number
        if stage.sends and self._sent < tag:
            self._post(context, self._part, [partner], tag=tag)
            self._sent = tag
        if not stage.takes:
            return None
        shares = self._gather(context, [partner], tag)
        if isinstance(shares, Wait | Halt):
            return shares
        share = shares[partner]
        kept = [(1.0, self._part)] if stage.adds else []
        outcome = self._fill(context, [*kept, (1.0, share)])
        if outcome is None:
            context.accept(share)
        return outcome

    @property
    def _tag(self) -> int:
        doublings = len(self._members).bit_length()
        return self._round * (doublings + 1 if self.levels == 1 else 3 * doublings + 2)

    def _stages(self, context: RuleContext, members: Sequence[PeerId]) -> Iterator[_Stage]:
        if self.levels == 1:
            return _doubling(members, members.index(context.me))
        machines: dict[bytes, list[PeerId]] = {}
        for peer in members:
            machines.setdefault(context.machine(peer), []).append(peer)
        return _two_levels([*machines.values()], context.me)

    @property
    def _part(self) -> str:
        return f"part/{self._parity}"

    def _fill(self, context: RuleContext, terms: list[tuple[float, Term]]) -> Wait | Halt | None:
        """Put the next partial sum into the other register, once all have accepted that."""
        other = f"part/{1 - self._parity}"
        outcome = self._unaccepted(context, other)
        if outcome is None:
            context.combine(other, terms)
            self._parity = 1 - self._parity
        return outcome


def _doubling(members: Sequence[PeerId], place: int, first: int = 0) -> Iterator[_Stage]:
    doublings = len(members).bit_length() - 1
    inner = 1 << doublings
    last = first + doublings + 1
    if place >= inner:
        partner = members[place - inner]
        yield _Stage(first, partner, sends=True, takes=False)
        yield _Stage(last, partner, sends=False, takes=True, adds=False)
        return
    has_outer = place + inner < len(members)
    if has_outer:
        yield _Stage(first, members[place + inner], sends=False, takes=True)
    for doubling in range(doublings):
        partner = members[place ^ (1 << doubling)]
        yield _Stage(first + doubling + 1, partner, sends=True, takes=True)
    if has_outer:
        yield _Stage(last, members[place + inner], sends=True, takes=False)


def _two_levels(machines: Sequence[Sequence[PeerId]], me: PeerId) -> Iterator[_Stage]:
    own = next(machine for machine in machines if me in machine)
    place = own.index(me)
    depth = max(len(machine) - 1 for machine in machines).bit_length()
    # A place's parent lacks its lowest set bit; its children set one more bit, below that.
    above = (place & -place).bit_length() - 1 if place else depth
    below = [height for height in range(above) if place + (1 << height) < len(own)]
    for height in below:
        yield _Stage(height, own[place + (1 << height)], sends=False, takes=True)
    leaders = [machine[0] for machine in machines]
    # Reserves numbers for all stages that leaders may need, so that all peers number alike.
    down = depth + len(leaders).bit_length() + 1
    if place:
        parent = own[place - (1 << above)]
        yield _Stage(above, parent, sends=True, takes=False)
        yield _Stage(down + depth - above, parent, sends=False, takes=True, adds=False)
    else:
        yield from _doubling(leaders, leaders.index(me), depth)
    for height in reversed(below):
        child = own[place + (1 << height)]
        yield _Stage(down + depth - height, child, sends=True, takes=False)
