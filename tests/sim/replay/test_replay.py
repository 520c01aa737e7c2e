"""Replays of live swarms from their journals: bit for bit, or with the first difference."""

import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from typer.testing import CliRunner

from rumor.cli.app import app
from rumor.gossip.errors import ConfigError
from rumor.gossip.weight import UNIT
from rumor.gossip.wire.messages import Chunk
from rumor.sim.replay.replay import replay
from rumor.sim.replay.result import Replay, first_difference
from rumor.train.storage.journal import JOURNAL, Call, JournalFile, Trained
from rumor.train.storage.jsonl import read_metrics
from rumor.train.tasks.lr_schedule import parse_lr_schedule
from rumor.train.tasks.registry import load_task

from ...forked import forked, forked_peers
from ...waiting import until

# Everything that could make two runs differ: three random number generators in a step, and buffers,
# of which one holds integers and one also counts evaluations.
TASK = """
import random
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset
from rumor.train import Task

class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.tensor(0))
    def forward(self, x):
        self.calls += 1
        return x

def loss(outputs, targets):
    return nn.functional.mse_loss(outputs, targets) * (1 + random.random() + np.random.random())

inputs = torch.randn(200, 6, generator=torch.Generator().manual_seed(1))
data = inputs, inputs.sum(dim=1, keepdim=True)

def noisy():
    return Task(
        name="noisy", train=data, test=data, loss=loss, lr=0.01, batch_size=8, steps=60,
        model=lambda: nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(),
                                    nn.Dropout(0.5), Counts(), nn.Linear(16, 1)),
    )

def large():
    return Task(
        name="large", train=data, test=data, loss=loss, lr=1e-4, batch_size=8, steps=30,
        model=lambda: nn.Sequential(nn.Linear(6, 12000), nn.ReLU(), nn.Linear(12000, 1)),
    )

class Items:
    def __len__(self):
        return 200
    def __getitem__(self, index):
        return {"x": inputs[index] + 0.1 * random.random(), "y": inputs[index].sum()}

def step(model, batch):
    return nn.functional.mse_loss(model(batch["x"])[:, 0].float(), batch["y"])

def loaded():
    return Task(
        name="loaded", train=Items(), test=Items(), training_step=step, lr=0.01,
        augment=lambda batch: batch | {"x": batch["x"] * (1 + 0.1 * torch.randn(()))},
        precision="bfloat16", batch_size=8, steps=40, model=lambda: nn.Linear(6, 1),
    )
"""

JOURNALED = ("--task", "noisytask:noisy", "--set", "eval_every=7", "--set=journal")
RULE = ("--rule", "gosgd:p=0.5")
QUICK = (*RULE, *JOURNALED)

Change = Callable[[list[Any]], list[Any]]


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with the module of the tasks."""
    folder = tmp_path_factory.mktemp("replay")
    (folder / "noisytask.py").write_text(TASK)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [entry for entry in sys.path if entry])
        yield folder
    sys.modules.pop("noisytask", None)


@pytest.fixture(scope="module")
def swarm(workdir: Path) -> Path:
    """The folder of a swarm of three peers that ended normally."""
    launch("--peers", "3", "--out", "run")
    return workdir / "run"


def launch(*options: str, settings: tuple[str, ...] = QUICK) -> None:
    """Run a swarm to its end, with forked peers, which need not load torch again."""
    with forked_peers():
        ended = CliRunner().invoke(app, ["launch", *settings, *options])
    assert ended.exit_code == 0, ended.output


@pytest.fixture
def run_copy(swarm: Path, tmp_path: Path) -> Path:
    """A copy of the swarm's folder, which a test may damage."""
    return shutil.copytree(swarm, tmp_path / "run")


def calls(records: Iterable[Any], method: str) -> list[Mapping[str, Any]]:
    """The arguments of every call of a method."""
    of_method = (each for each in records if isinstance(each, Call) and each.method == method)
    return [record.arguments for record in of_method]


def rewrite(journal: Path, change: Change, *, nth: int, kind: str) -> int:
    """Change the nth record of a kind; return its number."""
    lines = journal.read_bytes().splitlines(keepends=True)
    numbers = [n for n, line in enumerate(lines) if n and json.loads(line)[0] == kind]
    number = numbers[nth - 1]
    lines[number] = json.dumps(change(json.loads(lines[number]))).encode() + b"\n"
    journal.write_bytes(b"".join(lines))
    return number


def verdicts(found: Replay) -> dict[str, str]:
    return {peer.id: peer.verdict for peer in found.peers}


@pytest.mark.extended
@pytest.mark.live
def test_a_live_swarm_is_repeated_bit_for_bit(swarm: Path) -> None:
    threads = torch.get_num_threads()
    found = replay(swarm)
    assert torch.get_num_threads() == threads
    assert found.identical and found.difference is None and found.warnings == ()
    assert [peer.id for peer in found.peers] == ["peer-0", "peer-1", "peer-2"]
    assert all(peer.closed and peer.compared and peer.steps == 60 for peer in found.peers)
    assert sum(peer.mixed for peer in found.peers) > 20


DIGITS = ("--task", "digits", "--steps", "40", "--set", "eval_every=20", "--set=journal")
LARGE = ("--task", "noisytask:large", *JOURNALED[2:])
TRACKING = ("--rule", "gradient-tracking", "--lr", "0.00001", "--set", "momentum=0")
SHARDS = ("--set=shards=3", "--set=shards_per_push=2")
COSINE = "--set=lr_schedule=cosine:warmup=0.2"
LOADED = ("--partition", "iid", "--set=journal")


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.parametrize(
    ("peers", "settings"),
    [
        # A custom dataset, augmentation and mixed precision.
        (2, (*RULE, "--task", "noisytask:loaded", *LOADED)),
        (3, (*QUICK, *SHARDS)),
        (3, (*LARGE, "--rule", "diloco:h=3")),
        (3, (*DIGITS, "--rule", "gosgd:p=0.5,robust=clip:tau=1")),
        (3, (*DIGITS, "--rule", "gosgd:p=0.5,layers=3")),
        (2, (*TRACKING, *LARGE, "--wire", "int8", COSINE)),
        (4, (*DIGITS, "--rule", "choco", "--wire", "int8", "--topology", "ring")),
        (4, (*DIGITS, "--rule", "sparseloco:h=3", "--wire", "topk2bit:0.1")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_rules_formats_and_shards_are_repeated_bit_for_bit(
    peers: int, settings: tuple[str, ...], workdir: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    launch("--peers", str(peers), "--out", str(run), settings=settings)
    found = replay(run)
    assert found.identical, [found.difference, *(peer.why for peer in found.peers)]
    assert all(peer.compared and peer.mixed for peer in found.peers)
    records = records_of(run / "peers" / "peer-0" / JOURNAL)
    assert bool(calls(records, "measured")) == ("gosgd:p=0.5,robust=clip:tau=1" in settings)
    assert bool(calls(records, "trained_shard")) == ("gosgd:p=0.5,layers=3" in settings)


@pytest.mark.live
def test_learning_rates_follow_the_swarm_steps_live_and_in_replay(
    workdir: Path, tmp_path: Path
) -> None:
    run, text, total = tmp_path / "run", "cosine:warmup=0.1,floor=0.05", 120
    # Slow enough for each peer to learn of the other's steps.
    pace = ("--set=step_s_min=0.02", "--set=gossip_s=0.05")
    settings = (f"--set=lr_schedule={text}", "--set=log_every=1", "--set=journal", *pace)
    given = ("--task", "digits", "--total-steps", str(total), "--peers", "2", "--out", str(run))
    launch(*given, settings=settings)
    schedule, full = parse_lr_schedule(text), load_task("digits", seed=0).lr
    rates = [full * schedule.after(steps, total) for steps in range(total)]
    peers = [read_metrics(run / "peers" / f"peer-{index}" / "metrics.jsonl") for index in range(2)]
    for rows in peers:
        known = [row["swarm_steps"] for row in rows]
        assert [steps >= total for steps in known] == [False] * (len(known) - 1) + [True]
        assert [row["lr"] for row in rows[1:]] == pytest.approx([rates[n] for n in known[:-1]])
        # Before the first step of this peer, the other may have taken some.
        assert any(rows[0]["lr"] == pytest.approx(rate) for rate in rates[: known[0]])
    assert sum(rows[-1]["step"] for rows in peers) >= total
    # The steps of the other peer count, even if one peer is slow.
    assert any(row["swarm_steps"] > row["step"] for rows in peers for row in rows)
    found = replay(run)
    assert found.identical and all(peer.compared for peer in found.peers), found.difference


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.parametrize(
    ("settings", "in_memory"),
    [
        (("--wire", "topk:0.5"), sys.platform == "linux"),
        pytest.param(("--set=shared_memory=false",), False, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_large_shares_are_repeated_for_every_transport(
    settings: tuple[str, ...], in_memory: bool, workdir: Path, tmp_path: Path
) -> None:
    """Shares in frames, or in memory of the sender, of which a journal only notes the access."""
    run = tmp_path / "run"
    launch("--task", "noisytask:large", *settings, "--peers", "2", "--out", str(run))
    found = replay(run)
    assert found.identical, [found.difference, *(peer.why for peer in found.peers)]
    assert all(peer.mixed > 2 and peer.compared for peer in found.peers)
    records = [r for peer in found.peers for r in records_of(peer.folder / JOURNAL)]
    attached = [call["usable"] for call in calls(records, "attached")]
    received = [call["envelope"].body for call in calls(records, "receive")]
    chunks = [body for body in received if isinstance(body, Chunk)]
    assert all(attached) and (len(attached) > 2) == in_memory
    assert (len(chunks) > 2) != in_memory


def records_of(journal: Path) -> list[object]:
    return list(JournalFile(journal))


@pytest.mark.extended
@pytest.mark.live
def test_a_flipped_bit_of_a_saved_model_is_located(run_copy: Path) -> None:
    path = run_copy / "peers" / "peer-1" / "model.safetensors"
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    tensors["5.weight"].view(torch.int32)[0, 9] ^= 1
    save_file(tensors, path, metadata=metadata)
    found = replay(run_copy)
    assert verdicts(found) == {"peer-0": "identical", "peer-1": "differs", "peer-2": "identical"}
    assert found.difference is not None and found.difference.peer == "peer-1"
    assert found.difference.step == 60
    assert "tensor 5.weight[0, 9] is" in found.difference.what
    assert "the first of 1 that differ" in found.difference.what


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.parametrize(
    ("kind", "change", "step", "what"),
    [
        ("began", lambda _: ["began", 7], 9, "the batch of step 10 has other samples"),
        ("trained", lambda _: ["trained", 0.5], 10, "was 0.5"),
        ("step", lambda call: [*call[:2], {"trained": True}, ""], None, ""),
    ],
)
def test_a_changed_record_is_the_first_difference(
    run_copy: Path, kind: str, change: Change, step: int | None, what: str
) -> None:
    journal = run_copy / "peers" / "peer-2" / JOURNAL
    nth = 1 if kind == "step" else 10
    number = rewrite(journal, change, nth=nth, kind=kind)
    found = replay(run_copy)
    assert not found.identical
    difference = found.difference
    assert difference is not None and difference.peer == "peer-2"
    assert what in difference.what and f"peer-2, record {difference.record}" in str(difference)
    assert difference.record == number if kind != "step" else difference.record >= number
    assert step in (None, difference.step)
    # A peer stops if it needs a share that this replay did not make; no other peer differs.
    others = {peer.id: peer for peer in found.peers if peer.id != "peer-2"}
    assert all(peer.verdict != "differs" for peer in others.values())
    stopped = [peer.why for peer in others.values() if peer.verdict == "stopped"]
    if kind != "step":  # without an evaluation more, only the saved model differs
        assert any("of peer-2" in why and "differs from the live run" in why for why in stopped)


@pytest.mark.extended
@pytest.mark.live
def test_a_damaged_record_stops_the_replay(run_copy: Path) -> None:
    journal = run_copy / "peers" / "peer-0" / JOURNAL
    data = bytearray(journal.read_bytes())
    data[data.index(b"\n", len(data) // 2) + 1] ^= 1
    journal.write_bytes(data)
    found = replay(run_copy)
    assert found.difference is None and not found.identical
    peer = found.peers[0]
    assert peer.verdict == "stopped" and "is damaged" in peer.why
    assert f"record {peer.records + 1} is" in peer.why


@pytest.mark.extended
@pytest.mark.live
def test_a_truncated_journal_is_distinguished_from_a_killed_peer(run_copy: Path) -> None:
    journal = run_copy / "peers" / "peer-2" / JOURNAL
    journal.write_bytes(journal.read_bytes()[: journal.stat().st_size // 2])
    found = replay(run_copy)
    last = found.peers[2]
    assert last.verdict == "stopped" and "before the live run did" in last.why
    whys = [peer.why for peer in found.peers[:2]]
    assert any(f"could not go on after its record {last.records}" in why for why in whys)
    (run_copy / "peers" / "peer-2" / "model.safetensors").unlink()
    whys = [peer.why for peer in replay(run_copy).peers[:2]]
    assert any(f"that journal ends before it, after record {last.records}" in why for why in whys)
    shutil.copy(run_copy / "peers" / "peer-1" / JOURNAL, journal)
    with pytest.raises(ConfigError, match="given twice"):
        replay(run_copy)
    journal.unlink()
    found = replay(run_copy)
    assert found.difference is None and not found.identical
    whys = [peer.why for peer in found.peers]
    assert any("of peer-2" in why and "that journal is not here" in why for why in whys)


@pytest.mark.extended
@pytest.mark.live
def test_other_library_versions_give_a_warning(
    run_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    found = replay(run_copy)
    assert found.identical, (found.difference, [peer.why for peer in found.peers])
    assert any(warning.startswith("torch is 2.99.0, and was 2") for warning in found.warnings)


@pytest.mark.extended
@pytest.mark.live
def test_the_copy_of_a_newcomer_is_repeated_shard_by_shard(workdir: Path) -> None:
    # The same run covers shares in another format, and shares of single shards.
    settings = "--set=wire=int8 --set=shards=3 --set=linger_s=0.2 --set=step_s_min=0.05"
    common = ("rumor", "peer", *QUICK, *settings.split(), "--set", "rendezvous=meet")
    log = workdir / "log.txt"
    founder = forked(log, *common, "--id", "old", "--steps", "1000000", "--out", "two/old")
    until(lambda: founder.poll() is not None or steps_of(workdir / "two" / "old" / JOURNAL) >= 10)
    assert founder.poll() is None, log.read_text()
    joiner = ("--id", "new", "--set", "seed=5", "--steps", "20", "--out", "two/new")
    assert forked(log, *common, *joiner).wait() == 0, log.read_text()
    founder.send_signal(signal.SIGTERM)
    founder.wait()
    found = replay(workdir / "two" / "old", workdir / "two" / "new")
    assert found.identical and all(peer.compared for peer in found.peers)
    new, old = found.peers
    assert (new.id, old.id) == ("new", "old") and new.mixed > 0
    # The newcomer left first, and handed its weight on from its network thread.
    assert new.steps == 20 and old.steps < 1_000_000


def steps_of(journal: Path) -> int:
    """Return the number of optimizer steps in a journal, which may be unfinished or missing."""
    if not journal.exists() or journal.stat().st_size < 1000:
        return 0
    return sum(isinstance(record, Trained) for record in records_of(journal))


def test_models_are_compared_by_bits(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    state = {"a": torch.tensor([0.0, float("nan")]), "n": torch.tensor(3)}
    save_file(state, path, metadata={"weight_units": "7"})
    assert first_difference(path, state, 7 * UNIT) is None
    wrong: list[tuple[dict[str, torch.Tensor], int, str]] = [
        (state, 8, "weight at the end is 8 units here, and 7"),
        (state | {"a": torch.tensor([-0.0, float("nan")])}, 7, "tensor a[0] is -0.0 here, and 0.0"),
        (state | {"n": torch.tensor(4)}, 7, "tensor n[] is 4 here, and 3"),
        (state | {"a": torch.zeros(1)}, 7, "tensor a is (1,) torch.float32 here"),
        ({"a": state["a"]}, 7, "replay has no tensor n"),
        (state | {"b": state["n"]}, 7, "saved model has no tensor b"),
    ]
    for found, units, message in wrong:
        assert message in str(first_difference(path, found, units * UNIT))


@pytest.mark.parametrize("content", [None, b"something else"])
def test_a_folder_without_a_journal_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / JOURNAL).write_bytes(content)
    with pytest.raises(ConfigError, match="journal"):
        replay(tmp_path)
