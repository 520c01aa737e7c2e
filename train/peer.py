"""A live peer, the interface for a training loop."""

import atexit
import math
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from numbers import Real
from pathlib import Path
from typing import Any, Concatenate, Final, NoReturn, ParamSpec, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..gossip import ConfigError, Rule, RumorError, TransportError
from ..gossip.errors import LocalProtocolError
from ..gossip.protocol.leave import STOPPED
from ..gossip.protocol.rule import require_lr, require_samples, requirements_of
from ..gossip.specs.parameter import Parameter
from ..gossip.transport.zmq_transport import Transport
from ..gossip.types import Incarnation
from ..gossip.weight import founders
from .config import PeerConfig
from .loop.average import Average, Evaluate, average
from .loop.backward import BackwardSteps
from .loop.group.detection import ranks_of
from .loop.group.rank_files import RankFiles, SpreadState
from .loop.group.rank_group import RankGroup, meet
from .loop.group.shared_model import OwnParts, Parts, Place, SharedModel, open_part
from .loop.model_check import ModelCheck
from .loop.signals import SignalHandling
from .loop.telemetry import Loss, Telemetry, save_peer_model
from .model import state_dict
from .runtime import shutdown
from .runtime.opening import open_runtime, open_transport
from .runtime.peer_folder import PeerFolder
from .runtime.runner import PeerRuntime
from .runtime.script import initial_model
from .runtime.script.environment import environment, peers_before, resolve_config
from .runtime.search import join_swarm, showing
from .runtime.shutdown import MergeResult
from .runtime.telling.stats import Counters, PeerStats, protocol_stats
from .storage.checkpoint import Stateful
from .tensors.state import ExtraState, pack_state, unpack_state
from .tensors.vector import Vector

__all__ = ["Peer"]

# Steps between two checks of the frozen parameters of each process of a group.
_LOOK_EVERY_STEPS: Final = 100

_TIMEOUT: Final = Parameter(name="timeout_s", low=0, is_endless=True)

_P = ParamSpec("_P")
_T = TypeVar("_T")

_running: "list[Peer]" = []
"""Peers of this process that are started and not closed."""


def _number(name: str, value: object) -> float | None:
    """Return an optional number, which may be numpy's or a tensor, as a float."""
    if value is None:
        return None
    if isinstance(value, Tensor | np.ndarray) and math.prod(value.shape) == 1:
        value = value.item()
    if isinstance(value, Real):
        return float(value)
    raise ConfigError(f"{name} is {value!r}: it must be a number")


def _loss(value: object) -> Loss | None:
    """Return the loss of a step; a tensor is checked and not read."""
    if not isinstance(value, Tensor):
        return _number("loss", value)
    if value.numel() != 1 or value.is_complex():
        raise ConfigError(
            f"loss is a tensor of shape {(*value.shape,)} and {value.dtype}: it must be one real "
            "number"
        )
    return value


def _on_all_ranks(
    method: "Callable[Concatenate[Peer, _P], _T]",
) -> "Callable[Concatenate[Peer, _P], _T]":
    """Make all processes of a group call a method together, with their model up to date."""

    @wraps(method)
    def together(self: "Peer", /, *args: _P.args, **given: _P.kwargs) -> _T:
        group = self._group
        if group is None:
            return method(self, *args, **given)

        def act() -> _T:
            group.refresh()
            return method(self, *args, **given)

        return group.call(method.__name__, act)

    return together


class Peer:
    """One member of a swarm, around a model that is trained in the caller's own loop.

    ``with Peer(model) as peer:`` enters once the swarm is founded or joined; a newcomer's model
    is then a copy of its donor's. Call `step` after each ``optimizer.step()``. Without a block,
    `start` and `close` do the same. Forked children, such as a data loader's workers, neither end
    the peer nor can use it.

    The end of the block, or `close`, is for a finished loop: the peer merges with the others, for
    ``linger_s`` at most, and leaves. `leave` is for a loop that stops while others train on: the
    peer hands over its weight without waiting for them. `merge` gives the swarm's average before
    the end of the block, for example to evaluate it.

    Defaults come from the environment if `rumor run`, Slurm or torchrun started the script.

    Args:
        model: Any module, on its final device and in its final dtype. Parameters that require
            gradients and floating buffers are averaged; an optimizer may be made before or after.
        config: All settings. The arguments below, up to *out*, override some of them.
        join: Addresses of members, or one list for all peers; without one, found a swarm.
        bind: Address to listen on, such as ``"tcp://0.0.0.0:7700"``.
        topology: Spec of the graph of peers that may push to each other.
        rule: The algorithm, such as ``GoSGD(p=0.01)``, for this peer alone; ``make_rule(spec)``
            makes one from a spec.
        name: Name of this peer, unique in its swarm (`PeerConfig.id`).
        out: Folder for its ledger, metrics, checkpoints and, at the end, the model.
        swarm: Name of its swarm if a process makes several peers, such as for a GAN's two models.
            Default: the first peers of all processes form one swarm, the second ones another.
        evaluate: Returns ``{"accuracy": ..., "loss": ...}``, or one of them, of the `average` of
            all.
        evaluate_every: Steps between evaluations; requires *evaluate*, and vice versa.
        checkpoints: False if the caller keeps its `state_dict`, and *out* needs no checkpoints.
        group: Process group of all processes that train the model together; default: that of its
            `DistributedDataParallel`, or the mesh of its DTensors (FSDP2, tensor parallel). They
            are one peer: each makes it, and makes the same calls of it.

    Raises:
        ConfigError: A setting is out of range, or a logger's package is not installed.
        TrainingError: The model has nothing to share; or the processes that train it are on several
            machines, or do not all make the peer.
    """

    def __init__(
        self,
        model: nn.Module,
        config: PeerConfig | None = None,
        *,
        join: str | Sequence[str] | None = None,
        bind: str | None = None,
        topology: str | None = None,
        rule: Rule | None = None,
        name: str | None = None,
        out: Path | str | None = None,
        swarm: str | None = None,
        evaluate: Evaluate | None = None,
        evaluate_every: int | None = None,
        checkpoints: bool = True,
        group: Any = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ConfigError(f"model is a {type(model).__name__}: it must be an nn.Module")
        if isinstance(rule, str):
            raise ConfigError(
                f"rule is {rule!r}: give a rule, such as GoSGD(p=0.1), or make_rule({rule!r})"
            )
        given: dict[str, Any] = {"id": name, "join": join, "bind": bind, "topology": topology}
        given |= {"rule": rule, "out": out}
        ranks = ranks_of(model, group)
        rank = ranks.index(torch.distributed.get_rank()) if ranks else 0
        told = replace(environment(ranks=max(1, len(ranks))), rank=rank)
        before = peers_before(told)
        told, swarm = told.of_swarm(swarm, before)
        self.environment = told
        """Settings from outside; with a group, those of its machine's peer, not of each process."""
        self.config = resolve_config(config, given, told)
        """All settings, including those from the environment."""
        if checkpoints:
            self.config = self.config.in_folder()
        self._id = self.config.named()
        self._rule = self.config.make_rule()
        self._model = model
        self._stop = threading.Event()
        """Set on any thread to end all waiting for others."""
        self._counters = Counters()
        self._runtime: PeerRuntime | None = None
        self.merged: MergeResult | None = None
        """Result of the last `merge`, including that at the end of the block; None before."""
        self._left = False
        self._pace_s = 0.05  # assumed until the first two steps are over
        self._leaving = threading.Lock()
        self._stepped_s: float | None = None
        self._signals = SignalHandling(self._stop)
        self._on_start: list[Callable[[], object]] = []
        self._has_begun = False
        self._pid = os.getpid()
        self._group: RankGroup | None = None
        if not ranks:
            self._prepare(model, evaluate, evaluate_every)
        else:
            if evaluate is not None or requirements_of(self._rule).overlaps:
                what = "evaluate=" if evaluate is not None else "a rule with layers="
                raise ConfigError(f"{what} needs a whole model, and {len(ranks)} processes hold it")
            self._group = meet(ranks, model)
            self._share_model(self._group)
        before.append(swarm)

    def _prepare(
        self,
        model: nn.Module,
        evaluate: Evaluate | None = None,
        evaluate_every: int | None = None,
        empty: Callable[[int, torch.dtype], Tensor] | None = None,
    ) -> None:
        """Set up what the process that runs the protocol has; *empty* allocates its vector."""
        wire, requirements = self.config.protocol.wire, requirements_of(self._rule)
        self._whole = model
        self._vector = Vector(
            model,
            self._rule.registers,
            shards=self.config.shards,
            scattered=requirements.scattered,
            local=self.config.local,
            carries_extra_state=True,
            keeps_anchor=requirements.needs_anchor(wire),
            sends_topk=requirements.notes_sent(wire),
            memory_models_max=math.inf if requirements.waits else self.config.memory_models,
            empty=empty,
        )
        self._check = ModelCheck(self._vector, self.config.frozen_may_differ)
        # rumor's own loops, not scripts, set the attributes from here to `_opens` before the start.
        self._journaled: Mapping[str, Any] | None = None
        """Training settings that a replay needs, for a peer that keeps a journal."""
        self._notes: Mapping[str, Any] = {}
        """JSON values to write into its folder at its start, by file name."""
        self._opens: Callable[[PeerConfig], Transport] = partial(
            open_transport, network_faults=self.environment.network_faults
        )
        """Opens its sockets."""
        # Not a method of this peer, which would be a cycle of references.
        on_save = None if self._group is None else self._group.save
        self._folder = PeerFolder(
            self.config, model, self._vector, self._check.require_constant, on_save
        )
        self._telemetry = Telemetry(
            *(self.config, model, self._vector, evaluate, evaluate_every, self.environment.ready)
        )

    def _share_model(self, group: RankGroup) -> None:
        """Let the leader of a group set up a whole model in memory that all its processes share."""
        segments: list[Tensor] = []

        def make() -> tuple[list[Place], list[tuple[str, int]]]:
            shared = SharedModel(self._model, self.config.local)
            self._prepare(shared.module, empty=shared.empty)
            segments.extend(shared.segments)
            self._vector.refresh = group.refresh
            group.version, group.outlook = lambda: self._vector.version, self._outlook
            group.on_failure, group.on_stuck = self._stop.set, self._give_up
            group.stuck_s = self.config.stuck_s
            return shared.places(self._vector.layout), shared.names()

        places, names = group.call("Peer()", make)
        segments = segments or [open_part(*name) for name in names]
        self._parts = Parts(self._model, places, segments, leads=group.leads)
        if group.leads:
            self._vector.parts = OwnParts(self._parts, group.ask_for_parts)
        checkpoint = self.config.checkpoint
        folder, kept = (checkpoint.folder, checkpoint.kept) if checkpoint else (None, 1)
        self._files = RankFiles(None if group.leads else folder, group.rank, kept)
        group.handlers |= {
            "write": lambda everything: self._parts.write(everything=everything),
            "read": lambda everything: self._parts.read(everything=everything),
            "take": self._parts.take,
            "mix": self._parts.mix,
            "extra": self._take_extra,
            "kept": lambda _: self._files.kept(),
            "save": self._files.save,
            "load": self._files.load,
        }

    def _take_extra(self, packed: bytes) -> None:
        if self._is_follower:
            ExtraState(self._model).restore(unpack_state(packed))

    @property
    def _is_follower(self) -> bool:
        """True for a process of a group that does not run the protocol."""
        return self._group is not None and not self._group.leads

    @property
    def id(self) -> str:
        """Name of the peer; after `resume`, the one in the checkpoint."""
        return self._shown.id if self._is_follower else self._id

    @property
    def rank(self) -> int:
        """Number of this process among those that train the model together, from 0."""
        return 0 if self._group is None else self._group.rank

    @property
    def is_leader(self) -> bool:
        """True for the process that runs the protocol: the only one, or the first of a group."""
        return not self._is_follower

    def register(self, **objects: Stateful) -> None:
        """Save the state of these objects in checkpoints; after `resume`, restore it now.

        They have ``state_dict`` and ``load_state_dict``, such as an optimizer or a scheduler. This
        has no effect if the peer keeps no checkpoints.

        Raises:
            ConfigError: One has no state, or the checkpoint has nothing by its name.
        """
        if self._group is not None:
            objects = {name: SpreadState(each, self._model) for name, each in objects.items()}
        if self._is_follower:
            self._files.register(objects)
        else:
            self._folder.register(objects)

    @_on_all_ranks
    def resume(self) -> bool:
        """Load the last checkpoint: the model, all registered objects, and the known peers.

        Returns False without a checkpoint. Training continues at `steps`. Call it before entering
        the block, which restores random streams. Weight is not restored: in the swarm the peer is a
        newcomer, which copies a donor's model.

        Raises:
            ConfigError: It is another peer's, or of another model; or a process uses the folder.
            TrainingError: No checkpoint can be read; the message says why.
            LocalProtocolError: The peer is already running, or keeps no checkpoints.
        """
        group = self._group
        if self._runtime is not None:
            raise LocalProtocolError("the peer is running: resume before `with`")
        if group is None:
            self._check.begin()
            found = self._folder.resume(self.config.id)
        else:
            group.refresh(everything=True)
            self._check.begin()
            _, *kept = group.ask("kept")
            found = self._folder.resume(
                self.config.id,
                lambda each: all(each.head["steps"] in steps for steps in kept),
            )
            if found:
                group.ask("load", self._folder.steps)
                group.ask("read", True)
        self._id = self._folder.owner or self._id
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the state to keep in your own checkpoints next to the model.

        Its values are JSON values, except ``anchor``: tensors, which some wires need.
        """
        group = self._group
        if group is None:
            return self._state()
        return group.call("state_dict", self._state, lambda state: state | {"anchor": []})

    def _state(self) -> dict[str, Any]:
        self._vector.refresh()
        if self._runtime is None:
            return {"id": self.id, "steps": self.steps}
        return self._folder.state(self._runtime) | {"weight": self.weight}

    @_on_all_ranks
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue as the peer that *state* was saved from; call it before entering the block.

        The caller restores the model, the optimizer and random streams. If `PeerConfig.id`
        differs, only the steps are restored, and this peer joins as a newcomer.

        Raises:
            TrainingError: It is not the state of a peer; nothing was changed.
            LocalProtocolError: The peer is already running.
        """
        if self._runtime is not None:
            raise LocalProtocolError("the peer is running: resume before `with`")
        self._id = self._folder.take_up(state, self.config.id) or self._id

    @_on_all_ranks
    def save_checkpoint(self, *, wait: bool = False) -> bool:
        """Copy the state for a checkpoint now, which a thread writes to disk; *wait* waits for it.

        Returns False if the last one is still being written.

        Raises:
            LocalProtocolError: The peer is not running, or keeps no checkpoints.
        """
        return self._folder.save(self._running(), wait=wait)

    def __enter__(self) -> Self:
        return self.start()

    def start(self) -> Self:
        """Found or join a swarm, logging what it waits for; call `close` in the end.

        Raises:
            ConfigError: An address or the metrics port cannot be bound, or the folder cannot be
                written or holds checkpoints that were not resumed from.
            TransportError: No swarm was found in time, or before a signal came.
            IncompatiblePeer: The swarm trains another model; the message names the first
                difference.
            LocalProtocolError: The peer was started before, or this process is still importing the
                script that started it.
            SystemExit: A signal came, see `PeerConfig.signals`.
        """
        if self._runtime is not None or self._has_begun:
            raise LocalProtocolError("the peer was started before: make a new one with Peer(model)")
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise LocalProtocolError(
                "a child process imports this script and would start a peer, too: put what the "
                'script does below `if __name__ == "__main__":`'
            )
        if self.config.signals:
            self._signals = SignalHandling(self._stop)
            self._signals.install()
            if self._group is not None:
                self._group.signals = self._signals
        self._pid = os.getpid()
        _running.append(self)
        try:
            self._enter()
            if self._is_follower:
                self._files.enter()
            self._has_begun = True
            for callback in self._on_start:
                callback()
            if not self._is_follower:
                self._telemetry.begin(self.stats)
        except BaseException as error:
            self._has_begun = False
            _running.remove(self)
            try:
                if self._group is not None:
                    self._group.fail(error)
                if not self._is_follower:
                    self._close()
                self._close_group()
            finally:
                self._runtime = None
                self._signals.remove()
            if isinstance(error, TransportError):
                self._signals.pass_on()
            raise
        atexit.register(self._abandon)
        return self

    def on_start(self, callback: Callable[[], object]) -> None:
        """Call *callback* once the peer has its initial model, or now if it already has.

        Make copies of the model, such as a target network, there, as the start replaces the model.
        """
        if not self._has_begun:
            self._on_start.append(callback)
        else:
            callback()

    @_on_all_ranks
    def _enter(self) -> None:
        group, told = self._group, self.environment
        if group is not None:
            group.refresh(everything=True)
            self._vector.forget_sent()
        if told.resume and self._folder.may_resume:
            self.resume()
        self._check.begin()
        self._folder.require_ready(self._rule)
        self._telemetry.serve(self.stats)
        if (meet := self.config.rendezvous) is not None and self._folder.past is None:
            of_mine = self._whole, self._vector.schema, meet
            if told.index:
                initial_model.adopt(*of_mine, self._stop, self.config.join_timeout_s)
            elif told.count > 1:
                initial_model.leave(*of_mine)
        # Fixed members found together once, and never come back.
        goes_on = told.resume and not requirements_of(self._rule).fixed_members
        with showing(self.config):
            join_swarm(
                *(self._open, self.config, self._folder, self.id, self._stop), goes_on=goes_on
            )
        # The network thread's mixing must finish before training touches the vector.
        self._vector.follow()
        extra = self._vector.extra_state
        if extra is not None:
            extra.unpack()
        self._folder.entered()
        if group is not None:
            group.refresh(everything=True)
            group.ask("read", True)
            group.note_version()
            if extra is not None:
                group.ask("extra", pack_state(extra.state()))

    def _open(self, incarnation: Incarnation) -> PeerRuntime:
        self._runtime = None  # an earlier one is closed
        self._runtime = open_runtime(
            incarnation,
            id=self.id,
            config=self.config,
            rule=self._rule,
            vector=self._vector,
            counters=self._counters,
            stats=self.stats,
            opens=self._opens,
            past=self._folder.past,
            journaled=self._journaled,
            notes=self._notes,
        )
        return self._runtime

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        self.close(error)

    def close(self, error: BaseException | None = None) -> None:
        """Wait for the others to finish, for ``linger_s`` at most, merge with them, and leave.

        The end of the block calls it, or that of the interpreter. Writes checkpoint and model if
        the peer has a folder. After `leave` it only closes sockets and files. With the *error* that
        ended training, the peer leaves without merging.

        Raises:
            TrainingError: As for `merge`.
            TransportError: The network thread failed.
            SystemExit: A signal came that has no handler of its own.
        """
        if self not in _running or os.getpid() != self._pid:
            return
        _running.remove(self)
        atexit.unregister(self._abandon)
        group, has_failed = self._group, error is not None
        try:
            if group is None or (has_failed and group.leads):
                if group is not None and error is not None:
                    group.fail(error)
                self._finish(error)
            elif error is None:
                self.merged = group.call("close", self._finish)
            else:
                group.fail(error)
        finally:
            # The traceback refers to this frame: a reference back would be a cycle.
            del error
            self._close_group()
            self._signals.remove()
        if not has_failed:
            self._signals.pass_on()

    def _finish(self, error: BaseException | None = None) -> MergeResult | None:
        """Merge, unless training ended with an error, and leave; return the last merge's result."""
        went_early, has_failed = self._left, error is not None
        try:
            if not has_failed and not self._left:
                self.merge(self.config.linger_s)
                self._folder.end(self._running(), wait=True)
        except RumorError as failure:
            error, has_failed = failure, True
            raise
        finally:
            try:
                self._end(quietly=has_failed)
            finally:
                caught, early = self._signals.caught is not None, went_early or self._stop.is_set()
                self._telemetry.end(
                    *(self.stats, error, self.merged), caught=caught, left=self._left, early=early
                )
                del error
        return self.merged

    def _abandon(self) -> None:
        """Close the peer at the end of the interpreter, if the script did not."""
        self.close(getattr(sys, "last_value", None))

    def __reduce__(self) -> NoReturn:
        raise LocalProtocolError(
            "a peer cannot be pickled: it works in the process that started it alone, so give "
            "child processes what they need of it, such as peer.id or a state_dict"
        )

    def _end(self, *, quietly: bool) -> None:
        """Leave, if still needed, and close; *quietly* hides no earlier error."""
        runtime = self._running()
        try:
            with self._leaving:
                # After a failure, send nothing, so that peers see a crash.
                is_over = self._left or not runtime.is_sound
                if not is_over and not runtime.look(lambda protocol: protocol.done):
                    self._leave(quietly=quietly)
        finally:
            self._close()

    @property
    def steps(self) -> int:
        """Optimizer steps of this peer, including those before the checkpoint it resumed from."""
        return self._shown.steps if self._is_follower else self._folder.steps

    @property
    def _shown(self) -> PeerStats:
        """Figures that all processes of a group have, of the leader's last call."""
        assert self._group is not None
        shown: PeerStats = self._group.shown
        return shown

    def stats(self) -> PeerStats:
        """Return current figures, on any thread; in a group, followers have the last exchange's."""
        if self._is_follower:
            return self._shown
        return replace(self._figures(), measured=self._telemetry.measured())

    def _outlook(self) -> PeerStats:
        """Return what followers show; it is sent to them in each step."""
        # A loss on a GPU would make each step wait for it, and another thread counts the traffic.
        stats = self._figures()
        measured = self._telemetry.measured(from_device=False)
        return replace(stats, measured=measured, counters=replace(stats.counters, links={}))

    def _figures(self) -> PeerStats:
        memory = self._vector.memory
        stats = PeerStats(
            id=self.id,
            rule=self._rule.name,
            p=getattr(self._rule, "p", None),
            topology=self.config.topology,
            steps=self.steps,
            weights=(0,) * self.config.shards,
            counters=replace(self._counters),
            memory_bytes=memory.used_bytes + memory.idle_bytes,
            model_bytes=self._vector.size_bytes,
            metrics_url=self._telemetry.metrics_url,
            has_left=self._left,
        )
        if (runtime := self._runtime) is None:
            return stats
        known = self._running().look(protocol_stats)
        known |= {"addresses": runtime.addresses, "met": runtime.met, "ended_by": runtime.ended_by}
        return replace(stats, **known)

    @property
    def swarm_steps(self) -> int:
        """Optimizer steps of all peers that were ever in the swarm, as known at the last turn."""
        if self._group is not None:
            return self._shown.swarm_steps
        runtime = self._runtime
        return 0 if runtime is None else runtime.look(lambda p: p.state.swarm_steps)

    @property
    def ended_by(self) -> str:
        """Id of the peer whose end should end this loop, or ``rumor stop``; empty until then."""
        if self._group is not None:
            return self._shown.ended_by
        return "" if self._runtime is None else self._runtime.ended_by

    @property
    def weight(self) -> float:
        """Averaging weight of this peer, in founders; with shards, the mean over them."""
        if self._group is not None:
            return self._shown.weight
        held = 0 if self._runtime is None else self._running().look(lambda p: p.state.weight)
        return founders(held) / self.config.shards

    @property
    def members(self) -> tuple[str, ...]:
        """Sorted ids of all members that are considered alive, this peer included."""
        if self._group is not None:
            return self._shown.members
        return self._running().look(lambda p: tuple(member.id for member in p.table.live()))

    @property
    def address(self) -> str | None:
        """First of `PeerStats.addresses`, for others to dial; None if this peer only dials out."""
        return self.stats().address

    def step(
        self, *, loss: Loss | None = None, samples: int | None = None, lr: float | None = None
    ) -> None:
        """Mix the shares that have arrived, and occasionally push one.

        Call it after each ``optimizer.step()``. It waits for no peer, except under a synchronous
        rule (``dpsgd``, ``allreduce``): then it returns when the round is complete.

        Args:
            loss: Loss on the batch, for metrics: a number, or a tensor with one, which is read only
                when a row is written.
            samples: Number of samples in the step, for a rule that weights steps by them, such as
                ``gosgd:emission=per-second,samples=32``: under it, a step of 64 counts twice.
            lr: Learning rate of the step, if it changes, for rules with a state proportional to it,
                such as ``gradient-tracking``.

        Raises:
            ConfigError: *samples* is given and the rule does not weight steps by samples, or the
                reverse; *lr* is not a learning rate; or *loss* is not one number.
            TrainingError: A parameter is not finite, detected at the next push, or after 100 steps
                at most; the model's tensors were replaced, detected after 10 at most; a
                synchronous rule has lost a member, which is named; or the ledger cannot be written.
            LocalProtocolError: The peer has finished or left.
            SystemExit: A signal, or `rumor stop`, has ended the peer; see `PeerConfig.signals`.
        """
        loss, lr = _loss(loss), _number("lr", lr)
        group = self._group
        if group is None:
            self._step(loss, samples, lr)
        else:
            if (self.steps + 1) % _LOOK_EVERY_STEPS == 0 and not self.config.frozen_may_differ:
                self._parts.require_constant()
            group.call("step", partial(self._step, loss, samples, lr))
        # A signal that has come since then ends the next step, at all processes of a group.
        if self._signals.caught is not None and (group is None or self._shown.has_left):
            self._signals.pass_on()

    def _step(self, loss: Loss | None, samples: int | None, lr: float | None) -> None:
        runtime = self._running()
        if self._left and self._signals.caught is not None:
            # The script's own signal handler ran, and the loop continued.
            self._signals.exit()
        if self._left or self.merged is not None:
            runtime.require_sound()
            ended = "leave" if self._left else "merge"
            raise LocalProtocolError(
                f"peer.step() after peer.{ended}(): the peer takes no more steps; make a new one, "
                "Peer(model), to train on"
            )
        slow = self.environment.slow
        # If a process runs several peers, only the first slows their steps down.
        if slow > 1 and self._stepped_s is not None and _running[:1] == [self]:
            self._stop.wait((slow - 1) * (time.monotonic() - self._stepped_s))
        require_samples(self._rule, samples)
        require_lr(lr)
        now = time.monotonic()
        if self._stepped_s is not None:
            # Smoothed over about ten steps; it sets the pace of pushes after the last step.
            self._pace_s += (now - self._stepped_s - self._pace_s) / 10
        self._check.after_step(self.steps + 1)
        known_lr = lr if requirements_of(self._rule).lr else None
        runtime.step(trained=True, stop=self._stop, samples=samples, lr=known_lr)
        self._folder.stepped(runtime)
        exchange_s = time.monotonic() - now
        apart_s = self._telemetry.stepped(
            *(self.steps, loss, exchange_s), lr=lr, stats=self.stats, average=self.average
        )
        self._stepped_s = now + apart_s if slow == 1 else time.monotonic()
        if self._signals.caught is not None:
            self.leave()
        elif self.config.signals and runtime.ended_by == STOPPED:
            self._stop_early()

    def overlap(self, optimizer: Optimizer) -> BackwardSteps:
        """Take *optimizer*'s steps within the backward pass, for a rule such as ``gosgd:layers=8``.

        Each shard is pushed as soon as its step is done. Call ``finish()`` of the result in place
        of ``optimizer.step()``.
        """
        if self._group is not None:
            raise ConfigError("overlap() needs a whole model, and several processes hold it")
        return BackwardSteps(self._model, optimizer, self._vector.schema, self._trained_shard)

    def _trained_shard(self, shard: int) -> None:
        self._running().call("trained_shard", shard=shard)

    def log(self, *, accuracy: float | None = None, loss: float | None = None) -> None:
        """Record accuracy (a fraction) and mean loss on held-out data; `step` takes a batch's."""
        if not self._is_follower:
            self._running()
            accuracy, loss = _number("accuracy", accuracy), _number("loss", loss)
            self._telemetry.evaluated(accuracy, loss)

    def model_state_dict(self) -> dict[str, Any]:
        """Return the model's state dict, of detached tensors that each own their memory.

        Names omit the prefixes of `torch.compile` and `DistributedDataParallel`, so an unwrapped
        model can load it. In a group, the leader gets whole tensors, and the others nothing.
        """
        # Parameters are views into one flat tensor: `torch.save` of one would write all of it.
        self._refresh()
        return {} if self._is_follower else state_dict(self._whole)

    @_on_all_ranks
    def _refresh(self) -> None:
        """Make the group's whole model current."""

    @_on_all_ranks
    def save_model(self, path: Path | str) -> None:
        """Write the model and the peer's weight, as a safetensors file that `rumor merge` reads.

        The file is replaced atomically; if several peers write the same one, the last one wins.

        Raises:
            OSError: It cannot be written; an earlier file is unchanged.
        """
        path = Path(path)
        # Peers that write to the same path need drafts of different names.
        own, with_frozen = path.with_name(f"{path.name}.{self.id}"), self.config.save_frozen
        save_peer_model(self.stats(), self._whole, self._vector, own, with_frozen=with_frozen)
        own.replace(path)

    def merge(self, timeout_s: float = 30.0) -> MergeResult:
        """Wait for the others to finish and agree with them on the average, taking no more steps.

        The peer stays a member, and its model is the swarm's average, to within
        `ProtocolConfig.merge_tolerance`. If it is not, the result is false and the log says why.
        This call ends after *timeout_s* seconds, or on a signal.

        Raises:
            ConfigError: *timeout_s* is not a number of seconds.
            TrainingError: A parameter is not finite, and was not sent; the model's tensors were
                replaced; or the ledger cannot be written.
        """
        _TIMEOUT.check(timeout_s)
        self.merged = self._merge(timeout_s)
        return self.merged

    @_on_all_ranks
    def _merge(self, timeout_s: float) -> MergeResult:
        if self._left:
            return MergeResult(complete=False)
        self._check.require_sound()
        return shutdown.merge(self._running(), timeout_s, self._pace_s, self._stop)

    def average(self, timeout_s: float = 10.0) -> Average:
        """Return the current weighted average of all live peers' models, for evaluation.

        It is ``sum w_i x_i / sum w_i``, in float64, in two to three models of memory. Models are
        read one after another, each at its peer's next step; the result names peers that do not
        answer within *timeout_s* seconds. No weight moves, and training continues, except under
        a synchronous rule. Shares that move in the meantime count twice or not at all. Call it
        between two steps, not after `merge`. In a group, the leader alone gets the state.

        Raises:
            ConfigError: *timeout_s* is not a number of seconds.
            LocalProtocolError: The peer has left, or is not running.
            TransportError: The network thread failed.
            TrainingError: The ledger cannot be written.
        """
        _TIMEOUT.check(timeout_s)
        read = partial(self._average, timeout_s)
        if self._group is None:
            return read()
        return self._group.call("average", read, lambda average: replace(average, state={}))

    def _average(self, timeout_s: float) -> Average:
        self._vector.refresh()
        runtime = self._running()
        if self._left:
            raise LocalProtocolError("the peer has left: read the average before")
        return average(runtime, self._vector, timeout_s, self._stop)

    @_on_all_ranks
    def leave(self) -> None:
        """Leave the swarm while others train on, without waiting for them to finish.

        The peer writes a checkpoint, if it keeps any, hands its weight to a neighbor and takes no
        more steps; `close` then does not merge. Takes ``leave_s`` at most, and gives up after
        seconds if no peer answers. If the model is not finite, its weight is burned.

        Raises:
            TrainingError: The ledger cannot be written; the weight is lost, as in a crash.
        """
        self._folder.end(self._running())
        self._leave()

    def _stop_early(self) -> NoReturn:
        """End the process in order; merge first if the rule's peers may take unequal steps."""
        if requirements_of(self._rule).waits:
            self.leave()
        else:
            self.merge(self.config.linger_s)
            self._folder.end(self._running(), wait=True)
        raise SystemExit(0)

    def _leave(self, *, quietly: bool = False) -> None:
        runtime, self._left = self._running(), True
        act = shutdown.leave_or_warn if quietly else shutdown.leave
        act(runtime, self.config.leave_s, self._pace_s)

    def _give_up(self, is_stuck: bool) -> None:
        """Leave, and end the process if it *is_stuck*."""
        # The model is the one last read: this process may hang in an operation with others.
        with self._leaving:
            runtime = self._runtime
            if runtime is not None and not self._left and runtime.is_sound:
                self._leave(quietly=True)
        if is_stuck:
            os._exit(1)

    def _running(self) -> PeerRuntime:
        if self._runtime is None:
            raise LocalProtocolError(
                "the peer is not running: use it inside `with Peer(...)`, or call peer.start()"
            )
        if os.getpid() != self._pid:
            # Any lock may have been held by another thread at the fork.
            raise LocalProtocolError(
                f"process {os.getpid()} was forked from that of peer {self.id}: a peer works in "
                "the process that started it alone"
            )
        return self._runtime

    def _close(self) -> None:
        try:
            if self._runtime is not None:
                self._runtime.close()
        finally:
            self._vector.layout.part()
            self._folder.close()
            self._telemetry.stop_serving()

    def _close_group(self) -> None:
        if self._group is not None:
            if self._is_follower:
                self._files.close()
            self._group.close()
