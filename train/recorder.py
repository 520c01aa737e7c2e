"""Writes down how one peer's training goes."""

import math
import time
from pathlib import Path

from ..gossip import TrainingError
from .diary import Diary
from .metrics import Means
from .peer import Peer
from .sketch import Sketch
from .task import Evaluation

__all__ = ["Recorder"]


class Recorder:
    """Collects figures of every step and writes a row now and then, if the disk takes it.

    Args:
        path: Where the rows go, None for nowhere.
        peer: Whose they are.
        log_every: Steps between two rows.
        before_s: How long former lives trained, seconds; the time of the rows goes on there.
    """

    def __init__(
        self, path: Path | None, peer: Peer, log_every: int, *, before_s: float = 0.0
    ) -> None:
        self._rows = Diary(path)
        self._peer = peer
        self._log_every = log_every
        self._means = Means()
        self._sketch = Sketch(sum(flat.numel() for flat in peer.vector.flats))
        self._mixed, self._staleness_steps = 0, 0
        self._started_s = time.perf_counter() - before_s

    @property
    def elapsed_s(self) -> float:
        """How long it has been training, former lives included, seconds."""
        return time.perf_counter() - self._started_s

    def step(
        self,
        step: int,
        loss: float,
        step_s: float,
        lr: float,
        evaluation: Evaluation | None,
        *,
        exchange_s: float = 0.0,
    ) -> None:
        """Note one step.

        Args:
            step: Which, counted from 1.
            loss: On the batch, before the step.
            step_s: What it took, seconds.
            lr: Learning rate that it was taken with.
            evaluation: On held-out data, where it was measured after this step.
            exchange_s: How much of it went to pushing and mixing, and to waiting for others.

        Raises:
            TrainingError: The loss is not finite.
        """
        self._means.add("loss", loss)
        for name, seconds in (("step_s", step_s), ("own_s", step_s - exchange_s)):
            self._means.add(name, seconds)
            self._means.add(f"{name}_squared", seconds * seconds)
        if evaluation is not None or step % self._log_every == 0 or step == 1:
            self._write(step, lr, evaluation)
        if not math.isfinite(loss):
            raise TrainingError(f"the loss of step {step} is {loss}: lower the learning rate")

    def close(self) -> None:
        """Close the file."""
        self._rows.close()

    def _write(self, step: int, lr: float, evaluation: Evaluation | None) -> None:
        tally = self._peer.tally
        mixed = tally.mixed - self._mixed
        staleness_steps = tally.staleness_steps - self._staleness_steps
        self._mixed, self._staleness_steps = tally.mixed, tally.staleness_steps
        row = {
            "step": step,
            "swarm_steps": self._peer.swarm_steps,
            "lr": lr,
            "time_s": self.elapsed_s,
            "unix_s": time.time(),
            "loss": self._means.take("loss"),
            "accuracy": evaluation.accuracy if evaluation else None,
            "test_loss": evaluation.loss if evaluation else None,
            "weight": self._peer.weight,
            "pushes": tally.pushes,
            "skipped": tally.skipped,
            "refusals": tally.refusals,
            "mixed": tally.mixed,
            "staleness_steps": staleness_steps / mixed if mixed else None,
            "bytes_sent": tally.bytes_sent,
            "membership_bytes": tally.membership_bytes,
            "bytes_received": tally.bytes_received,
            "queue": self._peer.queue,
            **self._durations("step_s"),
            # What it took beside the exchange, which under a synchronous rule is mostly waiting.
            **self._durations("own_s"),
            "live": len(self._peer.live),
            "sketch": self._sketch.of(*self._peer.vector.flats) if evaluation else None,
        }
        self._rows.write(row)

    def _durations(self, name: str) -> dict[str, float | None]:
        """Mean and standard deviation, seconds, since the row before."""
        mean, square = self._means.take(name), self._means.take(f"{name}_squared")
        if mean is None or square is None:
            return {name: mean, f"{name}_sd": None}
        return {name: mean, f"{name}_sd": math.sqrt(max(0.0, square - mean * mean))}
