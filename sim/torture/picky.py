"""GoSGD that now and then refuses a share, or accepts a part of it, as a clipping rule would."""

from ...gossip import GoSGD, Turn
from ...gossip.effects import Wait
from ...gossip.rule import Demands
from ...gossip.weight import coarse

__all__ = ["Picky"]


class Picky:
    """Pushes as `GoSGD` does, now and then twice in a turn, and mixes with moods.

    Args:
        p: Probability of a push at each step.
        outstanding_max: Shares that may be outstanding at once.
    """

    name = "picky"
    registers: tuple[str, ...] = ()
    demands = Demands(whole=False)

    def __init__(self, p: float, outstanding_max: int = 2) -> None:
        self.outstanding_max = outstanding_max
        self._gosgd = GoSGD(p, outstanding_max=outstanding_max)

    def step(self, turn: Turn) -> Wait | None:
        """Decide some of what has come, and let GoSGD do the rest."""
        if not turn.merging:
            for share in turn.shares():
                mood = turn.rng.random()
                if mood < 0.05:
                    turn.refuse(share, "not today")
                elif mood < 0.1:
                    turn.mix(share, weight=coarse(share.weight // 3))
                elif mood < 0.12:
                    turn.mix(share, weight=0)
            if turn.trained and turn.rng.random() < 0.1:
                turn.push_half()
        return self._gosgd.step(turn)
