"""A peer's records across incarnations: checkpoints, known peers, incarnation number."""

import logging
import re
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import torch
from torch import Tensor, nn

from ...gossip import ConfigError, Rule, TrainingError
from ...gossip.errors import LocalProtocolError
from ...gossip.protocol.rule import requirements_of
from ...gossip.transport.addresses import parse_address
from ...gossip.types import Incarnation, PeerId
from ...gossip.wire.fields import FieldError
from ...gossip.wire.messages import Phase
from ..config import PeerConfig, Recurrence
from ..model import travelling_tensors
from ..storage.checkpoint import (
    Checkpoint,
    CheckpointFolder,
    Past,
    Stateful,
    give_back,
    restore_rng,
    rng_state,
)
from ..storage.files import WriterThread
from ..storage.incarnation import (
    ADDRESSES_MAX,
    last_incarnation,
    lock_folder,
    next_incarnation,
    note_incarnation,
)
from ..storage.merge import read_schema, write_schema
from ..tensors.blocks import is_finite_tensor
from ..tensors.state import flatten_state, restore_state
from ..tensors.vector import Vector
from .runner import PeerRuntime

__all__ = ["PeerFolder", "peer_folders"]

_log = logging.getLogger("rumor")

_TAKEN: Final = ("model", "anchor", "rng", "own")
_JOB: Final = "the checkpoint"
_NOTES: Final = "the addresses of peers"


class PeerFolder:
    """The files in a peer's folder for its next incarnation.

    *look* raises a `TrainingError` if a checkpoint would not contain the whole model. *on_save* is
    called with the number of a checkpoint, its steps, and True if the caller waits for it.
    """

    def __init__(
        self,
        config: PeerConfig,
        model: nn.Module,
        vector: Vector,
        look: Callable[[], None],
        on_save: Callable[[int, int, bool], object] | None = None,
    ) -> None:
        self.past: Past | None = None
        """Earlier incarnations, from the last checkpoint, if the peer resumes."""
        self.steps = 0
        """Optimizer steps of the peer, including those up to that checkpoint."""
        self.seeds: tuple[str, ...] = ()
        """Addresses of the peers that it knew before."""
        self._path = config.incarnation_folder
        self._vector, self._look, self._on_save = vector, look, on_save
        self._tensors = travelling_tensors(model, vector.schema)
        self._constants = vector.constants
        self._writer = WriterThread()
        self._checkpoints: CheckpointFolder | None = None
        self._save = Recurrence("never")
        if (checkpoint := config.checkpoint) is not None:
            self._save = Recurrence(checkpoint.every)
            self._checkpoints = CheckpointFolder(checkpoint.folder, checkpoint.kept)
            self._constants.changed(self._constants.buffers())  # record their initial values
        self._registered: dict[str, Stateful] = {}
        self._loaded: Checkpoint | None = None
        self._is_written = True
        self._noted: tuple[str, ...] = ()
        self._resumes = False
        self._last_incarnation = 0
        self._lock: IO[bytes] | None = None
        self._note = Recurrence("2s")

    @property
    def owner(self) -> PeerId | None:
        """Id of the peer of the folder; None if no incarnation has begun in it."""
        if self.past is not None:
            return self.past.id
        last = last_incarnation(self._path)
        return None if last is None else last.id

    @property
    def may_resume(self) -> bool:
        """True if checkpoints are kept, and the last one was not requested yet."""
        return self._checkpoints is not None and not self._resumes

    def register(self, objects: Mapping[str, Stateful]) -> None:
        """Save the state of further objects, and restore it now, see `Peer.register`."""
        for name, each in objects.items():
            if not isinstance(each, Stateful):
                raise ConfigError(f"{name} cannot be kept: it has no state_dict to save and load")
            if name in self._registered:
                raise ConfigError(f"{name} is registered already")
            if name in _TAKEN or "." in name:
                # It becomes part of tensors' names, next to those of the model itself.
                raise ConfigError(
                    f"{name} cannot be the name of what is registered: it must not be "
                    f"{', '.join(_TAKEN)}, nor have a dot"
                )
            if self._loaded is not None:
                _give_back(name, each, self._loaded)
            self._registered[name] = each

    def resume(
        self,
        id: PeerId | None = None,
        is_usable: Callable[[Checkpoint], bool] | None = None,
    ) -> bool:
        """Load the last checkpoint, see `Peer.resume`, of peer *id*, or of any; return False
        without one. *is_usable* may refuse one."""
        checkpoints = self._required()
        # Without the lock, a draft may belong to a live process, not to a killed one.
        self._keep_others_out()
        try:
            if (latest := checkpoints.latest(is_usable)) is not None:
                self.past = self._load(latest)
            owner = self.owner
            if owner is not None and id not in (None, owner):
                raise ConfigError(f"id is {id}: the checkpoint is of peer {owner}")
        except BaseException:
            self._let_others_in()
            raise
        self._resumes = True
        self.seeds = tuple(self._former_addresses())
        if self.past is not None:
            self.steps = self.past.steps
            self._save.done(self.steps)
            _log.info("resuming %s after %d steps", owner, self.steps)
        elif owner is not None:
            _log.warning("no checkpoint was left by %s: it begins at step 0", owner)
        return latest is not None

    @torch.no_grad()
    def _load(self, checkpoint: Checkpoint) -> Past:
        """Restore the model and all registered objects."""
        flats, head = self._vector.anchor_flats or (), checkpoint.head
        has_anchor = any(name.startswith("anchor.") for name in checkpoint.tensors)
        try:
            self._require_fit(head["schema"])
            rng = restore_state(head["rng"], checkpoint.tensors)
            past = Past.of(head, rng, returns=has_anchor or not flats)
        except ConfigError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, FieldError) as error:
            raise TrainingError(f"the head of a checkpoint is not understood: {error!r}") from None
        for name, each in self._registered.items():
            _give_back(name, each, checkpoint)
        for name, tensor in self._tensors.items():
            tensor.copy_(checkpoint.tensors[f"model.{name}"])
        if sum(name.startswith("anchor.") for name in checkpoint.tensors) == len(flats):
            for i, flat in enumerate(flats):
                flat.copy_(checkpoint.tensors[f"anchor.{i}"])
        self._vector.forget_sent()
        own = restore_state(head.get("own"), checkpoint.tensors) or {}
        for name, value in own.get("tensors", {}).items():
            if not self._constants.replace(name, value):
                _log.warning("the checkpoint has %s, which the model does not have now", name)
        if self._vector.extra_state is not None:
            self._vector.extra_state.restore(own.get("extra") or {})
        self._loaded = checkpoint
        return past

    def _require_fit(self, kept: Any) -> None:
        schema = self._vector.schema
        then = read_schema(kept)
        # Frozen tensors cannot be compared if either side did not record them.
        if not (then.frozen and schema.frozen):
            then = replace(then, frozen=schema.frozen)
        if difference := schema.difference(then):
            raise ConfigError(
                f"the checkpoint is of another model: {difference.replace('there', 'in it')}"
            )

    def state(self, runtime: PeerRuntime) -> dict[str, Any]:
        """Return the peer's state for the caller's own checkpoints; see `Peer.state_dict`."""
        state, addresses, is_anchored = self._glance(runtime)
        flats = self._vector.anchor_flats
        if is_anchored and flats is not None:
            state["anchor"] = [flat.detach().cpu().clone() for flat in flats]
        return state | {"addresses": addresses}

    def _glance(self, runtime: PeerRuntime) -> tuple[dict[str, Any], list[str], bool]:
        """Return the peer's state, the addresses of known peers, and True if it is anchored."""
        id, incarnation = runtime.protocol.account.life
        return runtime.look(
            lambda protocol: (
                {
                    "id": id,
                    "incarnation": incarnation,
                    "steps": self.steps,
                    # One that is still searching may name a swarm already, but has another model.
                    "swarm": protocol.swarm.hex() if protocol.phase >= Phase.TRAINING else "",
                    "clock": dict(protocol.table.clock.rows()),
                },
                [address for member in protocol.last_heard() for address in member.addresses],
                protocol.state.is_anchored,
            )
        )

    def take_up(self, state: Mapping[str, Any], id: PeerId | None) -> PeerId | None:
        """Become the next incarnation of the peer that saved *state*; return its name.

        Returns None if this is another peer, called *id*. See `Peer.load_state_dict`.
        """
        flats, anchor = self._vector.anchor_flats, state.get("anchor", ())
        try:
            past = Past.of(state, {}, returns=flats is None or len(anchor) == len(flats))
            seeds = tuple(parse_address(str(each)) for each in state.get("addresses", ()))
            incarnation = int(state.get("incarnation", 0))
            fits = all(map(_alike, flats or (), anchor))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise TrainingError(f"this is not a peer's state: {error!r}") from None
        if not fits:
            raise TrainingError("the state of the peer is of another model: its anchor is another")
        self.steps, self._resumes = past.steps, True
        self._save.done(past.steps)
        if not past.id:
            return None
        if id not in (None, past.id):
            _log.warning("the state is of peer %s: %s joins as a newcomer", past.id, id)
            return None
        self._last_incarnation = incarnation
        if past.swarm:
            self.past, self.seeds = past, tuple(dict.fromkeys(seeds))
            for flat, kept in zip(flats or (), anchor, strict=False):
                flat.copy_(kept)
            self._vector.forget_sent()
        _log.info("%s continues after %d steps", past.id, past.steps)
        return past.id

    def require_ready(self, rule: Rule) -> None:
        """Raise a `ConfigError` if the peer may not start with what is, or is not, restored."""
        checkpoints = self._checkpoints
        if checkpoints is not None and not self._resumes and checkpoints.paths():
            raise ConfigError(
                f"{self._path} holds checkpoints of an earlier incarnation: continue from them "
                "with peer.resume() (`rumor run --resume`), or name a new folder"
            )
        if (self.past or self.seeds) and requirements_of(rule).fixed_members:
            raise ConfigError(
                f"a swarm that trains with {rule.name} admits no peers once it has started, so "
                "that no peer of it can resume: use a rule that can, such as gosgd"
            )
        kept = () if self._loaded is None else self._loaded.head["registered"]
        if forgotten := sorted(set(kept) - set(self._registered)):
            raise ConfigError(
                f"the checkpoint holds the state of {', '.join(forgotten)}: register it, too, "
                "before the peer starts"
            )
        self._loaded = None
        if checkpoints is not None and self.past is not None and not self._registered:
            _log.warning(
                "resumed the model alone, after %d steps: nothing else was registered, so that the "
                "optimizer starts anew; call peer.register(optimizer=optimizer) before the peer "
                "starts, and loop while peer.steps < steps",
                self.steps,
            )

    def next_incarnation(self, id: PeerId) -> Incarnation:
        """Return the number of the incarnation that begins now, see `incarnation.next_incarnation`.

        Raises:
            ConfigError: Another process uses the folder.
        """
        self._keep_others_out()
        following = next_incarnation(self._path, id, time.time())
        return max(following, self._last_incarnation + 1)

    def entered(self) -> None:
        """Restore the random streams now that the peer is a member."""
        self._keep_others_out()
        if self.past is not None and self.past.rng:
            restore_rng(self.past.rng)
        self._noted = tuple(self._former_addresses())
        self._save.done(self.steps)

    def _former_addresses(self) -> Iterator[str]:
        last = last_incarnation(self._path)
        for address in () if last is None else last.addresses:
            # A malformed one must not prevent a start.
            with suppress(ConfigError):
                yield parse_address(address)

    def stepped(self, runtime: PeerRuntime) -> None:
        """Count a step, and write what is due."""
        self.steps += 1
        if self._save.is_due(self.steps):
            self._save_or_warn(runtime)
        if self._path is not None and self._note.is_due(self.steps):
            self._note.done(self.steps)
            # Former ones stay: an incarnation that met no peer, because the network was down, must
            # leave the next one peers to ask.
            known = tuple(dict.fromkeys((*self._glance(runtime)[1], *self._noted)))[:ADDRESSES_MAX]
            if known != self._noted and not self._writer.is_busy(_NOTES):
                self._noted, life = known, runtime.protocol.account.life
                self._writer.add(_NOTES, partial(note_incarnation, self._path, *life, known))

    def save(self, runtime: PeerRuntime, *, wait: bool = False) -> bool:
        """Write a checkpoint; see `Peer.save_checkpoint`."""
        checkpoints = self._required()
        if wait:
            self._writer.wait()
        head, _, is_anchored = self._glance(runtime)
        # A peer that is joining another swarm has given up its own, and lacks the new model.
        if self._writer.is_busy(_JOB) or not head["swarm"]:
            return False
        self._vector.refresh()
        self._look()
        if self._on_save is not None:
            self._on_save(checkpoints.next_number(), self.steps, wait)
        self._copy_and_write(head, is_anchored)
        self._save.done(self.steps)
        return not wait or (self._writer.wait() and self._is_written)

    def _copy_and_write(self, head: dict[str, Any], is_anchored: bool) -> None:
        """Copy the state; a thread writes it while training continues."""
        constants, extra = self._constants, self._vector.extra_state
        changed = constants.changed(constants.buffers() | constants.frozen())
        own = {"tensors": dict(changed), "extra": None if extra is None else extra.state()}
        rng, tensors = flatten_state(rng_state(), "rng")
        registered = {}
        for name, each in self._registered.items():
            registered[name], more = flatten_state(each.state_dict(), name)
            tensors |= more
        kept, more = flatten_state(own, "own")
        tensors |= more | {f"model.{name}": _copied(each) for name, each in self._tensors.items()}
        anchor = (self._vector.anchor_flats or ()) if is_anchored else ()
        tensors |= {f"anchor.{i}": _copied(flat) for i, flat in enumerate(anchor)}
        head |= {"rng": rng, "registered": registered, "own": kept}
        head["schema"] = write_schema(self._vector.schema)
        checkpoint = Checkpoint(head=head, tensors=tensors)
        self._is_written = False
        self._writer.add(_JOB, lambda: self._write(checkpoint))

    def _write(self, checkpoint: Checkpoint) -> None:
        for spec in self._vector.schema.tensors:
            if spec.shared and not is_finite_tensor(
                checkpoint.tensors[f"model.{spec.name}"].reshape(-1)
            ):
                _log.warning("%s is not finite: no checkpoint was written", spec.name)
                return
        self._required().write(checkpoint)
        self._is_written = True

    def end(self, runtime: PeerRuntime, *, wait: bool = False) -> None:
        """Write a last checkpoint, if any are kept: it is on disk after `close`, or *wait*."""
        if self._checkpoints is not None:
            if self._writer.is_busy(_JOB):
                self._writer.wait()
            self._save_or_warn(runtime)
            if wait:
                self._writer.wait()

    def close(self) -> None:
        """Finish writing."""
        try:
            self._writer.close()
        finally:
            self._let_others_in()

    def _let_others_in(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _keep_others_out(self) -> None:
        if self._lock is None and self._path is not None and self._path.exists():
            self._lock = lock_folder(self._path)
            # A resumed peer may be dropped without ever running.
            weakref.finalize(self, self._lock.close)

    def _save_or_warn(self, runtime: PeerRuntime) -> None:
        try:
            self.save(runtime)
        except ConfigError as error:
            # Hours of training must not end because the state of a registered object can no longer
            # be saved.
            self._save.done(self.steps)
            _log.warning("no checkpoint was written: %s", error)

    def _required(self) -> CheckpointFolder:
        if self._checkpoints is None:
            raise LocalProtocolError("no checkpoints are kept: give PeerConfig a checkpoint")
        return self._checkpoints


def _give_back(name: str, each: Stateful, checkpoint: Checkpoint) -> None:
    registered = checkpoint.head["registered"]
    if name not in registered:
        kept = ", ".join(registered) or "nothing"
        raise ConfigError(f"the checkpoint has no state of {name}: it has {kept}")
    give_back(name, each, restore_state(registered[name], checkpoint.tensors))


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _alike(flat: Tensor, kept: Tensor) -> bool:
    return flat.shape == kept.shape and flat.dtype == kept.dtype


def peer_folders(options: Iterable[Path]) -> dict[str, list[Path]]:
    """Group the folders of some ``options.json`` files by peer, earlier incarnations first."""
    found: dict[str, list[tuple[int, Path]]] = {}
    for path in sorted(options):
        match = re.fullmatch(r"(.+?)(?:\.life-(\d+))?", path.parent.name, re.DOTALL)
        assert match is not None
        found.setdefault(match[1], []).append((int(match[2] or 1), path.parent))
    return {id: [each for _, each in sorted(several)] for id, several in found.items()}
