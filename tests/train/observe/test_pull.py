"""The average of a swarm, pulled from outside: exact in an idle swarm, without side effects."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from rumor.gossip import GoSGD, RumorError, TransportError, audit
from rumor.gossip.weight import ONE
from rumor.gossip.wire.codec import Buffer, decode
from rumor.gossip.wire.messages import EXCERPT_BYTES, Describe, Envelope, Excerpt, Fetch, Hello
from rumor.gossip.wire.schema import Schema, TensorSpec
from rumor.train import Pulled, pull
from rumor.train.observe import probe as probe_module
from rumor.train.observe import pull as pull_module
from rumor.train.observe.probe import Probe
from rumor.train.observe.pull import pull_once
from rumor.train.observe.view import PeerView, State, SwarmView
from rumor.train.runtime.telling.model_copy import ModelRead
from rumor.train.storage.ledger_file import read_ledger

from ...gossip.transport.keyrings import Swarm
from ...waiting import LIMIT_S, until
from ..loop.test_average import IdleMember, Net, Scattered, config, expected, idle_swarm
from .fake_network import FakeNetwork, FakePeer, answer

live = pytest.mark.live

INLINE = {"inline_bytes_max": 1}
Answers = Callable[[Envelope], Sequence[tuple[Envelope, bytes]]]


def pull_all(member: IdleMember, count: int, **given: Any) -> Pulled:
    """Pull until *count* peers have answered; a busy machine may take several tries."""
    found: list[Pulled] = []
    address = (member.peer.address or "").removeprefix("tcp://").rpartition("@")[2]

    def is_complete() -> bool:
        try:
            found.append(pull(address, timeout_s=LIMIT_S, **given))
        except TransportError:
            return False
        return len(found[-1].peers) == count and not found[-1].missing

    until(is_complete, lambda: str(found[-1:]))
    return found[-1]


def require_average(found: Pulled, members: Sequence[IdleMember]) -> None:
    """Compare with the average by numpy; frozen tensors must be left out."""
    own = members[0].model.state_dict()
    assert [each.id for each in found.peers] == [each.peer.id for each in members]
    assert [each.weight for each in found.peers] == [each.peer.weight for each in members]
    assert set(found.state) == {name for name in own if not name.startswith("frozen")}
    for name, value in found.state.items():
        if value.is_floating_point():
            np.testing.assert_array_equal(value.numpy(), expected(members, name))
            assert value.is_contiguous() and value.dtype == own[name].dtype
    left_out = members[0].model.load_state_dict(found.state, strict=False)
    assert not left_out.unexpected_keys
    assert {name.partition(".")[0] for name in left_out.missing_keys} == {"frozen"}


@live
def test_pulling_the_average_leaves_the_swarm_unchanged(tmp_path: Path) -> None:
    with idle_swarm("bc") as (first, *others):
        members = [first, *others]
        heaviest = max(members, key=lambda each: each.peer.weight)
        dict(heaviest.model.named_buffers())["norm.num_batches_tracked"].fill_(5)
        before = [each.peer.stats().weight_units for each in members]
        parts: list[float] = []
        found = pull_all(others[0], 3, progress=lambda done, line: parts.append(done))
        assert [each.peer.stats().weight_units for each in members] == before
        assert found.state["norm.num_batches_tracked"] == 5
        assert found.swarm == first.peer.stats().swarm and found.frozen == ()
        assert parts[-1] == 1.0 and all(0 <= part <= 1 for part in parts)
        assert all(each.peer.stats().members == ("a", "b", "c") for each in members)
        until(lambda: not any(each.peer._vector.memory.used_bytes for each in members))
        found.save(tmp_path / "model.safetensors")
        require_average(found, members)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert set(file.keys()) == set(found.state)
        sources = [f"{each.id}:{each.weight:g}" for each in found.peers]
        assert file.metadata()["pulled_from"] == ",".join(sources)


@live
@pytest.mark.extended
@pytest.mark.parametrize(
    "changes",
    [
        {"shards": 3},
        {"times": INLINE},
        {"times": INLINE | {"shared_memory": False, "wire": "int8"}},
        {"rule": Scattered()},
    ],
    ids=["shards", "memory", "frames", "scattered"],
)
def test_the_average_is_exact_in_every_mode_of_exchange(changes: dict[str, Any]) -> None:
    # One layer takes two excerpts.
    with idle_swarm(width=600, **changes) as members:
        require_average(pull_all(members[0], 4), members)
        inside = members[0].average().state
        for name in ("first.weight", "first.bias", "norm.running_mean"):
            np.testing.assert_array_equal(inside[name].numpy(), expected(members, name))


@live
@pytest.mark.extended
def test_only_a_machine_on_the_roster_can_pull(tmp_path: Path) -> None:
    keys = Swarm(tmp_path)
    peers, reader = keys.machine("*"), keys.machine("reader")
    given: dict[str, Any] = {"key": peers, "roster": keys.file("peers.roster")}
    with idle_swarm("b", **given) as (first, *others):
        mine = {"key": reader, "roster": keys.file("reader.roster")}
        require_average(pull_all(first, 2, **mine), [first, *others])
        address = (first.peer.address or "").rpartition("@")[2]
        with pytest.raises(TransportError, match="does not answer"):
            pull(address)


SCHEMA = Schema((TensorSpec("weight", (2, 700, 200), "float32"),))
SIZE = SCHEMA.copy_bytes


def excerpt(question: Envelope, **changes: Any) -> tuple[Envelope, bytes]:
    """The excerpt that an honest peer answers, with *changes* to its fields."""
    fetch = question.body
    assert isinstance(fetch, Fetch)
    size = min(EXCERPT_BYTES, SIZE - fetch.offset_bytes) if fetch.snapshot else 0
    fields: dict[str, Any] = {"snapshot": 7, "offset_bytes": fetch.offset_bytes, "held": ONE}
    envelope = replace(
        question,
        swarm=b"s" * 16,
        schema=SCHEMA.hash,
        source="a",
        destination=question.source,
        destination_incarnation=1,
        body=Excerpt(**fields | changes),
    )
    return envelope, bytes(size)


def read(monkeypatch: pytest.MonkeyPatch, answers: Answers) -> ModelRead:
    network = FakeNetwork({"tcp://10.0.0.1:7700": FakePeer(override=answers)})
    monkeypatch.setattr(probe_module, "Transport", network)
    with Probe("10.0.0.1:7700", timeout_s=0.2) as probe:
        swarm = (b"s" * 16).hex()
        return pull_module._read(probe, "a", swarm, SCHEMA, 0.1, lambda part: None)


def test_a_model_is_read_in_excerpts_despite_repeated_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offsets: list[int] = []

    def answers(question: Envelope) -> list[tuple[Envelope, bytes]]:
        fetch = question.body
        assert isinstance(fetch, Fetch)
        offsets.append(fetch.offset_bytes)
        pending = excerpt(question, snapshot=0)
        other = excerpt(question, snapshot=8) if fetch.snapshot else pending
        return [] if fetch.done else [pending, other, excerpt(question), excerpt(question)]

    found = read(monkeypatch, answers)
    assert found.weights == [ONE]
    assert [len(each) for each in found.payloads] == [SIZE]
    assert set(offsets) == {0, EXCERPT_BYTES}


def other_model(question: Envelope) -> tuple[Envelope, bytes]:
    envelope, frame = excerpt(question)
    return replace(envelope, schema=bytes(16)), frame


def resized(question: Envelope, size: int) -> tuple[Envelope, bytes]:
    envelope, right = excerpt(question)
    return envelope, bytes(size) if right else right


@pytest.mark.parametrize(
    ("answers", "complaint"),
    [
        (lambda question: [], "it has shown no model for 0.1 s"),
        (lambda question: [excerpt(question, why="it is leaving")], "it is leaving"),
        (lambda question: [excerpt(question, snapshot=0)], "it has shown no model for 0.1 s"),
        (lambda question: [excerpt(question, offset_bytes=64)], "it has shown no model for 0.1 s"),
        (lambda question: [resized(question, 64)], "an excerpt of 64 bytes"),
        (lambda question: [resized(question, EXCERPT_BYTES + 1)], "an excerpt of 1048577 bytes"),
        (lambda question: [other_model(question)], "another model"),
    ],
)
def test_a_peer_without_a_valid_model_raises_an_error(
    monkeypatch: pytest.MonkeyPatch, answers: Answers, complaint: str
) -> None:
    with pytest.raises(RumorError, match=complaint):
        read(monkeypatch, answers)


def test_a_damaged_excerpt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(parts: Sequence[Buffer]) -> Envelope:
        return decode([parts[0], *(b"\1" + bytes(frame)[1:] for frame in parts[1:])])

    monkeypatch.setattr(probe_module, "decode", damaged)
    with pytest.raises(RumorError, match="damaged"):
        read(monkeypatch, lambda question: [excerpt(question)])


def answers_of(
    peer: str, value: float, weight: int = ONE, swarm: bytes = b"s" * 16, schema: Schema = SCHEMA
) -> Answers:
    """Answers of a peer whose model has one value throughout, and the size of `SCHEMA`."""
    numbers = np.full(SIZE // 4, value, np.float32).tobytes()

    def answers(question: Envelope) -> list[tuple[Envelope, bytes]]:
        if isinstance(question.body, Hello):
            return [(answer(question, Describe(schema)), b"")]
        envelope, frame = excerpt(question, held=weight, step=3)
        start = envelope.body.offset_bytes if isinstance(envelope.body, Excerpt) else 0
        envelope = replace(envelope, source=peer, swarm=swarm, schema=schema.hash)
        return [(envelope, numbers[start : start + len(frame)])]

    return answers


def pull_from(
    monkeypatch: pytest.MonkeyPatch, models: dict[str, Answers], **states: State
) -> Pulled:
    """Pull once from peers that show these models."""
    network = FakeNetwork({})
    monkeypatch.setattr(probe_module, "Transport", network)
    peers = []
    for number, name in enumerate(sorted({*models, *states})):
        place = f"10.0.0.1:{7700 + number}"
        if name in models:
            network.peers[f"tcp://{place}"] = FakePeer(override=models[name])
        state, address = states.get(name, "training"), "" if name == "hidden" else place
        peers.append(PeerView(id=name, state=state, source="self", address=address))
    everything = SwarmView(
        time_s=0.0, swarm=(b"s" * 16).hex(), answered=len(peers), peers=tuple(peers)
    )
    # The first view has only two peers, one of which does not answer.
    views = iter([replace(everything, answered=1, peers=everything.peers[:2]), everything])
    observer: Any = SimpleNamespace(
        poll=lambda: next(views), probe=lambda member: Probe(member.address)
    )
    return pull_once(observer, 1.0, lambda done, line: None)


def test_peers_that_cannot_be_averaged_are_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = Schema((TensorSpec("weight", (9,), "float32"),))
    huge = Schema((TensorSpec("weight", (2**48,), "float32"),))
    models = {
        "a": answers_of("a", 1.0, schema=huge),
        "b": answers_of("b", 1.0),
        "c": answers_of("c", 4.0, 2 * ONE),
        "d": answers_of("d", math.nan),
        "e": answers_of("x", 1.0),
        "f": answers_of("f", 1.0, swarm=b"t" * 16),
        "g": answers_of("g", 1.0, schema=other),
        "hidden": answers_of("hidden", 1.0),
        "left": answers_of("left", 1.0),
    }
    found = pull_from(monkeypatch, models, late="joining", left="left")
    assert [(each.id, each.weight) for each in found.peers] == [("b", 1.0), ("c", 2.0)]
    assert torch.equal(found.state["weight"], torch.full((2, 700, 200), 3.0))
    reasons = {
        "a": "GiB of memory",
        "d": "not finite",
        "e": "x answers at its address",
        "f": "another swarm",
        "g": "another model",
        "hidden": "only dials out",
        "late": "it is joining",
    }
    assert set(found.missing) == set(reasons)
    assert all(reason in found.missing[id] for id, reason in reasons.items())


def test_pull_fails_if_no_model_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TransportError, match="can be read: a: it is leaving; b: x answers at its"):
        pull_from(monkeypatch, {"b": answers_of("x", 1.0)}, a="leaving")


@live
@pytest.mark.extended
def test_a_peer_that_dies_while_it_is_read_is_left_out_and_named() -> None:
    with idle_swarm("bc", 600) as (first, *others):
        pull_all(first, 3)

        def kill(done: float, line: str) -> None:
            runtime = others[0].peer._running()
            if line.startswith("b,") and done > 1 / 3 and runtime.is_sound:
                runtime._fail(TransportError("killed"), ends=True)
                runtime.thread.join(LIMIT_S)

        address = (first.peer.address or "").removeprefix("tcp://")
        found = pull(address, timeout_s=LIMIT_S, progress=kill)
        assert set(found.missing) == {"b"} and "does not answer" in found.missing["b"]
        require_average(found, [first, others[1]])


@live
@pytest.mark.extended
def test_pulling_from_a_training_swarm_moves_no_weight(tmp_path: Path) -> None:
    training = {"rule": GoSGD(p=0.5)}
    folders = {id: tmp_path / id for id in "xyz"}
    first = IdleMember(Net(0), config("x", out=folders["x"], **training))
    joins = {"join": (first.entered().address,)}
    others = [IdleMember(Net(0), config(i, out=folders[i], **training, **joins)) for i in "yz"]
    try:
        for _ in range(3):
            found = pull_all(first, 3)
            assert all(0 < each.weight <= 1.0 for each in found.peers)
    finally:
        for each in (*others, first):
            each.end()
    total = audit(read_ledger(folder / "ledger.jsonl")[0] for folder in folders.values())
    assert total.balanced and total.in_flight == total.stranded == total.died == 0
