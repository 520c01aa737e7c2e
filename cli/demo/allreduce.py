"""The task of the demo, and a process that trains it with torch's all-reduce.

It runs as ``python -m rumor.cli.demo.allreduce FOLDER RANK COUNT START``, with the model, batches
and intervals of a peer of its number.
"""

import os
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from ...train.config import Recurrence, RunConfig
from ...train.loop.learner import Learner
from ...train.storage.checkpoint import Checkpoint, CheckpointFolder
from ...train.storage.jsonl import MetricsLog
from ...train.tasks.code import code
from ...train.tasks.task import Task
from ...train.tensors.state import flatten_state, restore_state

__all__ = ["LR", "TRAINING", "main", "text"]

LR: Final = {"rumor": 4e-3, "all-reduce": 2e-3}
"""The learning rate of each; docs/explanation/experiments.md says how they were chosen."""

TRAINING: Final = RunConfig(
    task="rumor.cli.demo.allreduce:text",
    batch_size=8,
    lr_schedule="constant",
    eval_every=30,
    checkpoint_every="2s",
    device="cpu",
    steps=1_000_000,
)
"""The demo ends before these steps."""


def text() -> Task:
    """Build the task ``code`` with a sixteenth of its held-out samples: 32 of 128 bytes."""
    task = code()
    assert isinstance(task.test, tuple)
    return replace(task, test=(task.test[0][::16], task.test[1][::16]))


def main() -> None:
    """Train until killed, from the last checkpoint if there is one."""
    folder, (rank, count, start) = Path(sys.argv[1]), map(int, sys.argv[2:])
    store = f"file://{folder.absolute()}/start-{start}"
    try:
        distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=count)
        _train(folder, rank)
    except RuntimeError as error:
        # Without the place in gloo's source before it, and the advice after it.
        words = re.sub(r"^\[\S+\] ", "", str(error)).partition(". ")[0].partition("\n")[0]
        print(f"error: {words}", flush=True)
        # The group cannot be taken down in order: a member of it is gone.
        os._exit(1)


def _train(folder: Path, rank: int) -> None:
    learner = Learner(replace(TRAINING, lr=LR["all-reduce"]), f"peer-{rank}")
    checkpoints, module = CheckpointFolder(folder / "checkpoints"), learner.model
    if (last := checkpoints.latest()) is not None:
        state = restore_state(last.head, last.tensors)
        module.load_state_dict(state["model"])
        learner.load_state_dict(state["training"])
    learner.model = DistributedDataParallel(module)
    learner.start()
    saves = Recurrence(TRAINING.checkpoint_every)
    # Also by the clock: during a stall, no loss would be measured.
    evaluates = Recurrence(f"{TRAINING.eval_every}steps,5s")
    with MetricsLog(folder / f"rank-{rank}" / "metrics.jsonl") as log:
        while True:
            row: dict[str, Any] = {"loss": float(learner.step()), "step": learner.taken}
            # All have the same model.
            if rank == 0 and evaluates.is_due(learner.taken):
                row["test_loss"] = learner.task.evaluate(module).loss
                evaluates.done(learner.taken)
            if rank == 0 and saves.is_due(learner.taken):
                state = {"model": module.state_dict(), "training": learner.state_dict()}
                head, tensors = flatten_state(state, "all")
                checkpoints.write(Checkpoint(head=head, tensors=tensors))
                saves.done(learner.taken)
            log.write(row | {"unix_s": time.time()})
