"""The processes of one peer, and the commands by which its leader keeps them in step.

All processes make the same calls of a `Peer`. The leader, rank 0, executes them. Meanwhile the
others, its followers, obey its commands, such as to copy their parts of the model, until it reports
that the call is done. Messages travel over Unix sockets, which show at once that a process has
ended. None of this uses the process group, whose operations may hang with a process that stands
still.
"""

import hashlib
import json
import logging
import os
import platform
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Client, Connection, Listener, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final, NamedTuple, TypeVar

import torch
from torch import nn

from ....gossip.errors import LocalProtocolError, TrainingError
from ...model import named_tensors
from ...tensors.shared_memory import host_id
from ..signals import SignalHandling

__all__ = ["MEET_S", "RankGroup", "meet"]

_log = logging.getLogger("rumor")

MEET_S: Final = 300.0
"""Time for all processes of a group to make their `Peer`, seconds."""

_SAY_S: Final = 5.0
_POLL_S: Final = 0.1
_MEET_POLL_S: Final = 0.02
# A collective operation usually fails when a process has ended: the leader then leaves by itself.
_GRACE_S: Final = 5.0

_T = TypeVar("_T")

Handler = Callable[[Any], object]


class _Message(NamedTuple):
    """A command of the leader, the end of its call, or what a follower says."""

    kind: str
    call: str = ""
    """Name of the call in which it is sent."""
    content: Any = None
    caught: int | None = None
    """Signal that ends the peer."""


_DONE: Final = "done"
_FAILED: Final = "failed"
_REPLY: Final = "reply"
_SIGNAL: Final = "signal"
_BYE: Final = "bye"

# A process may train several models, and meet the same others for each.
_meetings: Final[dict[tuple[int, ...], int]] = {}
_connected: "Final[weakref.WeakSet[Connection]]" = weakref.WeakSet()


class RankGroup:
    """The processes of one peer, as seen by one of them.

    *connections* are to the leader, or to each follower in order of rank.
    """

    def __init__(self, rank: int, size: int, connections: Sequence[Connection]) -> None:
        self.rank, self.size = rank, size
        self.leads = rank == 0
        """True for the process that runs the protocol."""
        self.handlers: dict[str, Handler] = {}
        """Executes each command with its content, and returns the reply; on all processes."""
        self.signals: SignalHandling | None = None
        """Signals that end the peer, whichever of its processes gets them."""
        self.version: Callable[[], int] = lambda: 0
        """Returns the number of changes of the whole model."""
        self.outlook: Callable[[], object] = lambda: None
        """Returns what followers show of the peer."""
        self.shown: Any = None
        """The last outlook of the leader."""
        self.on_failure: Callable[[], object] = lambda: None
        """Called once on another thread when a process has failed; ends the leader's waiting."""
        self.on_stuck: Callable[[bool], object] = lambda _: None
        """Called once on another thread when the leader makes no calls any more: because a process
        has failed (False), or for *stuck_s* seconds (True)."""
        self.stuck_s: float | None = None
        self._connections = list(connections)
        self._calls: list[str] = []
        self._caller: int | None = None  # the thread that makes the call
        # 0: the whole model is outdated; 1: its constant tensors may be; 2: all is current.
        self._current = 0
        self._is_over = self._gave_up = False
        self._has_told_signal = False
        self._seen = 0
        self._failure = ""
        self._told: BaseException | None = None
        self._moved_s = time.monotonic()
        self._is_training = self._is_asking = False
        self._replies: dict[int, Any] = {}
        # Notified when a follower has replied or failed.
        self._heard = threading.Condition()
        _connected.update(connections)
        if self.leads:
            self._thread = threading.Thread(target=self._listen, name="rumor-group", daemon=True)
            self._thread.start()

    def call(
        self, name: str, act: Callable[[], _T], for_followers: Callable[[_T], _T] | None = None
    ) -> _T:
        """Have the leader *act*, while all others wait in the call of this name; raise on all what
        it raises. Their models then have the changes of the whole one.

        *for_followers* makes the followers' result from the leader's; default: the same.

        Raises:
            TrainingError: A process has failed or ended, or makes another call.
            LocalProtocolError: The peer has ended.
        """
        if self._is_over:
            raise LocalProtocolError(
                "the peer has ended, and its processes share no model any more: make this call "
                "within `with Peer(...)`"
            )
        if not self.leads:
            result: _T = self._follow(name)
            return result
        if self._calls:
            return act()
        self._require_all()
        self._calls.append(name)
        self._caller = threading.get_ident()
        self._current, self._moved_s = 0, time.monotonic()
        try:
            result = act()
            if self.version() != self._seen:
                self.ask("read")
                self.note_version()
        except BaseException as error:
            self._told, self.shown = error, self.outlook()
            self._tell(_Message(_FAILED, name, (_portable(error), self.shown), self._caught))
            raise
        finally:
            self._calls.clear()
            self._caller = None
            self._moved_s = time.monotonic()
        self.shown = self.outlook()
        told = result if for_followers is None else for_followers(result)
        self._tell(_Message(_DONE, name, (told, self.shown), self._caught))
        self._is_training |= name == "step"
        return result

    def refresh(self, *, everything: bool = False) -> None:
        """Make the whole model current, with *everything* also what training does not change."""
        # Once in each of the leader's calls. After a failure, it stays as it was last read.
        wanted = 1 + everything
        if self._current < wanted and self._can_ask:
            self.ask("write", everything)
            self._current = wanted

    def ask_for_parts(
        self, kind: str, content: Any, own: Any, before: Callable[[], object] | None = None
    ) -> list[Any] | None:
        """Have all processes execute a command on their parts of the model, as `ask` does.

        If that changes the parts, the leader does *before*, and the whole model is outdated then.
        The result is None if a process has failed, or this is not the thread of the leader's call:
        then only the whole model is available.
        """
        if not self._can_ask:
            return None
        try:
            if self.version() != self._seen:
                self.ask("read")
                self.note_version()
            if before is not None:
                self._current = 0
                before()
            return self.ask(kind, content, own)
        except TrainingError:
            if not self._failure:
                raise
            return None

    @property
    def _can_ask(self) -> bool:
        return self.leads and not self._failure and self._caller == threading.get_ident()

    def note_version(self) -> None:
        """Take the changes of the whole model so far for known to all processes."""
        self._seen = self.version()

    def ask(self, kind: str, content: Any = None, own: Any = None) -> list[Any]:
        """Have all processes execute a command; return their replies by rank.

        *own* is the content for the leader itself, if it differs. Raises `TrainingError` if a
        process has failed.
        """
        self._require_all()
        with self._heard:
            self._replies.clear()
        self._tell(_Message(kind, self._calls[0], content))
        reply = self.handlers[kind](content if own is None else own)
        self._moved_s, self._is_asking = time.monotonic(), True
        others = range(1, self.size)
        with self._heard:
            self._heard.wait_for(lambda: self._failure or len(self._replies) == len(others))
        self._is_asking, self._moved_s = False, time.monotonic()
        self._require_all()
        return [reply, *map(self._replies.get, others)]

    def save(self, number: int, steps: int, waits: bool) -> None:
        """Have followers write their part of a checkpoint, unless a process has failed."""
        if not self._failure:
            self.ask("save", (number, steps, waits))

    def fail(self, error: BaseException) -> None:
        """Report that this process ends by an error, which the others then raise."""
        is_known = error is self._told or self._caught is not None
        with self._heard:
            self._failure = self._failure or "this process has failed"
            self._heard.notify_all()
        if not is_known:
            self._tell(_Message(_FAILED, content=(_portable(error), None)))

    def close(self) -> None:
        """End all communication; a second call does nothing."""
        if self._is_over:
            return
        if not self.leads:
            self._tell(_Message(_BYE))
        self._is_over = True
        if self.leads:
            self._thread.join()
        for each in self._connections:
            each.close()
        # They refer to the peer, which refers to this.
        self.handlers = {}
        self.version, self.outlook, self.on_stuck = lambda: 0, lambda: None, lambda _: None
        self.on_failure = lambda: None

    @property
    def _caught(self) -> int | None:
        return None if self.signals is None else self.signals.caught

    def _require_all(self) -> None:
        if self._failure:
            raise TrainingError(self._failure)

    def _tell(self, message: _Message) -> None:
        for rank, each in enumerate(self._connections, 1 if self.leads else 0):
            try:
                each.send(message)
            except OSError:
                self._note_failure(f"rank {rank} of this peer has ended")

    def _note_failure(self, why: str) -> None:
        with self._heard:
            if self._failure or self._is_over:
                return
            self._failure, self._moved_s = why, time.monotonic()
            self._heard.notify_all()
        if self.leads:
            _log.error("%s", why)
            self.on_failure()

    def _follow(self, name: str) -> Any:
        """Obey the leader until its call is done."""
        self._require_all()
        leader = self._connections[0]
        while True:
            message = self._next(leader)
            if message.caught is not None and self.signals is not None:
                self.signals.note(message.caught)
            if message.kind in (_DONE, _FAILED):
                result, shown = message.content
                self.shown = self.shown if shown is None else shown
            if message.kind == _FAILED:
                self._told = result
                raise result
            if message.call != name:
                raise self._failed(
                    TrainingError(
                        f"rank {self.rank} calls {name} where rank 0 calls {message.call}: all "
                        "processes of a peer must make the same calls"
                    )
                )
            if message.kind == _DONE:
                return result
            try:
                reply = self.handlers[message.kind](message.content)
            except Exception as error:
                raise self._failed(error) from None
            self._tell(_Message(_REPLY, content=reply))

    def _failed(self, error: Exception) -> Exception:
        self.fail(error)
        return error

    def _next(self, leader: Connection) -> _Message:
        """Wait for the leader's next message."""
        try:
            while True:
                if self._caught is not None and not self._has_told_signal:
                    self._has_told_signal = True
                    leader.send(_Message(_SIGNAL, content=self._caught))
                if leader.poll(_POLL_S):
                    message: _Message = leader.recv()
                    return message
        except (EOFError, OSError):
            self._failure = "rank 0 of this peer, its leader, has ended"
            raise TrainingError(self._failure) from None

    def _listen(self) -> None:
        """Receive replies, signals and ends of followers, and watch the leader itself."""
        ranks = {each: rank for rank, each in enumerate(self._connections, 1)}
        while not self._is_over:
            for each in wait(list(ranks), _POLL_S):
                assert isinstance(each, Connection)
                try:
                    message = each.recv()
                except (EOFError, OSError):
                    self._note_failure(f"rank {ranks.pop(each)} of this peer has ended")
                    continue
                if message.kind == _BYE:
                    del ranks[each]
                else:
                    self._hear(ranks[each], message)
            self._watch()

    def _hear(self, rank: int, message: _Message) -> None:
        if message.kind == _SIGNAL:
            if self.signals is not None:
                self.signals.note(message.content)
        elif message.kind == _FAILED:
            self._note_failure(f"rank {rank} of this peer has failed: {message.content[0]}")
        else:
            with self._heard:
                self._replies[rank] = message.content
                self._heard.notify_all()

    def _watch(self) -> None:
        idle_s, is_outside = time.monotonic() - self._moved_s, not self._calls
        if self._gave_up or self._is_over:
            return
        if self._failure:
            if is_outside and idle_s > _GRACE_S:
                self._gave_up = True
                self.on_stuck(False)
        elif self.stuck_s is not None and self._is_training and (is_outside or self._is_asking):
            if idle_s > self.stuck_s:
                self._gave_up = True
                self._note_failure(f"no step within {self.stuck_s:g} s")
                self.on_stuck(True)


def _portable(error: BaseException) -> BaseException:
    """Return an error that another process can raise."""
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:
        return TrainingError(f"rank 0 of this peer has failed: {error}")
    return error


def meet(ranks: tuple[int, ...], model: nn.Module, timeout_s: float = MEET_S) -> RankGroup:
    """Meet the other processes of a group; each of them calls this with its model.

    *ranks* are theirs among all processes, the leader's first.

    Raises:
        TrainingError: They are on several machines, have different models, or are not all there in
            time; the message names those that are missing.
    """
    distributed: Any = torch.distributed
    store, me = distributed.distributed_c10d._get_default_store(), distributed.get_rank()
    _meetings[ranks] = number = _meetings.get(ranks, 0) + 1
    keys = {rank: f"rumor/{'-'.join(map(str, ranks))}/{number}/{rank}" for rank in ranks}
    listener: Any = None
    key = os.urandom(16)
    card = {"machine": platform.node(), "host": host_id().hex(), "model": _outline(model)}
    if me == ranks[0]:
        # Messages are pickled: only processes that know the key, which the store tells, send any.
        listener = Listener(family="AF_UNIX", backlog=len(ranks), authkey=key)
        # A process may end before it connects.
        listener._listener._socket.settimeout(timeout_s)
        card |= {"address": str(listener.address), "key": key.hex()}
    try:
        store.set(keys[me], json.dumps(card))
        _await(store, keys, timeout_s)
        cards = {rank: json.loads(store.get(key)) for rank, key in keys.items()}
        _require_alike(cards)
        if listener is None:
            first = cards[ranks[0]]
            leader = Client(first["address"], "AF_UNIX", authkey=bytes.fromhex(first["key"]))
            leader.send(ranks.index(me))
            return RankGroup(ranks.index(me), len(ranks), [leader])
        found = dict[int, Connection]()
        while len(found) < len(ranks) - 1:
            follower = listener.accept()
            found[follower.recv()] = follower
        return RankGroup(0, len(ranks), [found[rank] for rank in sorted(found)])
    except (EOFError, OSError) as error:
        why = str(error) or "one of them has ended"
        raise TrainingError(f"the processes of this peer did not meet: {why}") from error
    finally:
        if listener is not None:
            listener.close()


def _await(store: Any, keys: Mapping[int, str], timeout_s: float) -> None:
    """Wait until all processes have left a card."""
    started_s = spoke_s = time.monotonic()
    while missing := [rank for rank, key in keys.items() if not store.check([key])]:
        now = time.monotonic()
        who = f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
        if now - started_s > timeout_s:
            raise TrainingError(
                f"{who} made no Peer within {timeout_s:g} s: all processes that train a model "
                "together must make it, and the same calls of it"
            )
        if now - spoke_s > _SAY_S:
            spoke_s = now
            _log.warning("waiting for %s to make a Peer as well", who)
        time.sleep(_MEET_POLL_S)


def _require_alike(cards: Mapping[int, Mapping[str, str]]) -> None:
    (_, first), *others = cards.items()
    for rank, card in others:
        if not card["host"] or card["host"] != first["host"]:
            machines = " and ".join(dict.fromkeys(each["machine"] for each in (first, card)))
            raise TrainingError(
                f"the processes of one peer share memory, and those on {machines} cannot: give "
                "each machine a mesh (or process group) of its own"
            )
        if card["model"] != first["model"]:
            raise TrainingError(
                f"rank {rank} has other tensors than rank {min(cards)}: the processes of one peer "
                "must hold one model, and not stages of a pipeline"
            )


def _outline(model: nn.Module) -> str:
    """Return a hash of the names and whole shapes of a model's tensors."""
    named = named_tensors(model).items()
    text = str([(name, tuple(t.shape), str(t.dtype), t.requires_grad) for name, t in named])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _close_in_child() -> None:
    # A data loader's worker must not keep a connection of its parent open: it would hide its end.
    for each in list(_connected):
        each.close()
    _connected.clear()


os.register_at_fork(after_in_child=_close_in_child)
