"""What a peer keeps on disk across incarnations: checkpoints, peers it knew, incarnation number."""

import logging
import re
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Final

from torch import Tensor, nn

from ...gossip import ConfigError, Rule, TrainingError
from ...gossip.errors import LocalProtocolError
from ...gossip.protocol.rule import requirements_of
from ...gossip.transport.addresses import parse_address
from ...gossip.types import Incarnation, PeerId
from ...gossip.wire.messages import Phase
from ..config import Interval, PeerConfig, Recurrence
from ..storage.checkpointer import Checkpointing, Past, Stateful, restore_rng
from ..storage.files import WriterThread
from ..storage.incarnation import PeerTable, last_id, lock_folder, next_incarnation
from ..tensors.vector import Vector
from .runner import PeerRuntime

__all__ = ["PeerFolder", "peer_folders"]

_log = logging.getLogger("rumor")

# Between two looks whether the table of peers has changed.
_TABLE_EVERY: Final = Interval(every_s=2.0)


class PeerFolder:
    """One peer's folder, as far as it is for its next incarnation.

    Args:
        config: The peer's.
        model: The peer's.
        vector: The same, as a vector.
        look: Raises a `TrainingError` where a checkpoint would not have all of the model.
    """

    def __init__(
        self, config: PeerConfig, model: nn.Module, vector: Vector, look: Callable[[], None]
    ) -> None:
        self.past: Past | None = None
        """What the last checkpoint says, where the peer resumes."""
        self.steps = 0
        """Optimizer steps of the peer, those up to that checkpoint included."""
        self._folder = config.incarnation_folder
        self._ahead_ms_max = config.protocol.incarnation_ahead_max
        self._writer = WriterThread()
        self._checkpointing: Checkpointing | None = None
        interval = Interval()
        if config.checkpoint is not None:
            interval = config.checkpoint.interval
            self._checkpointing = Checkpointing(config.checkpoint, model, vector, self._writer)
        self._table = None if self._folder is None else PeerTable(self._folder)
        self._vector, self._look = vector, look
        self._resumes = False
        self._last_incarnation = 0
        self._seeds: tuple[str, ...] = ()
        self._lock: IO[bytes] | None = None
        self._save = Recurrence(interval)
        self._note = Recurrence(_TABLE_EVERY)

    @property
    def owner(self) -> PeerId | None:
        """Whose folder this is; None where it is nobody's yet."""
        if self.past is not None:
            return self.past.id
        return None if self._folder is None else last_id(self._folder)

    @property
    def seeds(self) -> tuple[str, ...]:
        """Addresses of those it knew then."""
        return self._seeds

    @property
    def may_resume(self) -> bool:
        """Whether checkpoints are kept, and nobody has asked yet for the last one."""
        return self._checkpointing is not None and not self._resumes

    def register(self, objects: Mapping[str, Stateful]) -> None:
        """Keep the state of further objects; see `Checkpointing.register`."""
        self._required().register(objects)

    def resume(self, id: PeerId | None = None) -> Past | None:
        """Take up what an earlier incarnation left; None where it left no checkpoint.

        Args:
            id: What the peer is to be called; None for whatever it was.

        Raises:
            ConfigError: Another process is in the folder, where nothing was changed; or the folder
                is another peer's; or see `Checkpointing.load`.
            TrainingError: See there.
        """
        if self._folder is not None and self._folder.exists():
            # What looks like a draft that a killed process left may be one that grows.
            self._keep_others_out(self._folder)
        try:
            self.past = self._required().load()
            owner = self.owner
            if owner is not None and id not in (None, owner):
                raise ConfigError(f"id is {id}: the checkpoint is of peer {owner}")
        except BaseException:
            self.let_others_in()
            raise
        self._resumes = True
        self._seeds = () if self._table is None else self._table.addresses()
        if self.past is not None:
            self.steps = self.past.steps
            self._save.done(self.steps)
            _log.info("resuming %s after %d steps", owner, self.steps)
        elif owner is not None:
            _log.warning("no checkpoint was left by %s: it begins at step 0", owner)
        return self.past

    def state(self, runtime: PeerRuntime) -> dict[str, Any]:
        """What others are to keep of the peer; see `Peer.state_dict`."""
        id, incarnation = runtime.protocol.account.life
        phase, swarm, anchored, clock, members = runtime.look(
            lambda protocol: (
                *(
                    protocol.phase,
                    protocol.swarm,
                    protocol.state.is_anchored,
                    protocol.table.clock.rows(),
                ),
                protocol.last_heard(),
            )
        )
        state: dict[str, Any] = {
            "id": id,
            "incarnation": incarnation,
            "steps": self.steps,
            # One that looks for a swarm may name one already, and has another model still.
            "swarm": swarm.hex() if phase >= Phase.TRAINING else "",
            "clock": {peer: int(steps) for peer, steps in clock.items()},
            "addresses": [address for member in members for address in member.addresses],
        }
        flats = self._vector.anchor_flats
        if anchored and flats is not None:
            state["anchor"] = [flat.detach().cpu().clone() for flat in flats]
        return state

    def take_up(self, state: Mapping[str, Any], id: PeerId | None) -> PeerId | None:
        """Be the next incarnation of a peer whose `state` others have kept.

        Args:
            state: Of it.
            id: What this peer is to be called; None for whatever that one was.

        Returns:
            Its name; None where this is another peer.

        Raises:
            TrainingError: It is no such state; nothing was changed.
        """
        flats, anchor = self._vector.anchor_flats, state.get("anchor", ())
        try:
            steps, swarm = int(state["steps"]), bytes.fromhex(state.get("swarm", ""))
            past = Past(
                id=str(state.get("id", "")),
                steps=steps,
                swarm=swarm,
                returns=flats is None or len(anchor) == len(flats),
                clock={str(peer): int(count) for peer, count in state.get("clock", {}).items()},
                rng={},
            )
            seeds = tuple(parse_address(str(each)) for each in state.get("addresses", ()))
            incarnation = int(state.get("incarnation", 0))
            fits = all(map(_alike, flats or (), anchor))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise TrainingError(f"this is no state of a peer: {error!r}") from None
        if not fits:
            raise TrainingError("the state of the peer is of another model: its anchor is another")
        self.steps, self._resumes = steps, True
        self._save.done(steps)
        if not past.id:
            return None
        if id not in (None, past.id):
            _log.warning("the state is of peer %s: %s joins as a newcomer", past.id, id)
            return None
        self._last_incarnation = incarnation
        if swarm:
            self.past, self._seeds = past, tuple(dict.fromkeys(seeds))
            for flat, kept in zip(flats or (), anchor, strict=False):
                flat.copy_(kept)
            self._vector.forget_sent()
        _log.info("%s goes on after %d steps", past.id, steps)
        return past.id

    def require_ready(self, rule: Rule) -> None:
        """Make sure that the peer may start as it is.

        Raises:
            ConfigError: It would write over another incarnation's checkpoints, has not given back
                all that is in one, or its rule takes nobody in.
        """
        checkpointing = self._checkpointing
        if checkpointing is not None and not self._resumes and not checkpointing.is_fresh:
            raise ConfigError(
                f"{self._folder} holds checkpoints of an earlier incarnation: continue from them "
                "with peer.resume() (`rumor run --resume`), or name a new folder"
            )
        if (self.past or self._seeds) and requirements_of(rule).fixed_members:
            raise ConfigError(
                f"a swarm that trains with {rule.name} takes nobody in once it has started, so "
                "that no peer of it can resume: use a rule that can, such as gosgd"
            )
        if checkpointing is not None:
            checkpointing.require_complete()
            if self.past is not None and checkpointing.keeps_model_alone:
                _log.warning(
                    "resumed the model alone, after %d steps: nothing else was registered, so that "
                    "the optimizer starts anew; call peer.register(optimizer=optimizer) before the "
                    "peer starts, and loop while peer.steps < steps",
                    self.steps,
                )

    def next_incarnation(self, id: PeerId) -> Incarnation:
        """Which incarnation is to begin; nobody has heard of it yet.

        Raises:
            ConfigError: Another process is in the folder, or see `incarnation.next_incarnation`.
        """
        if self._folder is not None and self._folder.exists():
            self._keep_others_out(self._folder)
        following = next_incarnation(self._folder, id, time.time(), self._ahead_ms_max)
        return max(following, self._last_incarnation + 1)

    def entered(self) -> None:
        """Note that the peer is a member now: random streams go on where they stood."""
        if self._folder is not None:
            self._keep_others_out(self._folder)
        if self.past is not None and self.past.rng:
            restore_rng(self.past.rng)
        self._save.done(self.steps)

    def stepped(self, runtime: PeerRuntime) -> None:
        """Count a step, and write down what is due."""
        self.steps += 1
        if self._save.is_due(self.steps):
            self._save_or_say(runtime)
        if self._table is not None and self._note.is_due(self.steps):
            self._note.done(self.steps)
            self._note_members(runtime, self._table)

    def save(self, runtime: PeerRuntime, *, wait: bool = False) -> bool:
        """Write a checkpoint; see `Peer.save_checkpoint`."""
        checkpointing = self._required()
        if wait:
            self._writer.wait()
        if checkpointing.is_writing:
            return False
        phase, swarm, anchored, clock = runtime.look(
            lambda protocol: (
                protocol.phase,
                protocol.swarm,
                protocol.state.is_anchored,
                protocol.table.clock.rows(),
            )
        )
        if phase < Phase.TRAINING:
            # It has given its swarm up, and its model is not yet of the one that it names now.
            return False
        id, incarnation = runtime.protocol.account.life
        head = {
            "id": id,
            "incarnation": incarnation,
            "swarm": swarm.hex(),
            "anchored": anchored,
            "clock": list(clock.items()),
        }
        self._look()
        checkpointing.save(head, self.steps)
        self._save.done(self.steps)
        return not wait or (self._writer.wait() and checkpointing.is_written)

    def end(self, runtime: PeerRuntime, *, wait: bool = False) -> None:
        """Write a last checkpoint, where any are; it is on disk when `close` returns, or at once
        with *wait*: then a peer that has merged and cannot be reached any more has written it."""
        if self._checkpointing is not None:
            if self._checkpointing.is_writing:
                self._writer.wait()
            self._save_or_say(runtime)
            if wait:
                self._writer.wait()

    def close(self) -> None:
        """Finish writing."""
        try:
            self._writer.close()
        finally:
            self.let_others_in()

    def let_others_in(self) -> None:
        """Have the folder no longer."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _keep_others_out(self, folder: Path) -> None:
        if self._lock is None:
            self._lock = lock_folder(folder)
            # A peer that has resumed may be dropped without ever having run.
            weakref.finalize(self, self._lock.close)

    def _save_or_say(self, runtime: PeerRuntime) -> None:
        try:
            self.save(runtime)
        except ConfigError as error:
            # Hours of training must not end because an object that is registered grew a state
            # that cannot be kept.
            self._save.done(self.steps)
            _log.warning("no checkpoint was written: %s", error)

    def _note_members(self, runtime: PeerRuntime, table: PeerTable) -> None:
        members, departed = runtime.look(
            lambda protocol: (protocol.last_heard(), protocol.departed())
        )
        if table.update(members, departed):
            self._writer.add("the table of peers", table.write)

    def _required(self) -> Checkpointing:
        if self._checkpointing is None:
            raise LocalProtocolError("no checkpoints are kept: give PeerConfig a checkpoint")
        return self._checkpointing


def _alike(flat: Tensor, kept: Tensor) -> bool:
    return flat.shape == kept.shape and flat.dtype == kept.dtype


def peer_folders(options: Iterable[Path]) -> dict[str, list[Path]]:
    """The folders of each peer, those of earlier lives first, by their ``options.json``."""
    found: dict[str, list[tuple[int, Path]]] = {}
    for path in sorted(options):
        match = re.fullmatch(r"(.+?)(?:\.life-(\d+))?", path.parent.name, re.DOTALL)
        assert match is not None
        found.setdefault(match[1], []).append((int(match[2] or 1), path.parent))
    return {id: [each for _, each in sorted(several)] for id, several in found.items()}
