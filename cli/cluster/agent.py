"""What runs on each machine of ``rumor run --hosts``: it starts peers, and tells of them.

Orders come in by stdin and news go out by stdout, both as JSON lines, over ssh. Peers write to
files of this machine, so that they never wait for the launcher. If that is lost (its connection
ends, or nothing is heard of it for `LOST_S`), the peers are asked to leave: they hand their weight
on, write their checkpoints and end. Nobody trains on unwatched, and nothing is lost. Should this
process itself be killed, a shell that outlives it asks them.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from ..launch.folder import Place
from ..launch.processes.group import ProcessGroup, watchdog

__all__ = ["LOST_S", "MODEL", "Agent", "Outgoing", "main", "versions"]

LOST_S: Final = 60.0
"""So long the launcher may be silent, which says something every few seconds."""

_LOOK_S: Final = 0.1
_PATIENCE_S: Final = 60.0
"""How long peers that were asked to leave may take, beside what they are told themselves."""

_LIVE: Final = ("log.txt", "metrics.jsonl")
_LATE: Final = ("peer.json", "life.json", "events.jsonl", "ledger*.jsonl")
MODEL: Final = "model.safetensors"
"""A peer's model at its end, which is large."""
_PIECE_BYTES: Final = 1 << 18
_QUEUED_BYTES_MAX: Final = 4 << 20
_LOCK: Final = "agent.lock"


def versions() -> dict[str, str]:
    """Of what must be alike on all machines."""
    from importlib.metadata import version

    return {"python": ".".join(map(str, sys.version_info[:2])), "rumor": version("rumor")}


class Outgoing:
    """News on their way to the launcher, which may take its time.

    Args:
        descriptor: Where they go; it is made not to block.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self._queued = bytearray()

    @property
    def is_full(self) -> bool:
        """Whether more should wait."""
        return len(self._queued) > _QUEUED_BYTES_MAX

    @property
    def is_empty(self) -> bool:
        """Whether all is on its way."""
        return not self._queued

    def say(self, **news: Any) -> None:
        """Queue something."""
        self._queued += json.dumps(news).encode() + b"\n"

    def flush(self) -> None:
        """Send what goes without waiting.

        Raises:
            OSError: Nobody reads it any more.
        """
        with suppress(BlockingIOError):
            while self._queued:
                del self._queued[: os.write(self.descriptor, self._queued[:65536])]


class _Files:
    """One peer's files, of which the launcher gets a copy as they grow."""

    def __init__(self, index: int, folder: Path, offsets: Mapping[str, int]) -> None:
        self._index, self._folder = index, folder
        self._offsets = dict(offsets)

    def pieces(self, patterns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """What has been added to files of these names since the last call."""
        for path in sorted(path for each in patterns for path in self._folder.glob(each)):
            while data := self._piece(path):
                self._offsets[path.name] = self._offsets.get(path.name, 0) + len(data)
                text = base64.b64encode(data).decode()
                yield {"peer": self._index, "file": path.name, "data": text}

    def _piece(self, path: Path) -> bytes:
        with open(path, "rb") as file:
            file.seek(self._offsets.get(path.name, 0))
            return file.read(_PIECE_BYTES)


class Agent:
    """Runs the peers of one machine.

    Args:
        orders: Where the launcher's orders come from.
        news: Where to tell of what happens.
    """

    def __init__(self, orders: int, news: Outgoing) -> None:
        self._orders, self._news = orders, news
        self._read = bytearray()
        self._heard_s = time.monotonic()
        self._is_lost = self._has_signal = False
        self._group: ProcessGroup | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._files: list[_Files] = []
        self._late: tuple[str, ...] = _LATE
        self._told: set[int] = set()
        self._kill_s = float("inf")
        self._leave_s = 0.0
        self._lock: IO[bytes] | None = None

    def run(self) -> int:
        """Obey until all is over, or there is nothing left to do for a launcher that is lost.

        Returns:
            The exit status: 0 where the launcher heard everything.
        """
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note_signal)
        try:
            while not self._is_over():
                self._look()
                if self._has_signal:
                    self._lose("a signal came")
                if time.monotonic() - self._heard_s > LOST_S:
                    self._lose(f"nothing was heard of the launcher for {LOST_S:g} s")
                if time.monotonic() > self._kill_s and self._group is not None:
                    self._group.kill_all()
        finally:
            self._close()
        return int(self._is_lost)

    def _note_signal(self, *_: object) -> None:
        # It may come while peers are being started: those would miss that they are to leave.
        self._has_signal = True

    def _close(self) -> None:
        if self._group is not None:
            self._group.kill_all()
            self._group.wait()
        if self._watchdog is not None:
            self._watchdog.communicate()
        if self._lock is not None:
            self._lock.close()

    def _is_over(self) -> bool:
        if self._group is None:
            return self._is_lost
        ended = all(process.poll() is not None for process in self._group.processes)
        return ended and (self._is_lost or (self._told_all and self._news.is_empty))

    @property
    def _told_all(self) -> bool:
        return self._group is not None and len(self._told) == len(self._group.places)

    def _look(self) -> None:
        """Take in and send what there is, and see how the peers are."""
        writing = [] if self._is_lost or self._news.is_empty else [self._news.descriptor]
        reading = [] if self._is_lost else [self._orders]
        ready, _, _ = select.select(reading, writing, [], _LOOK_S)
        if ready:
            self._take_in()
        if self._is_lost:
            return
        self._tell()
        try:
            self._news.flush()
        except OSError:
            self._lose("the launcher does not listen any more")

    def _take_in(self) -> None:
        data = os.read(self._orders, 65536)
        if not data:
            self._lose("the connection to the launcher has ended")
            return
        self._heard_s = time.monotonic()
        self._read += data
        *lines, rest = self._read.split(b"\n")
        self._read = rest
        for line in lines:
            order = json.loads(line)
            for name, obey in self._ORDERS.items():
                if name in order:
                    obey(self, order[name])

    def _check(self, asked: dict[str, Any]) -> None:
        """Say what is here, and what is missing."""
        problems = []
        try:
            os.chdir(os.path.expanduser(asked["dir"]))
        except OSError as error:
            problems.append(f"there is no folder {asked['dir']} ({error.strerror}): see dir=")
        else:
            # What is called python there is to be the one that has rumor.
            folder = os.path.dirname(sys.executable)
            os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
            program, script = asked["command"][0], asked["script"]
            if shutil.which(program) is None:
                problems.append(f"there is no program {program!r}")
            elif script is not None and not Path(script).is_file():
                problems.append(f"there is no script {script!r} in {Path.cwd()}")
            problems += [
                f"{folder} is there already: name a new --out"
                for folder in asked["folders"]
                if os.path.exists(folder)
            ]
        ports = _free_ports(asked["host"], asked["first"], asked["count"])
        if len(ports) < asked["count"]:
            problems.append(f"there are too few free ports from {asked['first']} on: see --port")
        self._news.say(hello=versions() | {"ports": ports, "problems": problems})

    def _start(self, asked: dict[str, Any]) -> None:
        """Start the peers."""
        self._leave_s = asked["leave_s"]
        if asked["models"]:
            self._late = (*_LATE, MODEL)
        try:
            self._keep(Path(asked["out"]))
            places = [_place(peer, asked["command"]) for peer in asked["peers"]]
            self._files = [_Files(place.index, place.folder, {}) for place in places]
            self._watchdog = watchdog(signal.SIGTERM)
            self._group = ProcessGroup(places, self._watchdog)
            self._group.start()
        except OSError as error:
            self._news.say(failed=str(error))
            self._flush_all()
            self._lose("a peer could not be started")

    def _collect(self, asked: dict[str, Any]) -> None:
        """Tell of peers whose agent has lost its launcher, once they have ended."""
        late = (*_LATE, MODEL) if asked["models"] else _LATE
        try:
            os.chdir(os.path.expanduser(asked["dir"]))
            self._keep(Path(asked["out"]))
        except OSError:
            self._news.say(collected=False)
            return
        for peer in asked["peers"]:
            files = _Files(peer["index"], Path(peer["folder"]), peer["sizes"])
            for piece in files.pieces((*_LIVE, *late)):
                self._news.say(**piece)
                if self._news.is_full:
                    self._flush_all()
        self._news.say(collected=True)

    def _keep(self, out: Path) -> None:
        """Be the only agent there.

        Raises:
            OSError: Another one is, or it cannot be written to.
        """
        if self._lock is None:
            out.mkdir(parents=True, exist_ok=True)
            self._lock = open(out / _LOCK, "ab")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._lock.truncate(0)
        self._lock.write(b"%d\n" % os.getpid())
        self._lock.flush()

    def _flush_all(self) -> None:
        """Send all, as long as the launcher takes it."""
        with suppress(OSError):
            while not self._news.is_empty:
                if not select.select([], [self._news.descriptor], [], LOST_S)[1]:
                    return
                self._news.flush()

    def _leave(self, number: int) -> None:
        if self._group is not None:
            self._group.leave_all(number)

    def _tell_dead(self, lives: Sequence[Sequence[Any]]) -> None:
        if self._group is not None:
            self._group.tell_dead([(str(id), int(incarnation)) for id, incarnation in lives])

    def _kill(self, asked: Any) -> None:
        if self._group is not None:
            self._group.kill_all()

    def _hear(self, asked: Any) -> None:
        """The launcher is there: nothing else is to be known."""

    _ORDERS: Final[Mapping[str, Callable[["Agent", Any], None]]] = {
        "check": _check,
        "start": _start,
        "collect": _collect,
        "leave": _leave,
        "dead": _tell_dead,
        "kill": _kill,
        "ping": _hear,
    }

    def _tell(self) -> None:
        """Queue what is new of the peers; the end of one comes after all of its files."""
        if self._group is None:
            return
        pairs = zip(self._files, self._group.places, self._group.processes, strict=True)
        for files, place, process in pairs:
            if self._news.is_full or place.index in self._told:
                continue
            status = process.poll()
            patterns = _LIVE if status is None else (*_LIVE, *self._late)
            for piece in files.pieces(patterns):
                self._news.say(**piece)
                if self._news.is_full:
                    break
            if status is not None and not self._news.is_full:
                self._told.add(place.index)
                self._news.say(peer=place.index, exit=status)

    def _lose(self, why: str) -> None:
        """Go on without the launcher: let the peers leave."""
        if self._is_lost:
            return
        self._is_lost = True
        self._kill_s = time.monotonic() + self._leave_s + _PATIENCE_S
        if self._group is None:
            return
        for place in self._group.places:
            with suppress(OSError), open(place.folder / "log.txt", "a") as log:
                log.write(f"rumor: {why}, so this peer is asked to leave\n")
        self._group.leave_all()


def _place(peer: Mapping[str, Any], command: Sequence[str]) -> Place:
    folder = Path(peer["folder"])
    folder.mkdir(parents=True)
    return Place(
        index=peer["index"],
        id=peer["id"],
        folder=folder,
        command=tuple(command),
        variables=peer["variables"],
    )


def _free_ports(host: str, first: int, count: int) -> list[int]:
    """As many free ports as are asked for, from one on; fewer where there are no more."""
    found: list[int] = []
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in range(first, min(first + 1000, 65_536)):
        if len(found) == count:
            break
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind((host, port))
                found.append(port)
    return found


def main() -> int:
    """Run as the launcher's hand on this machine."""
    # What libraries print must not be taken for news.
    news = os.dup(1)
    os.dup2(2, 1)
    return Agent(0, Outgoing(news)).run()


if __name__ == "__main__":
    sys.exit(main())
