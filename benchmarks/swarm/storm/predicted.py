"""What a simulation says of a storm: when each worker steps, exchanges, is down, and the loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final

from torch import Tensor

from ....sim.config import SimulationConfig
from ....sim.kernel.faults.files import Fault, faults_as_json, resolve
from ....sim.kernel.fleet import Fleet
from ....sim.kernel.worker import Worker
from ....sim.simulate import Simulation, simulate
from ....train.tasks.task import Task
from .figures import Course, Strikes
from .schedule import put_off, strikes_on

__all__ = ["Predicted", "predict_courses", "predict_model"]

_LOOKS: Final = 20
"""How often a fleet is looked at within a step: so exact is what is read of it."""
_STEPS_MAX: Final = 2**31
_PATIENCE: Final = 5.0
"""How many times as long as it is meant to last a run is followed, until all steps are taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """A storm as a simulation has it."""

    courses: tuple[Course, ...]
    end_s: float
    """When the last step was taken."""
    steps: int
    """Of all together, those counted once that a crash has undone."""


@dataclass(slots=True)
class _Traced:
    """One worker while it is followed."""

    id: str
    steps_s: list[float] = field(default_factory=list)
    exchanges_s: list[float] = field(default_factory=list)
    seen: tuple[int, int] = (0, 0)

    def look(self, worker: Worker, now: float) -> None:
        """See what has changed since the last look."""
        steps, exchanges = worker.total_steps, worker.pushes + worker.mixed
        if steps > self.seen[0]:
            self.steps_s.append(now)
        if exchanges > self.seen[1]:
            self.exchanges_s.append(now)
        self.seen = steps, exchanges

    def course(self, strikes: Strikes, end_s: float) -> Course:
        """What it did until then."""
        return Course(
            id=self.id,
            steps_s=tuple(self.steps_s),
            exchanges_s=tuple(self.exchanges_s),
            down=strikes.down(end_s),
            starts_s=tuple(time_s for time_s in strikes.starts_s if time_s < end_s),
            cuts=strikes.cuts,
        )


def predict_courses(
    settings: Mapping[str, Any],
    faults: Sequence[Fault],
    *,
    start_s: float = 0.0,
    time_s: float,
    total_steps: int | None,
) -> Predicted:
    """Follow the workers of a simulation, without computing a value.

    Args:
        settings: Fields of `SimulationConfig`, as `Calibration.simulation` gives them.
        faults: What is done to them.
        start_s: What a process takes from its start to its first message, seconds: a simulated one
            takes none, and so comes so much later.
        time_s: How long they are followed, virtual seconds, where *total_steps* is None.
        total_steps: Of all together, at which they end.

    Returns:
        What they did; times are seconds since the start, with a resolution of a twentieth of a
        step.
    """
    config = _config(settings, put_off(faults, start_s), total_steps)
    fleet = Simulation(config).fleet()
    traced = [_Traced(id=worker.id) for worker in fleet.workers]
    look_s = config.step_s / _LOOKS
    limit_s = time_s if total_steps is None else _PATIENCE * time_s
    for number in range(1, ceil(limit_s / look_s) + 1):
        fleet.run(number * look_s, _STEPS_MAX)
        # Nobody computes them.
        fleet.program.take()
        for trace, worker in zip(traced, fleet.workers, strict=True):
            trace.look(worker, fleet.now)
        if fleet.over:
            break
    end_s = max((trace.steps_s[-1] for trace in traced if trace.steps_s), default=0.0)
    named = resolve(faults, [trace.id for trace in traced])
    return Predicted(
        courses=tuple(trace.course(strikes_on(named, trace.id), fleet.now) for trace in traced),
        end_s=end_s,
        steps=_steps(fleet),
    )


def predict_model(
    settings: Mapping[str, Any],
    faults: Sequence[Fault],
    *,
    start_s: float = 0.0,
    task: Task,
    total_steps: int,
) -> Mapping[str, Tensor]:
    """Compute what the workers of a simulation learn; the merged model.

    Args:
        settings: As `predict_courses` takes them.
        faults: What is done to the workers.
        start_s: As `predict_courses` takes it.
        task: What they train; it is measured twice, at the start and at the end.
        total_steps: Of all together, at which they end.
    """
    config = _config(settings, put_off(faults, start_s), total_steps)
    model = simulate(config, task=task, eval_every=total_steps).model
    assert model is not None
    return model


def _config(
    settings: Mapping[str, Any], faults: Sequence[Fault], total_steps: int | None
) -> SimulationConfig:
    given = {name: value for name, value in settings.items() if name != "eval_every"}
    # Without an end of its own a task's steps would be one.
    ends = {"steps": None, "total_steps": total_steps or _STEPS_MAX}
    return SimulationConfig(**given | ends | {"faults": tuple(faults_as_json(faults))})


def _steps(fleet: Fleet) -> int:
    return max(worker.protocol.swarm_steps for worker in fleet.workers)
