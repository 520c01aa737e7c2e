"""Choice between the protocols and the fast path, and a check that both decide alike."""

from ....gossip.errors import ConfigError
from ....gossip.protocol.rule import requirements_of
from ....gossip.rules.asynchronous.gosgd import GoSGD
from ....gossip.rules.asynchronous.sgp import SGP
from ....topology import Topology
from ..fleet import Fleet
from ..plan import FleetPlan
from .decisions.tables import STAGED_MAX
from .fleet import (
    OUTGOING_MAX,
    FastFleet,
    FastPathUnsupported,
    is_offered,
    share_bytes_of,
    staged_max,
    topology_of,
)

__all__ = [
    "STEPS_VERIFIED",
    "ScheduleMismatchError",
    "must_compile",
    "takes_fast_path",
    "unsupported_reason",
    "verify_against_protocol",
]

# The protocols take some 60 us per step, machine code 2, but loading that takes a second.
_STEPS_FAST_MIN = 20_000

# Maximum number of edges: the larger of a total and a number per worker, so that a sparse graph may
# have any size.
_EDGES_MAX, _EDGES_EACH = 4_000_000, 32


def takes_fast_path(decide: str, plan: FleetPlan, steps: int) -> bool:
    """Return True if the fast path decides, not the protocols."""
    if decide == "protocol" or (decide == "auto" and steps < _STEPS_FAST_MIN):
        return False
    reason = unsupported_reason(plan)
    if reason and decide == "compiled":
        raise ConfigError(f"decide compiled cannot take this run: {reason}. Take auto")
    return not reason


def unsupported_reason(plan: FleetPlan) -> str:
    """Return why a fleet has to be decided by protocols, or ""."""
    rule, protocol, links = plan.rule(), plan.protocol, plan.links()
    gosgd = rule if type(rule) is GoSGD else GoSGD()
    reasons = (
        (requirements_of(rule).measures, "workers measure how far shares are from their models"),
        (type(rule) not in (GoSGD, SGP), f"the rule is {rule.name}"),
        (gosgd.samples, "workers push by the samples of their steps"),
        (gosgd.layers > 1, "workers push during a step"),
        (gosgd.emission == "adaptive", "emission is adaptive"),
        (plan.fault_plan is not None, "there are faults"),
        (plan.attacks, "workers lie"),
        (plan.schema.shards > 1, "models travel in shards"),
        (
            is_offered(plan) and share_bytes_of(plan) > protocol.frame_bytes,
            "a model does not fit into one frame",
        ),
        (links.header_weight != 1.0, "the model stands for a larger one"),
        (links.uniform is None, "links differ, or lose, delay or double messages"),
        (staged_max(plan) > STAGED_MAX, "too many shares may wait at a worker"),
        (len(plan.ids) < 2, "there is one worker"),
    )
    if why := next((why for applies, why in reasons if applies), ""):
        return why
    topology = topology_of(plan)
    if topology is None or topology.period is None:
        return "the topology has no period"
    if _is_dense(topology, len(plan.ids)):
        return f"the topology has more than {max(_EDGES_MAX, _EDGES_EACH * len(plan.ids)):,} edges"
    each = ((worker, round) for worker in range(len(plan.ids)) for round in range(topology.period))
    if type(rule) is SGP and max(len(topology.neighbors(*one)) for one in each) > OUTGOING_MAX:
        return f"a worker has more than {OUTGOING_MAX} neighbors"
    return ""


def _is_dense(topology: Topology, n: int) -> bool:
    """Return True if the table of edges would be too large, as soon as that is known."""
    left = max(_EDGES_MAX, _EDGES_EACH * n)
    for worker in range(n):
        for round in range(topology.period or 1):
            left -= len(topology.neighbors(worker, round))
        if left < 0:
            return True
    return False


def must_compile() -> bool:
    """Return True if the fast path has to be compiled first, since no earlier run has cached it."""
    # Numba is slow to import.
    from .compiler import is_kept
    from .decisions.exchanges import advance

    return not is_kept(advance)


STEPS_VERIFIED = 2_000
"""Maximum number of optimizer steps, of all workers, that are decided both ways."""


class ScheduleMismatchError(AssertionError):
    """The fast path has decided otherwise than the protocols: a bug in this program."""


def verify_against_protocol(plan: FleetPlan, until_s: float, steps_max: int) -> None:
    """Decide the first window both ways, and compare them operation by operation."""
    fast, slow = FastFleet(plan), Fleet(plan)
    steps_max = min(steps_max, STEPS_VERIFIED)
    try:
        came = fast.run(until_s, steps_max)
    except FastPathUnsupported:
        return
    if slow.run(until_s, steps_max) != came or slow.now != fast.now:
        raise ScheduleMismatchError(f"at {fast.now} s, the protocols are at {slow.now} s")
    for number, (ours, theirs) in enumerate(zip(fast.take(), slow.program.take(), strict=True)):
        for name in ("workers", "steps", "rates", "operations"):
            if getattr(ours, name) != getattr(theirs, name):
                raise ScheduleMismatchError(f"{name} of level {number} are not the protocols'")
    if fast.traffic != slow.traffic:
        raise ScheduleMismatchError(f"{fast.traffic}, and by the protocols {slow.traffic}")
    if fast.audit() != slow.audit():
        raise ScheduleMismatchError(f"{fast.audit()}, and by the protocols {slow.audit()}")
