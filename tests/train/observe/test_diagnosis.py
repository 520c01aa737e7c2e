"""Diagnosis of failed joins: answers of peers are real, and socket errors are fake."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from torch import nn

from rumor.gossip import TransportError
from rumor.gossip.transport.keys.keyring import Keyring
from rumor.gossip.transport.zmq_transport import Transport
from rumor.gossip.wire import codec
from rumor.gossip.wire.messages import Member as Entry
from rumor.gossip.wire.messages import Phase
from rumor.gossip.wire.schema import Schema
from rumor.train import pull
from rumor.train.observe import diagnosis
from rumor.train.observe.diagnosis import Diagnosis, described, diagnose
from rumor.train.tensors.vector import Vector

from ...gossip.transport.keyrings import Swarm as Keys
from ...waiting import LIMIT_S, until
from ..members import Member, linear, one_of, swarm

pytestmark = pytest.mark.live

SOON_S = 0.5


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Member]]:
    """A peer that listens, and a peer that only dials out."""
    folder = tmp_path_factory.mktemp("swarm")
    with swarm(
        one_of(folder, "p0", 2), one_of(folder, "p1", 2, bind=None), at_once=True
    ) as members:
        yield members


def diagnose_member(member: Member, schema: Schema | None = None) -> Diagnosis:
    return diagnose(member.address, schema=schema, timeout_s=LIMIT_S, bytes_max=1 << 18)


def diagnose_until(
    address: str, *wanted: str, keyring: Keyring | None = None, words: str = ""
) -> Diagnosis:
    """Diagnose with growing timeouts until the causes are those *wanted*."""
    patience_s = SOON_S
    found = Diagnosis(address=address)

    def is_expected() -> bool:
        nonlocal found, patience_s
        found = diagnose(address, keyring=keyring, timeout_s=patience_s, bytes_max=1 << 18)
        patience_s *= 2
        return causes(found) == [*wanted] and words in str(found.findings)

    until(is_expected, lambda: found)
    return found


def causes(found: Diagnosis) -> list[str]:
    return [finding.cause for finding in found.findings]


def test_a_healthy_swarm_can_be_joined_and_stays_unchanged(pair: list[Member]) -> None:
    found = diagnose_member(pair[0], pair[0].peer._vector.schema)
    assert found.can_join and not found.findings
    assert (found.peer, found.swarm) == ("p0", pair[0].peer.stats().swarm)
    assert found.model == ("2 tensors from weight (3, 4) float32 to bias (3,) float32, 128 bytes")
    assert sorted(found.members) == ["p0", "p1"]
    assert found.link is not None and found.link.bytes_s > 0
    assert 0 < found.link.roundtrip_s <= found.link.roundtrip_s_mean
    # Answers count as membership traffic, and shares do not.
    counters = pair[0].peer.stats().counters
    assert 0 < counters.membership_bytes < counters.bytes_sent
    assert pair[0].peer.members == pair[1].peer.members == ("p0", "p1")
    events = (pair[0].peer.config.out or Path()) / "events.jsonl"
    assert "observer" not in events.read_text()


def test_another_model_is_reported_with_the_first_difference(pair: list[Member]) -> None:
    other = nn.Linear(4, 2)
    found = diagnose_member(pair[0], Vector(other).schema)
    assert not found.can_join and causes(found) == ["model"]
    assert found.findings[0].why == (
        "it trains another model: tensor 0 is weight (2, 4) float32 here and "
        "weight (3, 4) float32 there"
    )
    half = Vector(nn.Linear(4, 3).double()).schema
    assert "weight (3, 4) float64 here" in str(diagnose_member(pair[0], half).findings[0])
    cut = Vector(linear(), shards=2).schema
    assert "2 shards here and 1 there" in str(diagnose_member(pair[0], cut).findings[0])


@pytest.mark.extended
def test_a_member_with_a_clock_ahead_is_reported(
    pair: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = time.time()
    monkeypatch.setattr("rumor.train.observe.diagnosis.time.time", lambda: now_s - 2 * 86_400)
    found = diagnose_until(pair[0].address, "clock", words="days in the future")
    assert not found.can_join


@contextmanager
def fake_server(reply: bytes) -> Iterator[str]:
    """A program that answers every message with the same bytes."""
    halt = threading.Event()

    def serve(other: Transport) -> None:
        while not halt.is_set():
            for received in other.poll(0.05):
                other.learn("asker", received.route, bulk=False)
                other.send("asker", [reply], bulk=False)

    with closing(Transport()) as other:
        thread = threading.Thread(target=serve, args=(other,), daemon=True)
        thread.start()
        yield other.address or ""
        halt.set()
        thread.join(LIMIT_S)


@pytest.mark.extended
def test_a_foreign_zeromq_program_is_reported() -> None:
    with closing(Transport()) as other:
        words = "speaks ZeroMQ and does not answer"
        diagnose_until(other.address or "", "foreign", words=words)
    with fake_server(b"hello, who is there?") as address:
        found = diagnose(address, timeout_s=LIMIT_S)
    assert causes(found) == ["foreign"] and "what answers is not a peer" in found.findings[0].why


def notice_of(version: int) -> bytes:
    """The answer of a peer to a message of another protocol version."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "VERSION", version)
        return b"".join(codec.version_notice())


@pytest.mark.extended
def test_another_protocol_version_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with fake_server(notice_of(7)) as address:
        found = diagnose(address, timeout_s=LIMIT_S)
        # A joining peer logs the same reason.
        joining = one_of(tmp_path, "new", 1, join=address, rendezvous=None)
        reason = f"{address} it speaks version 7, and this peer version 6"
        until(lambda: reason in caplog.text)
        joining.end(at_once=True)
        with pytest.raises(TransportError, match="does not answer: it speaks version 7"):
            pull(address)
    assert causes(found) == ["version"]
    assert found.findings[0].why == "it speaks version 7, and this peer version 6"
    assert f"stopped while joining: {reason}" in str(joining.error)


def test_a_peer_answers_other_versions_with_its_own_version(pair: list[Member]) -> None:
    answers: list[bytes] = []

    def is_answered() -> bool:
        client.greet(pair[0].address, [notice_of(7) + b"and a message"])
        answers.extend(bytes(received.header) for received in client.poll(0.05))
        return bool(answers)

    with closing(Transport(None)) as client:
        until(is_answered)
    assert answers[0] == notice_of(codec.VERSION)


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[tuple[Keys, str]]:
    """Keys of three machines, and the address of the first, which trains."""
    keys = Keys(tmp_path)
    key, *_ = (keys.machine(name) for name in ("m1", "m2", "m3"))
    member = one_of(tmp_path, "m1", 1, rendezvous=None, key=key, roster=keys.file("m1.roster"))
    with swarm(member, at_once=True):
        yield keys, f"tcp://{member.address.rpartition('@')[2]}"


@pytest.mark.extended
def test_missing_and_unlisted_keys_are_reported(keyed: tuple[Keys, str]) -> None:
    keys, address = keyed
    without = diagnose(address, timeout_s=LIMIT_S)
    assert causes(without) == ["keys"] and "none" in without.findings[0].why
    admitted = diagnose(address, keyring=keys.keyring("m2"), timeout_s=LIMIT_S)
    assert admitted.can_join and admitted.peer == "m1", admitted
    # The roster here lists m4; the older roster of the peer does not.
    late = keys.keyring("m4")
    reason = "it refuses this machine's key, which its roster does not list"
    refused = diagnose_until(address, "keys", keyring=late, words=reason)
    assert not refused.can_join
    assert f"version {late.roster.version} is here" in refused.findings[0].advice


@pytest.mark.parametrize(
    ("phases", "words"),
    [
        ((Phase.TRAINING, Phase.FINISHED), ""),
        ((Phase.FINISHED, Phase.QUIET), "its swarm is finishing"),
        ((Phase.LEAVING, Phase.TRAINING), "p0 is about to leave; join h1:1"),
    ],
)
def test_finishing_swarms_and_leaving_peers_are_reported(
    phases: tuple[Phase, ...], words: str
) -> None:
    members = [Entry(f"p{i}", 1, 1, phase, 1, (f"tcp://h{i}:1",)) for i, phase in enumerate(phases)]
    text = "; ".join(map(str, diagnosis._obstacles_inside(members, "")))
    assert text.startswith(words) and bool(text) is bool(words)


def test_a_model_is_described_in_words() -> None:
    two = Vector(linear(), shards=2)
    assert described(two.schema).endswith("128 bytes, in 2 shards")
    frozen = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    frozen[0].requires_grad_(False)
    vector = Vector(frozen)
    vector.compare_frozen()
    assert described(vector.schema).endswith("2 frozen parameters")


@pytest.mark.parametrize(
    ("error", "cause", "why"),
    [
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "name",
            "the name node-a does not resolve (Name or service not known)",
        ),
        (TimeoutError(), "silent", "nothing comes back from node-a within 0.5 s"),
        (
            ConnectionRefusedError(),
            "closed",
            "nothing listens at port 7700 of node-a (connection refused)",
        ),
        (
            OSError(101, "Network is unreachable"),
            "unreachable",
            "node-a cannot be reached from this machine (Network is unreachable)",
        ),
    ],
)
def test_connection_errors_are_explained(
    error: OSError, cause: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(*_: object) -> None:
        raise error

    monkeypatch.setattr(socket, "create_connection", connect)
    (finding,) = diagnose("node-a:7700", timeout_s=SOON_S).findings
    assert (finding.cause, finding.why) == (cause, why)


FOREIGN = ("foreign", "what listens there is not a peer, or one that is stopped")


@pytest.mark.parametrize(
    ("banner", "expected"),
    [
        (b"HTTP/1.0 400 Bad request\r\n", FOREIGN),
        (b"\xff" * 40, FOREIGN),
        (b"", FOREIGN),
        (
            b"\xff".ljust(9, b"\0") + b"\x7f\x03\x01" + b"CURVE".ljust(52, b"\0"),
            ("keys", "its swarm has keys, and this peer would have none"),
        ),
    ],
    ids=["HTTP", "other bytes", "nothing", "with keys"],
)
def test_a_listener_is_identified_by_its_greeting(
    banner: bytes, expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(banner)
        there.shutdown(socket.SHUT_WR)
        monkeypatch.setattr(socket, "create_connection", lambda *_: here)
        (finding,) = diagnose("node-a:7700").findings
    assert (finding.cause, finding.why) == expected


@pytest.mark.extended
def test_keys_at_a_peer_without_keys_are_reported(pair: list[Member], tmp_path: Path) -> None:
    keyring = Keys(tmp_path).keyring("m1")
    reason = "it has no keys, and this peer would have some"
    diagnose_until(pair[0].address, "keys", keyring=keyring, words=reason)
    with socket.socket() as bound:  # but does not listen
        bound.bind(("127.0.0.1", 0))
        diagnose_until(f"127.0.0.1:{bound.getsockname()[1]}", "closed", keyring=keyring)
