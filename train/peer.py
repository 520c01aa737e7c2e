"""A live peer: what a training loop talks to."""

import atexit
import logging
import math
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, Self, TypeVar

from torch import nn

from ..gossip import LocalProtocolError, Protocol, Rule, RumorError, TransportError
from ..gossip.protocol.leave import STOPPED
from ..gossip.protocol.rule import require_lr, require_samples, requirements_of
from ..gossip.transport.zmq_transport import Transport
from ..gossip.weight import founders
from .config import PeerConfig
from .loggers.logger import LoggerSpec
from .loop.average import Average, AverageEvaluation, Evaluate, average
from .loop.metrics import Loss
from .loop.model_check import ModelCheck
from .loop.report import save_peer_model
from .loop.signals import SignalHandling
from .loop.telemetry import Telemetry
from .model import require_own_process
from .runtime import join, shutdown
from .runtime.peer_folder import PeerFolder
from .runtime.runner import PeerRuntime
from .runtime.script import initial_model
from .runtime.script.environment import environment, peers_before, resolve_config
from .runtime.script.order import SwarmOrder
from .runtime.session import Made, PeerSession, open_transport
from .runtime.shutdown import MergeResult
from .runtime.telling.counters import Counters
from .runtime.telling.stats import PeerStats, protocol_stats
from .storage.checkpointer import Stateful
from .storage.inputs import Call
from .storage.journal import Journal
from .tasks.live_partition import training_of
from .tensors.vector import Vector

__all__ = ["Peer"]

_log = logging.getLogger("rumor")
_T = TypeVar("_T")

# What a step is taken to last before the first two are over.
_PACE_S: Final = 0.05

_running: "list[Peer]" = []
"""Peers of this process that were started and are not closed."""


class Peer:
    """One member of a swarm, around a model that is trained in the caller's own loop.

    ``with Peer(model) as peer:`` returns when the swarm is founded or joined; a newcomer's model
    then is a copy of its donor's. After each ``optimizer.step()`` call `step`. Leaving the block
    waits for the others to finish, for ``linger_s`` at most, and merges with them. Without a block,
    `start` and `close` do the same. A peer works in the process that started it alone: forked
    children, such as a data loader's workers, neither end it nor can use it.

    Args:
        model: Any module, on its final device and in its final dtype. Parameters that require
            gradients and floating buffers are averaged; an optimizer of any kind may be made
            before or after.
        config: All settings. The arguments below change some of them.
        join: Address of any member, or several; none to found a swarm.
        bind: Where to listen, such as ``"tcp://0.0.0.0:7700"``.
        topology: Spec of the graph that says who may push to whom.
        rule: The algorithm, such as ``GoSGD(p=0.01)``.
        seed: Of this peer's random choices.
        out: Folder for its ledger, metrics, checkpoints and, at the end, the model.
        name: What its swarm is called where a process makes several peers, each of another swarm:
            a GAN's two models, or one for each fold. All processes make peers of the same names;
            without names, peers of all processes that were made first belong together, then those
            that were made second, and so on.
        signals: Whether SIGTERM, SIGINT and SIGUSR1 make it leave, see `PeerConfig.signals`.
        local: Names of tensors, or of modules, that are each peer's own, see `PeerConfig.local`.
        loggers: Where metrics go besides, such as ``("tensorboard",)``.
        metrics_port: Where Prometheus finds metrics; 0 for a free port, which the log tells.
        evaluate: Gives ``{"accuracy": ..., "loss": ...}``, or one, of the `average` of all.
        evaluate_every: Steps between two such evaluations; both or neither of the two.
        checkpoints: Whether any are written into *out*; False where others keep its `state_dict`.

    Defaults come from the environment, where `rumor run`, Slurm or torchrun started the script.

    Raises:
        ConfigError: A setting is out of range, or a logger's package is not installed.
        TrainingError: The model has nothing to share, or other processes take part in its steps.
    """

    def __init__(
        self,
        model: nn.Module,
        config: PeerConfig | None = None,
        *,
        join: str | Sequence[str] | None = None,
        bind: str | None = None,
        topology: str | None = None,
        rule: Rule | str | None = None,
        seed: int | None = None,
        out: Path | str | None = None,
        name: str | None = None,
        signals: bool | None = None,
        local: str | Sequence[str] | None = None,
        loggers: Sequence[LoggerSpec] | None = None,
        metrics_port: int | None = None,
        evaluate: Evaluate | None = None,
        evaluate_every: int | None = None,
        checkpoints: bool = True,
    ) -> None:
        given: Any = {"join": join, "bind": bind, "topology": topology, "rule": rule, "seed": seed}
        given |= {"out": out, "signals": signals, "loggers": loggers, "metrics_port": metrics_port}
        given |= {"local": local}
        told = environment()
        before = peers_before(told)
        meet = told.fields.get("rendezvous")
        told, swarm = told.of_swarm(name, before)
        self.config = resolve_config(config, given, told)
        if checkpoints:
            self.config = self.config.in_folder()
        self.id = self.config.named()
        self.rule = self.config.make_rule()
        """The algorithm."""
        require_own_process(model)
        self._model = model
        wire, requirements = self.config.protocol.wire, requirements_of(self.rule)
        self.vector = Vector(
            model,
            self.rule.registers,
            shards=self.config.shards,
            scattered=requirements.scattered,
            local=self.config.local,
            carries_extra_state=True,
            keeps_anchor=requirements.needs_anchor(wire),
            sends_topk=requirements.notes_sent(wire),
            memory_models_max=math.inf if requirements.waits else self.config.memory_models,
        )
        self._check = ModelCheck(self.vector, wire, self.config.frozen_may_differ)
        self.stop = threading.Event()
        """Set it, on any thread, to give up searching, or waiting within a step or at the end."""
        self.journaled: Mapping[str, Any] | None = None
        """What a replay needs to know of the training; set before the start, it keeps a journal."""
        self.notes: Mapping[str, Any] = {}
        """What else goes into its folder at its start: values that JSON has, by the file's name."""
        self.opens: Callable[[PeerConfig], Transport] = partial(
            open_transport, network_faults=told.network_faults
        )
        """Opens its sockets; set it before the peer starts, to open others."""
        self.counters = Counters()
        """What was sent, mixed and refused so far."""
        self._folder = PeerFolder(self.config, model, self.vector, self._check.require_constant)
        self._session: PeerSession | None = None
        self.merged: MergeResult | None = None
        """How the last `merge` ended, that at the end of the block included; None before."""
        self._left, self._pace_s, self._told = False, _PACE_S, told
        self._stepped_s: float | None = None
        self._telemetry = Telemetry(
            *(self.config, model, self.vector, evaluate, evaluate_every, told.ready)
        )
        self._signals = SignalHandling(self.stop)
        self._on_start: list[Callable[[], object]] = []
        self._pid = os.getpid()
        before.append(swarm)
        self._order: SwarmOrder | None = None
        if meet is not None and self.config.rendezvous == told.fields["rendezvous"]:
            self._order = SwarmOrder(meet, self.id, before)

    def register(self, **objects: Stateful) -> None:
        """Keep the state of these in checkpoints, too, by these names: optimizer, scheduler,
        anything with ``state_dict`` and ``load_state_dict``. One that resumed gets it back now.

        Raises:
            ConfigError: One has no state, or the checkpoint has nothing by its name.
            LocalProtocolError: No checkpoints are kept.
        """
        self._folder.register(objects)

    def resume(self) -> bool:
        """Take up the last checkpoint: the model, all that is registered, and whom the peer knew.

        Call it before the block is entered; from then on other processes are kept out of the
        folder. Weight is not restored: within the swarm the peer is a newcomer, who becomes a copy
        of a donor. Random streams go on where they stood when the block is entered.

        Returns:
            Whether there was a checkpoint; `steps` then says where training goes on.

        Raises:
            ConfigError: It is another peer's, or of another model; or a process is in the folder.
            TrainingError: There are some, and none can be read; the message says why.
            LocalProtocolError: The peer runs already, or no checkpoints are kept.
        """
        if self._session is not None:
            raise LocalProtocolError("the peer is running: resume before `with`")
        self._check.begin()
        past = self._folder.resume(self.config.id)
        self.id = self._folder.owner or self.id
        return past is not None

    def state_dict(self) -> dict[str, Any]:
        """What others' checkpoints must keep of this peer beside the model: its id, incarnation,
        steps and swarm, and whom it knows; and, to be read, its weight, which is a donor's to give.

        Values are such as JSON has, but for ``anchor``: tensors, which some wires need.
        """
        if self._session is None:
            return {"id": self.id, "steps": self.steps}
        self._running().settle()
        return self._folder.state(self._session) | {"weight": self.weight}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on as the peer whose `state_dict` this is; call it before the block is entered. Others
        restore the model, the optimizer and random streams. Where `PeerConfig.id` is another one,
        steps alone are taken up, and this peer joins as a newcomer.

        Raises:
            TrainingError: It is no such state, and nothing was changed.
            LocalProtocolError: The peer runs already.
        """
        if self._session is not None:
            raise LocalProtocolError("the peer is running: resume before `with`")
        self.id = self._folder.take_up(state, self.config.id) or self.id

    def save_checkpoint(self, *, wait: bool = False) -> bool:
        """Write a checkpoint now, besides those that are written by the clock: training is held up
        while the state is copied; a thread writes it to disk, for which this waits with *wait*.

        Returns:
            Whether it is being written, or was; False while the last one still is.

        Raises:
            LocalProtocolError: The peer does not run, or no checkpoints are kept.
        """
        self._running().settle()
        return self._folder.save(self._current_session(), wait=wait)

    def __enter__(self) -> Self:
        """Call `start`."""
        return self.start()

    def start(self) -> Self:
        """Found or join, and say meanwhile what is waited for; `close` is to follow.

        Raises:
            ConfigError: An address or the metrics' port cannot be bound, the folder cannot be
                written, or holds checkpoints that were not resumed from.
            TransportError: No swarm was found in time, or before `stop` was set.
            IncompatiblePeer: The swarm trains another model; the first difference is named.
            LocalProtocolError: The peer was started before, or this process still imports the
                script that started it.
            SystemExit: A signal came meanwhile, see `PeerConfig.signals`.
        """
        if self._session is not None:
            raise LocalProtocolError("the peer was started before: make a new one with Peer(model)")
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise LocalProtocolError(
                "a child process imports this script and would start a peer, too: put what the "
                'script does below `if __name__ == "__main__":`'
            )
        if self.config.signals:
            self._signals = SignalHandling(self.stop)
            self._signals.install()
        self._pid = os.getpid()
        _running.append(self)
        try:
            self._begin()
        except BaseException as error:
            _running.remove(self)
            self._signals.remove()
            if isinstance(error, TransportError):
                self._signals.pass_on()
            raise
        atexit.register(self._abandon)
        return self

    def on_start(self, callback: Callable[[], object]) -> None:
        """Call *callback* once the peer has its initial model: a copy of the founders' or the
        donor's, or what a checkpoint held. Copies of the model, such as a target network, belong
        there: those that are made earlier are of a model that the start replaces. Of a peer that
        runs it is called at once.
        """
        if self._session is None:
            self._on_start.append(callback)
        else:
            callback()

    def _begin(self) -> None:
        made = Made(
            *(self.id, self.config, self.rule, self._model, self.vector, self.counters),
            journaled=self.journaled,
            notes=self.notes,
            opens=self.opens,
            measured=self._telemetry.measured,
            goes_on=self._told.resume,
            order=self._order,
        )
        try:
            if self._told.resume and self._folder.may_resume:
                self.resume()
            self._check.begin()
            self._folder.require_ready(self.rule)
            self._telemetry.serve(self.stats)
            if self._order is not None:
                self._order.note()
                self._order.require_alike()
            if (meet := self.config.rendezvous) is not None and self._folder.past is None:
                initial_model.begin_alike(
                    *(self._model, self.vector.schema, meet, self._told.index, self._told.count),
                    *(self.stop, self.config.join_timeout_s, self._order),
                )
            self._session = join.begin(made, self._folder, self.stop)
            for callback in self._on_start:
                callback()
            self._telemetry.begin(self.stats)
        except BaseException:
            self._close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Call `close`."""
        self.close(error)

    def close(self, error: BaseException | None = None) -> None:
        """Wait for the others to finish, for ``linger_s`` at most, merge with them, and leave.

        Called again, or in a forked child, it does nothing. A peer that is not closed when the
        interpreter ends is closed then.

        Args:
            error: What ended training; given one, the peer leaves without merging.

        Raises:
            TrainingError: As for `merge`.
            TransportError: The network thread failed.
            SystemExit: A signal has come, and it had no handler of its own.
        """
        if self not in _running or os.getpid() != self._pid:
            return
        _running.remove(self)
        atexit.unregister(self._abandon)
        went_early, has_failed = self._left, error is not None
        try:
            if not has_failed and not self._left:
                self.merge(self.config.linger_s)
                self._folder.end(self._current_session(), wait=True)
        except RumorError as failure:
            error, has_failed = failure, True
            raise
        finally:
            try:
                self._end(quietly=has_failed)
            finally:
                caught, early = self._signals.caught is not None, went_early or self.stop.is_set()
                self._telemetry.end(
                    *(self.stats, error, self.merged), caught=caught, left=self._left, early=early
                )
                # Its traceback keeps this frame, which must not keep it.
                del error
                self._signals.remove()
        if not has_failed:
            self._signals.pass_on()

    def _abandon(self) -> None:
        """Close the peer at the end of the interpreter, as the script has not."""
        self.close(getattr(sys, "last_value", None))

    def __reduce__(self) -> NoReturn:
        raise LocalProtocolError(
            "a peer cannot be pickled: it works in the process that started it alone, so give "
            "child processes what they need of it, such as peer.id or a state_dict"
        )

    def _end(self, *, quietly: bool) -> None:
        """Leave, unless that is done or needless, and close; *quietly*: hide no earlier error."""
        runtime = self._running()
        try:
            # After a failure, send nothing: peers must see a crash.
            is_over = self._left or not runtime.is_sound
            if not is_over and not runtime.look(lambda protocol: protocol.done):
                self._leave()
        except RumorError as failure:
            if not quietly:
                raise
            _log.warning("could not leave in good order: %s", failure)
        finally:
            self._close()

    @property
    def journal(self) -> Journal | None:
        """The journal, where one is kept; it is made when the peer starts."""
        return None if self._session is None else self._session.journal

    @property
    def has_left(self) -> bool:
        """Whether it went before the others were done, or is going."""
        return self._left

    @property
    def steps(self) -> int:
        """Optimizer steps of this peer, those before the checkpoint it resumed from included."""
        return self._folder.steps

    @property
    def metrics_url(self) -> str | None:
        """Where Prometheus finds its metrics; None where they are not served, or not now."""
        return self._telemetry.metrics_url

    def stats(self) -> PeerStats:
        """All its figures as they are now; on any thread, before its start and after its end."""
        stats = PeerStats(
            id=self.id,
            rule=self.rule.name,
            p=getattr(self.rule, "p", None),
            topology=self.config.topology,
            address=self.address,
            steps=self.steps,
            weights=(0,) * self.config.shards,
            counters=replace(self.counters),
            memory=self.vector.memory.use(),
            measured=self._telemetry.measured(),
        )
        if (session := self._session) is None:
            return stats
        known = self._running().look(protocol_stats)
        return replace(stats, **known, met=session.met, ended_by=self.ended_by)

    @property
    def swarm(self) -> str:
        """Hash of its swarm's first model, 32 hexadecimal digits; empty before it is in one."""
        return self._look(lambda protocol: protocol.swarm, b"").hex()

    @property
    def swarm_steps(self) -> int:
        """Optimizer steps of all peers that ever were in the swarm, as known at the last turn."""
        return self._look(lambda protocol: protocol.swarm_steps, 0)

    @property
    def ended_by(self) -> str:
        """Whose end is to be that of your loop, too: a peer's, under a rule such as
        ``seasgd:progress=fastest``, or ``rumor stop``; empty while that is so of nobody."""
        return "" if self._session is None else self._session.runtime.ended_by

    def progress(self, total_steps: int) -> float:
        """How much of so many steps the swarm has taken, in [0, 1]."""
        return min(1.0, self.swarm_steps / total_steps)

    @property
    def weight(self) -> float:
        """What this peer holds, in founders; with shards, the mean over them."""
        return founders(sum(self._held())) / self.config.shards

    @property
    def live(self) -> tuple[str, ...]:
        """Ids of everybody who is believed to run, this peer included, sorted."""
        return self._running().look(lambda p: tuple(member.id for member in p.live()))

    @property
    def training(self) -> dict[str, int]:
        """Steps of everybody in `live` who takes optimizer steps, by id."""
        return self._running().look(training_of)

    @property
    def address(self) -> str | None:
        """Where others reach this peer; the first of `addresses`, None where it only dials out."""
        return self.addresses[0] if self.addresses else None

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses that others are told to dial."""
        return () if self._session is None else self._session.addresses

    def step(
        self, *, loss: Loss | None = None, samples: int | None = None, lr: float | None = None
    ) -> None:
        """Mix what has arrived and now and then push a share.

        Call it after each ``optimizer.step()``. It waits for nobody, unless the rule is a
        synchronous one (``dpsgd``, ``allreduce``): then it returns when the round is complete.

        Args:
            loss: On the batch, for metrics, where there is a folder: a number, or a tensor with
                one, which is read where a row is written.
            samples: How many samples the step took, for a rule that weighs steps by them, such as
                ``gosgd:emission=per-second,samples=32``: under it, a step of 64 counts twice.
            lr: Learning rate of the step, where it changes from step to step, for rules that keep
                something in proportion to it, such as ``gradient-tracking``.

        Raises:
            ConfigError: The rule does not weigh steps by samples, and some are given; or it does,
                and none are; or the learning rate is none.
            TrainingError: A parameter is not finite, which is noticed at the next push, or after
                100 steps at most; the model is not what it was at first, after 10 at most; a
                synchronous rule has lost a member, which is named; the ledger cannot be written.
            LocalProtocolError: The peer has finished or left.
            SystemExit: A signal, or `rumor stop`, has ended the peer; see `PeerConfig.signals`.
        """
        session = self._current_session()
        if self._left and self._signals.caught is not None:
            # An earlier handler was called, and the loop went on.
            self._signals.exit()
        # If a process runs several peers, the first one alone slows their steps down.
        if self._told.slow > 1 and self._stepped_s is not None and _running[:1] == [self]:
            self.stop.wait((self._told.slow - 1) * (time.monotonic() - self._stepped_s))
        require_samples(self.rule, samples)
        require_lr(lr)
        lr = lr if requirements_of(self.rule).lr else None
        now = time.monotonic()
        if self._stepped_s is not None:
            # Smoothed over some ten steps: it sets the pace of pushes after the last step.
            self._pace_s += (now - self._stepped_s - self._pace_s) / 10
        self._check.after_step(self.steps + 1, self._pace_s)
        session.runtime.step(trained=True, stop=self.stop, samples=samples, lr=lr)
        self._folder.stepped(session)
        exchange_s = time.monotonic() - now
        apart_s = self._telemetry.stepped(
            *(self.steps, loss, exchange_s), stats=self.stats, average=self.average
        )
        self._stepped_s = now + apart_s if self._told.slow == 1 else time.monotonic()
        if self._signals.caught is not None:
            self.leave()
            self._signals.pass_on()
        elif self.config.signals and self.ended_by == STOPPED:
            self._stop_early()

    def trained_shard(self, shard: int) -> None:
        """Let a rule such as ``gosgd:layers=8`` push a shard that a step that goes on is through
        with; errors are those of `step`."""
        self._running().call(Call("trained_shard", {"shard": shard}))

    def evaluated(self, *, accuracy: float | None = None, loss: float | None = None) -> None:
        """Tell what was measured on held-out data: the fraction that is right, the mean loss."""
        self._current_session()
        self._telemetry.evaluated(accuracy, loss)

    @property
    def averaged(self) -> AverageEvaluation | None:
        """What this peer has measured last of the average of all; see *evaluate*."""
        return self._telemetry.averaged

    def save_model(self, path: Path | str) -> None:
        """Write the model and the peer's weight, as a safetensors file that `rumor merge` reads.

        The file appears whole, also where several peers write the same one: the last one counts.

        Raises:
            OSError: It cannot be written; what was there still is.
        """
        path = Path(path)
        # Drafts of one name would be torn between the peers that write them.
        own, with_frozen = path.with_name(f"{path.name}.{self.id}"), self.config.save_frozen
        save_peer_model(self.stats(), self._model, self.vector, own, with_frozen=with_frozen)
        own.replace(path)

    def wait(self, timeout_s: float) -> None:
        """Sleep until something has come since this was last called, or for so many seconds."""
        self._running().wait_for_share(timeout_s)

    def merge(self, timeout_s: float = 30.0) -> MergeResult:
        """Take no more steps, wait for the others to finish, and agree with them.

        The model then is the swarm's average, to within `ProtocolConfig.merge_tolerance`: peers
        compare their models. Where it is not, the result is false and the log says why. This call
        ends after *timeout_s* seconds, or when `stop` is set.

        Raises:
            TrainingError: A parameter is not finite, and was not sent; the model is not what it was
                at first; or the ledger cannot be written.
        """
        if self._left:
            self.merged = MergeResult(complete=False)
        else:
            self._check.require_sound()
            self.merged = shutdown.merge(self._running(), timeout_s, self._pace_s, self.stop)
        return self.merged

    def average(self, timeout_s: float = 10.0) -> Average:
        """The average of all live peers' models, weighted, as they are now; for evaluations.

        Their models are read one after another, each at its peer's next step: no weight moves, and
        training goes on, unless the rule waits. It costs a model's bytes for each peer, and two to
        three models of memory here. Call it between two steps, not after `merge`. *timeout_s* is
        for each of the others, seconds; the result names who does not answer.

        Returns:
            ``sum w_i x_i / sum w_i``, computed in float64, over what each held when it was read:
            shares that moved meanwhile count twice or not.

        Raises:
            LocalProtocolError: The peer has left, or is not running.
            TransportError: The network thread failed.
            TrainingError: The ledger cannot be written.
        """
        runtime = self._running()
        if self._left:
            raise LocalProtocolError("the peer has left: read the average before")
        return average(runtime, self.vector, timeout_s, self.stop)

    def leave(self) -> None:
        """Leave the swarm: resolve the escrow and hand the weight to a neighbor.

        Takes ``leave_s`` at most, and gives up after seconds where nobody answers. A model that is
        not finite hands nothing on; its weight is burned. A checkpoint is written before, if any.

        Raises:
            TrainingError: The ledger cannot be written: the weight is lost, as in a crash.
        """
        self._running().settle()
        self._folder.end(self._current_session())
        self._leave()

    def _stop_early(self) -> NoReturn:
        """End the process in order; merged, where the rule lets peers end after unequal steps."""
        if requirements_of(self.rule).waits:
            self.leave()
        else:
            self.merge(self.config.linger_s)
            self._folder.end(self._current_session(), wait=True)
        raise SystemExit(0)

    def _leave(self) -> None:
        runtime, self._left = self._running(), True
        runtime.settle()
        shutdown.leave(runtime, self.counters, self.config.leave_s, self._pace_s, self.vector)

    def _running(self) -> PeerRuntime:
        return self._current_session().runtime

    def _held(self) -> tuple[int, ...]:
        """Weight of each shard, escrow not counted."""
        return self._look(lambda p: tuple(a.weight for a in p.accounts), (0,) * self.config.shards)

    def _look(self, glance: Callable[[Protocol], _T], otherwise: _T) -> _T:
        """Read something of the protocol, where there is one."""
        return otherwise if self._session is None else self._running().look(glance)

    def _current_session(self) -> PeerSession:
        if self._session is None:
            raise LocalProtocolError(
                "the peer is not running: use it inside `with Peer(...)`, or call peer.start()"
            )
        if os.getpid() != self._pid:
            # Another thread may have held any lock when this process was forked.
            raise LocalProtocolError(
                f"process {os.getpid()} was forked from that of peer {self.id}: a peer works in "
                "the process that started it alone"
            )
        return self._session

    def _close(self) -> None:
        try:
            if self._session is not None:
                self._session.close()
        finally:
            self.vector.layout.part()
            self._folder.close()
            self._telemetry.stop_serving()
