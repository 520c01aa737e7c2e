"""SEASGD: every peer is tied to one center, which lies in memory that all of them share."""

from typing import Annotated, Literal

from ...effects.effects import EndTraining, Halt
from ...errors import ConfigError
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...specs.parameter import Parameter, checked

__all__ = ["SEASGD"]

_CENTER = "center"

Progress = Literal["own", "fastest", "master"]


class SEASGD:
    """``d = alpha (x - W); x -= d; W += d`` every so many steps; W is one for all, nobody waits.

    Elastic averaging with the center W in a segment that all processes of one machine share: an
    exchange costs a pass over memory and no message. Weight rests until all have finished; then
    models become W, and what is left to do for the rounds of merging is nothing. W begins as the
    model of whoever is first.

    By default each peer takes its own steps. With ``progress``, training also ends once the fastest
    peer, or the one named ``master``, has taken all of its; a master that dies or leaves before
    that ends nobody's.

    A swarm on several machines would have as many centers, tied together by nothing: a peer that
    finds another machine's among its swarm at its first step halts.

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
        """See that the center is there before the first step has moved a model."""
        context.exchange(_CENTER, taken=0.0, given=0.0)

    def step(self, context: RuleContext) -> EndTraining | Halt | None:
        """Mix what leavers hand on; exchange with the center where it is time."""
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
            # Its model must not be left behind, nor hold back those who go on.
            context.exchange(_CENTER, taken=self.alpha, given=0.0)
        return None

    def _end(self, context: RuleContext) -> EndTraining | None:
        """Whether training is over for all, since that of one is."""
        if self.progress == "own":
            return None
        finished = context.table.finished()
        if self.progress == "master":
            return EndTraining(self.master) if self.master in finished else None
        return EndTraining(finished[0]) if finished else None

    def _merge(self, context: RuleContext) -> None:
        if not self._is_center:
            context.exchange(_CENTER, taken=1.0, given=0.0)
            self._is_center = True
        context.push_half()


def _elsewhere(context: RuleContext) -> Halt | None:
    """Why a rule cannot begin that shares segments with all others, where one is elsewhere."""
    mine = context.table.machine(context.me)
    others = [peer for peer in context.live() if context.table.machine(peer) != mine]
    if not others:
        return None
    return Halt(
        f"the center lies in memory that all peers share, and {others[0]} runs on another machine "
        "or in another container: start all on one, or use easgd, whose centers gossip"
    )
