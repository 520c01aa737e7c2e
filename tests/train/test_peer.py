"""Live peers in one process, over real ZeroMQ on the loopback interface."""

import math
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rumor.gossip import ConfigError, GoSGD, IncompatiblePeer, TrainingError, TransportError, audit
from rumor.gossip.errors import LocalProtocolError
from rumor.gossip.weight import ONE
from rumor.train import Peer
from rumor.train.runtime import peer_folder

from ..waiting import LIMIT_S, until
from .members import Member, accounts, linear, settings, swarm

pytestmark = pytest.mark.live


def member(value: float, id: str, **changes: object) -> Member:
    given: dict[str, Any] = {"rule": GoSGD(p=0.5), "linger_s": 20.0, **changes}
    return Member(Peer(linear(value), settings(id, **given)))


@pytest.fixture
def founder(tmp_path: Path) -> Iterator[Member]:
    with swarm(member(1.0, "a", out=tmp_path / "a")) as (founder,):
        yield founder


def test_founders_form_one_swarm_and_lose_no_weight(tmp_path: Path) -> None:
    given: dict[str, Any] = {"rendezvous": tmp_path / "r", "founders": 4, "linger_s": LIMIT_S}
    members = [member(1.0, id, out=tmp_path / id, rule=GoSGD(p=1.0), **given) for id in "abcd"]
    with swarm(*members):
        until(lambda: all(member.mixed() > 3 for member in members))
    assert [member.error for member in members] == [None] * 4
    ends = [member.peer.merged for member in members]
    assert [end and (end.complete, end.distance) for end in ends] == [(True, 0.0)] * 4
    account = audit(accounts(*(tmp_path / id for id in "abcd")))
    assert account.balanced and account.held == account.founded == 4 * ONE


def test_another_model_is_refused_with_the_first_difference(founder: Member) -> None:
    difference = r"tensor 0 is weight \(5, 4\) .* \(3, 4\)"
    other = Peer(linear(rows=5), settings("b", join=(founder.address,)))
    with pytest.raises(IncompatiblePeer, match=difference), other:
        pass
    founder.peer.step()


def test_a_second_process_with_the_name_of_a_member_is_refused_and_reported(
    founder: Member, caplog: pytest.LogCaptureFixture
) -> None:
    other = Peer(linear(0.0), settings("a", join=(founder.address,)))
    with pytest.raises(IncompatiblePeer, match="cannot join a: another process has this peer's"):
        other.start()
    assert "a cannot be one of this swarm: another process has this" in caplog.text
    assert founder.peer.members == ("a",) and founder.peer.weight == 1.0


@pytest.mark.parametrize("rows", [3, 1_000_000])  # of 20 MB, the first frames are sent early
def test_non_finite_parameters_are_never_mixed(rows: int, tmp_path: Path) -> None:
    given: dict[str, Any] = {"rule": GoSGD(p=1.0), "linger_s": LIMIT_S}
    with swarm(Member(Peer(linear(1.0, rows), settings("a", out=tmp_path / "a", **given)))) as (a,):
        model = linear(0.0, rows)
        peer = Peer(model, settings("b", join=(a.address,), out=tmp_path / "b", **given))
        with pytest.raises(TrainingError, match="not finite"), peer:
            with torch.no_grad():
                model.bias[-1] = float("nan")
            while True:
                peer.step()
                time.sleep(0.001)
        until(lambda: a.peer.members == ("a",))
        assert torch.isfinite(a.peer._vector.flats[0]).all()
    account = audit(accounts(tmp_path / "a", tmp_path / "b"))
    assert account.balanced and account.in_flight == account.stranded == 0


@pytest.mark.extended
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("steps", [100, 1])
def test_a_lone_peer_notices_nan_within_a_hundred_steps_or_at_the_end(
    steps: int, dtype: torch.dtype
) -> None:
    model, taken = linear(0.0).to(dtype), 0
    peer = Peer(model, settings("a"))
    with pytest.raises(TrainingError, match="a parameter is not finite"), peer:
        peer.step()
        with torch.no_grad():
            model.bias[0] = float("nan")
        while taken < steps:
            peer.step()
            taken += 1
    assert taken == min(steps, 98), "the call for the hundredth step raises, or leaving the block"
    assert peer.stats().counters.pushes == 0


@pytest.mark.extended
def test_only_a_rule_that_weighs_by_samples_accepts_them() -> None:
    rule = GoSGD(p=0.5, samples=32)
    with Peer(linear(0.0), settings("a", rule=rule)) as peer:
        with pytest.raises(ConfigError, match="say how many"):
            peer.step()
        for _ in range(3):
            peer.step(samples=128)
        assert rule._batch == 128
        # Numbers of a user may come from NumPy or PyTorch.
        peer.step(samples=np.int64(128), lr=torch.tensor(0.1))  # type: ignore[arg-type]
    message = "samples is 8: rule 'gosgd' does not weigh"
    with Peer(linear(0.0), settings("a")) as peer, pytest.raises(ConfigError, match=message):
        peer.step(samples=8)


def test_arguments_of_the_wrong_type_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"model is a list: it must be an nn\.Module"):
        Peer([linear(0.0)])  # type: ignore[arg-type]
    with Peer(linear(0.0), settings("a")) as peer:
        untyped: Any = peer
        for value in ("0.1", [0.1], 1j, torch.ones(2)):
            with pytest.raises(ConfigError, match=r"^lr is .*: it must be a number"):
                untyped.step(lr=value)
            with pytest.raises(ConfigError, match=r"^loss is .* it must be"):
                untyped.step(loss=value)
            with pytest.raises(ConfigError, match=r"^accuracy is .*: it must be a number"):
                untyped.log(accuracy=value)
        for method in (untyped.merge, untyped.average):
            for timeout_s in ("5", None, -1.0, math.nan):
                with pytest.raises(ConfigError, match=r"timeout_s is .*: it must be"):
                    method(timeout_s=timeout_s)
        assert peer.steps == 0
        untyped.step(loss=np.float32(2.0), lr=np.array([0.1]))
        peer.step(loss=torch.ones(1, 1))
        assert peer.stats().measured["loss"] == 1.0


@pytest.mark.parametrize("end", ["merge", "leave"])
def test_a_step_before_the_block_or_after_the_end_is_refused(end: str) -> None:
    peer = Peer(linear(0.0), settings("a"))
    with pytest.raises(LocalProtocolError, match="with Peer"):
        peer.step()
    with peer:
        peer.step()
        getattr(peer, end)()
        for _ in range(2):
            with pytest.raises(LocalProtocolError, match=rf"peer\.step\(\) after peer\.{end}\(\)"):
                peer.step()


@pytest.mark.extended
def test_a_merge_that_times_out_names_unfinished_members(
    founder: Member, caplog: pytest.LogCaptureFixture
) -> None:
    with Peer(linear(0.0), settings("b", join=(founder.address,))) as peer:
        peer.step()
        with caplog.at_level("WARNING", "rumor"):
            result = peer.merge(timeout_s=0.3)
        assert not result and not result.complete and not result.missing
        assert list(result.unfinished) == ["a"] and peer.merged is result
        peer.leave()
    assert "ended without the average" in caplog.text and "a (step " in caplog.text


def test_a_merge_names_members_that_died() -> None:
    times = {"gossip_s": 0.05, "suspect_s": 0.2, "dead_s": 0.6}
    quick: dict[str, Any] = {"times": times, "rule": GoSGD(p=0.5)}
    with Peer(linear(0.0), settings("a", linger_s=20.0, **quick)) as founder:
        late = Member(Peer(linear(), settings("b", join=(founder.address or "",), **quick)))

        def has_joined() -> bool:
            founder.step()
            return late.inside.is_set()

        until(has_joined)
        runtime = late.peer._running()
        late.peer._stop.set()
        runtime.close()  # without a message, as in a crash
        result = founder.merge(timeout_s=LIMIT_S)
    assert result and list(result.missing) == ["b"]
    late.halt.set()


def test_a_failing_network_thread_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def fail(reason: str) -> None:
        raise OSError(reason)

    with pytest.raises(TransportError, match="gone"), Peer(linear(), settings("a")) as peer:
        runtime = peer._running()
        runtime.transport.poll = lambda timeout_s: fail("gone")  # type: ignore
        runtime.transport.wake()
        while runtime.is_sound:
            peer._running().wait_for_share(0.1)
        peer.step()
    assert not runtime.is_sound and "the network thread failed" in caplog.text


@pytest.mark.extended
def test_an_error_on_closing_the_ledger_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Peer(linear(0.0), settings("a", out=tmp_path)) as peer:
        runtime = peer._running()
        assert runtime.ledger is not None
        close = runtime.ledger.close

        def fail() -> None:
            close()  # otherwise the open file raises a warning in a later test
            raise OSError("no such device")

        runtime.ledger.close = fail
        runtime.require_sound()
    assert "the network thread failed" in caplog.text
    for _ in range(2):
        with pytest.raises(TransportError, match="no such device"):
            runtime.require_sound()


@pytest.mark.extended
def test_a_peer_with_a_clock_far_ahead_cannot_join(
    founder: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = SimpleNamespace(time=lambda: time.time() + 2 * 86_400)
    monkeypatch.setattr(peer_folder, "time", ahead)
    late = Peer(linear(1.0), settings("b", join=(founder.address,), join_timeout_s=60))
    with pytest.raises(IncompatiblePeer, match="the clock of this machine is far ahead"), late:
        pass


@pytest.mark.extended
def test_a_lone_peer_leaves_without_waiting_for_a_receiver() -> None:
    """Waiting for ``leave_s`` here would take eleven days."""
    with Peer(linear(0.0), settings("a", leave_s=1e6, linger_s=20.0)) as peer:
        peer.step()


@pytest.mark.extended
def test_a_merge_reports_the_distance_between_models(founder: Member) -> None:
    model = linear(0.0)
    config = settings("b", rule=GoSGD(p=0.5), linger_s=20.0, join=(founder.address,))
    with Peer(model, config) as peer:
        founder.halt.set()
        with torch.no_grad():
            model.weight.fill_(100.0)
        result = peer.merge(timeout_s=LIMIT_S)
    founder.end()
    assert result and not result.unfinished and not result.missing
    # Both halve the difference with each exchange.
    assert result.distance is not None and 0.0 <= result.distance < 0.1
    with Peer(linear(0.0), settings("c")) as alone:
        assert alone.merge()
    assert alone.merged is not None and alone.merged.distance is None


@pytest.mark.extended
def test_the_first_fatal_failure_replaces_lesser_ones() -> None:
    with pytest.raises(TrainingError, match="a full disk"), Peer(linear(), settings("a")) as peer:
        runtime = peer._running()
        runtime._fail(TrainingError("a rule gave up"), ends=False)
        runtime.require_sound()
        with pytest.raises(TrainingError, match="a rule gave up"):
            peer.step()
        peer.step()  # the error is raised only once
        runtime._fail(TrainingError("a rule gave up"), ends=False)
        runtime._fail(TrainingError("a full disk"), ends=True)
        runtime._fail(OSError("gone"), ends=True)
        with pytest.raises(TrainingError, match="a full disk"):
            peer.step()
        peer.step()


class OnDevice(torch.Tensor):
    """A loss on a GPU, which nothing reads."""

    is_cpu = False

    def __float__(self) -> float:
        raise AssertionError("reading it waits for the device")


def test_what_other_processes_of_a_peer_show_reads_no_loss_from_a_device() -> None:
    with Peer(linear(), settings("a")) as peer:
        peer.step(loss=torch.ones(()))
        assert peer._outlook().measured == {"loss": 1.0}
        peer.step(loss=torch.zeros(()).as_subclass(OnDevice))
        assert not peer._outlook().measured
        peer.step(loss=torch.ones(()))
