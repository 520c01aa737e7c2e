"""Elastic averaging: EASGD gossips centers, SEASGD has one in memory that all peers share."""

from typing import Annotated, Literal

from ...effects.effects import EndTraining, Halt, X
from ...errors import ConfigError
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...protocol.share import Share
from ...specs.parameter import Parameter, checked
from ...weight import WEIGHT_MIN, half, mixing_fraction
from ...wire.messages import Phase

__all__ = ["EASGD", "SEASGD"]

_CENTER = "center"
_PULL = "pull"

# A share's epoch: a center. Leavers hand on, and newcomers get, models with epoch 0.
_OF_CENTER = 1


class EASGD:
    """``d = alpha (x - c); x -= d; c += d`` every few steps; no peer ever waits.

    A spring ties a peer's model to a center, yet lets it explore. In the paper the center is on a
    server. Here each peer keeps a replica, and the replicas are averaged by sum-weight gossip, as
    models are under ``gosgd``. When all peers have finished, models become centers.

    Source: Zhang, Choromanska and LeCun, NeurIPS 2015, algorithm 1 (asynchronous EASGD); alpha and
    every are those of Theano-MPI; the replicas are ours.
    """

    name = "easgd"
    summary = "a spring to a center, which is gossiped"
    registers: tuple[str, ...] = (_CENTER, _PULL)
    outstanding_max = 2
    requirements = Requirements()

    @checked
    def __init__(
        self,
        *,
        alpha: Annotated[
            float,
            Parameter(
                "how far a model and its center move toward one another: 0 for not at all, .5 to "
                "meet in the middle. Less explores more.",
                low=0,
                high=1,
            ),
        ] = 0.5,
        every: Annotated[
            int, Parameter("steps from one update to the next, and from push to push.", low=1)
        ] = 10,
    ) -> None:
        self.alpha = alpha
        self.every = every
        self._steps = 0
        self._is_center = False

    def start(self, context: RuleContext) -> None:
        context.combine(_CENTER, [(1.0, X)])

    def step(self, context: RuleContext) -> None:
        for share in context.shares():
            if share.epoch == _OF_CENTER and not self._is_center:
                self._mix_center(context, share)
            else:
                context.mix(share)
        if context.merging:
            self._merge(context)
        elif context.trained:
            self._steps += 1
            if self._steps % self.every == 0:
                self._pull(context)
                self._push(context)

    def _mix_center(self, context: RuleContext, share: Share) -> None:
        fraction = mixing_fraction(context.weight, share.weight)
        context.combine(_CENTER, [(1.0 - fraction, _CENTER), (fraction, share)])
        context.accept(share)

    def _pull(self, context: RuleContext) -> None:
        context.combine(_PULL, [(self.alpha, X), (-self.alpha, _CENTER)])
        context.combine(X, [(1.0, X), (-1.0, _PULL)])
        context.combine(_CENTER, [(1.0, _CENTER), (1.0, _PULL)])

    def _push(self, context: RuleContext) -> None:
        if context.weight < WEIGHT_MIN:
            context.skip("too little weight")
            return
        peer = context.draw()
        if peer is None:
            context.skip()
        else:
            context.push(peer, half(context.weight), register=_CENTER, epoch=_OF_CENTER)

    def _merge(self, context: RuleContext) -> None:
        if not self._is_center:
            context.combine(X, [(1.0, _CENTER)])
            self._is_center = True
        context.push_half()


Progress = Literal["own", "fastest", "master"]


class SEASGD:
    """``d = alpha (x - W); x -= d; W += d`` every few steps; all share one W, no peer waits.

    The center W, at first the model of the first peer, is in a segment that all processes of one
    machine share. Weight stays put until all peers have finished; then models become W, so that
    merging has nothing left to do. A peer that finds one of another machine in its swarm halts,
    since there would be several unconnected centers.

    Source: Ahn et al. 2018, ShmCaffe, SEASGD of its asynchronous mode (ShmCaffe-A); alpha and every
    are theirs. Zhang, Choromanska and LeCun, NeurIPS 2015, algorithm 1.
    """

    name = "seasgd"
    summary = "a spring to one center, in memory that all share"
    registers: tuple[str, ...] = ()
    outstanding_max = 2
    requirements = Requirements(one_machine=True)

    @checked
    def __init__(
        self,
        *,
        alpha: Annotated[
            float,
            Parameter(
                "how far a model and the center move toward one another: 0 for not at all, .5 to "
                "meet in the middle; .2 in the paper.",
                low=0,
                high=1,
            ),
        ] = 0.2,
        every: Annotated[
            int, Parameter("steps from one exchange to the next; 1 in the paper.", low=1)
        ] = 1,
        progress: Annotated[
            Progress,
            Parameter(
                "when a peer's training ends, at the latest: own, with its own steps; fastest, "
                "once any peer has taken all of its; master, once the peer has that master names."
            ),
        ] = "own",
        master: Annotated[
            str, Parameter("name of the peer whose end is that of all, for progress=master.")
        ] = "",
    ) -> None:
        if bool(master) is not (progress == "master"):
            raise ConfigError(
                f"progress is {progress} and master is {master!r}: they go together, as in "
                "seasgd:progress=master,master=peer-0"
            )
        self.alpha = alpha
        self.every = every
        self.progress = progress
        self.master = master
        self._steps = 0
        self._is_center = False

    def start(self, context: RuleContext) -> None:
        # Creates the center before the first step moves a model.
        context.exchange(_CENTER, taken=0.0, given=0.0)

    def step(self, context: RuleContext) -> EndTraining | Halt | None:
        for share in context.shares():
            context.mix(share)
        if context.merging:
            self._merge(context)
        elif context.trained:
            if not self._steps and (halt := _elsewhere(context)):
                return halt
            self._steps += 1
            if self._steps % self.every == 0:
                context.exchange(_CENTER, taken=self.alpha, given=self.alpha)
            return self._end(context)
        elif context.finished:
            # Its model must not be left behind, nor hold back peers that still train.
            context.exchange(_CENTER, taken=self.alpha, given=0.0)
        return None

    def _end(self, context: RuleContext) -> EndTraining | None:
        if self.progress == "own":
            return None
        finished = [
            member.id
            for member in context.table.live()
            if member.id != context.me and Phase.FINISHED <= member.phase <= Phase.QUIET
        ]
        if self.progress == "master":
            return EndTraining(self.master) if self.master in finished else None
        return EndTraining(finished[0]) if finished else None

    def _merge(self, context: RuleContext) -> None:
        if not self._is_center:
            context.exchange(_CENTER, taken=1.0, given=0.0)
            self._is_center = True
        context.push_half()


def _elsewhere(context: RuleContext) -> Halt | None:
    """Halt if a peer is on another machine, where it cannot share the segment."""
    mine = context.machine(context.me)
    others = [peer for peer in context.table.takers() if context.machine(peer) != mine]
    if not others:
        return None
    return Halt(
        f"the center lies in memory that all peers share, and {others[0]} runs on another machine "
        "or in another container: start all on one, or use easgd, whose centers gossip"
    )
