"""A stand-in for ``rumor peer``: it trains nothing, but writes the files of a peer.

It reads the same environment. ``FAKE_FATES``, a JSON object by peer id, says how each peer ends:
``finish`` (the default), ``kill``, ``fail``, ``refuse``, ``wait``, which leaves on a signal,
``ignore``, which ignores signals, or ``train``, which takes ten steps every 20 ms and leaves on a
signal. A later incarnation always trains. If ``FAKE_HOLD`` names a file, a training peer takes at
most half of its steps before that file exists.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from safetensors.numpy import save_file

__all__: list[str] = []

ONE = 2**40


class FakePeer:
    def __init__(self, options: dict[str, str]) -> None:
        self.id = options["id"]
        self.index = int(options["index"])
        self.steps = int(options["steps"])
        self.out = Path(options["out"])
        self.step = 0
        self.lives = 1 + len(list(self.out.glob("ledger*.jsonl")))
        name = "ledger.jsonl" if self.lives == 1 else f"ledger.{self.lives}.jsonl"
        # As in a real peer, an incarnation is later than all before it, in whatever folder.
        self.append(name, kind="opened", id=self.id, incarnation=time.time_ns() // 1_000_000)
        self.units = ONE if options["founders"] != "1" and self.lives == 1 else 0
        if self.units:
            self.append(name, kind="founded", units=ONE)
        self.ledger = name

    def live(self, fate: str) -> None:
        if fate == "train":
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self.leave)
        for step in range(10, self.steps + 1, 10):
            self.step = step
            self.measure()
            if fate == "train":
                time.sleep(0.02)
            while fate == "train" and self.step >= self.steps // 2 and not may_end():
                time.sleep(0.02)
            if self.step >= self.steps // 2 and fate in ("kill", "fail"):
                break
        if fate == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fate == "fail":
            self.end("failed", "the loss is not finite")
            print("error: the loss is not finite", file=sys.stderr)
            sys.exit(1)
        if fate in ("wait", "ignore"):
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self.leave if fate == "wait" else signal.SIG_IGN)
            self.append("ready")
            time.sleep(30)
        self.end("finished")

    def measure(self) -> None:
        evaluated = self.step % 50 == 0
        self.append(
            "metrics.jsonl",
            step=self.step,
            time_s=self.step / 100,
            unix_s=1e9 + self.step / 100,
            loss=2.0 / self.step,
            accuracy=0.9 if evaluated else None,
            test_loss=0.4 if evaluated else None,
            weight=1.0,
            pushes=self.step // 10,
            bytes_sent=100 * self.step,
            step_s=0.01,
            live=4,
            sketch=[1.0, self.index / self.step] if evaluated else None,
        )

    def leave(self, number: int, frame: object) -> NoReturn:
        if self.units:
            self.append(self.ledger, kind="burned", units=self.units)
        self.end("left")
        sys.exit(0)

    def end(self, state: str, error: str | None = None) -> None:
        units = self.units if state == "finished" else 0
        # The shape of the quadratic task's only parameter.
        tensors = {"weight": np.full((1, 32), float(self.index), np.float32)}
        metadata = {"peer": self.id, "weight_units": str(units)}
        save_file(tensors, self.out / "model.safetensors", metadata)
        report: dict[str, Any] = {"id": self.id, "state": state, "error": error, "steps": self.step}
        report |= {"steps_per_s": 100.0, "accuracy": 0.9, "loss": 0.4, "weight_units": units}
        report |= {"messages": 7, "bytes_sent": 70, "pushes": 3, "skipped": 2, "refusals": 1}
        (self.out / "peer.json").write_text(json.dumps(report))

    def append(self, name: str, **row: Any) -> None:
        with open(self.out / name, "a") as file:
            file.write(json.dumps(row) + "\n")


def may_end() -> bool:
    hold = os.environ.get("FAKE_HOLD")
    return hold is None or Path(hold).exists()


if __name__ == "__main__":
    options = {
        name[6:].lower(): value for name, value in os.environ.items() if name[:6] == "RUMOR_"
    }
    (Path(options["out"]) / "options.json").write_text(json.dumps(options))
    fates = json.loads(os.environ.get("FAKE_FATES", "{}"))
    fate = fates.get(options["id"], "finish")
    if fate == "refuse":
        print("error: address 'x' is malformed: write HOST:PORT", file=sys.stderr)
        sys.exit(2)
    peer = FakePeer(options)
    is_later = options.get("resume") == "1" or ".life-" in options["out"]
    peer.live("train" if is_later else fate)
