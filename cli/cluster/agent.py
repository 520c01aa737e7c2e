"""The process on each machine of ``rumor run --hosts``: it starts peers and reports on them.

Orders arrive on stdin and news leaves on stdout, both as JSON lines, over ssh. Peers write to files
of this machine, so that they never wait for the launcher. If that or this process is lost, they
leave: no peer trains on unwatched.
"""

import base64
import json
import os
import select
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ...gossip.transport.addresses import bind_error
from ..launch.config import Place
from ..launch.processes import ProcessGroup

__all__ = ["COPIED", "LOST_S", "MODEL", "STREAMED", "Agent", "main", "versions"]

LOST_S: Final = 60.0
"""Maximum silence of the launcher, which sends a message every few seconds."""

STREAMED: Final = ("log.txt", "metrics.jsonl")
"""Files of a peer that the launcher gets as they grow."""
COPIED: Final = ("peer.json", "life.json", "events.jsonl", "ledger*.jsonl")
"""Files of a peer that the launcher gets when the peer has ended."""
MODEL: Final = "model.safetensors"
"""A peer's final model, which is large."""

_LOOK_S: Final = 0.1
_PATIENCE_S: Final = 60.0
"""Time for peers that were asked to leave, in addition to their own time limits."""
_PIECE_BYTES: Final = 1 << 18


def versions() -> dict[str, str]:
    """Return the versions that must match on all machines."""
    from importlib.metadata import version

    return {"python": ".".join(map(str, sys.version_info[:2])), "rumor": version("rumor")}


class Agent:
    """Runs the peers of one machine."""

    def __init__(self, orders: int, news: int) -> None:
        self._orders, self._news = orders, news
        self._read = bytearray()
        self._job: dict[str, Any] = {}
        self._group: ProcessGroup | None = None
        self._offsets: dict[Path, int] = {}
        self._running: list[tuple[Place, Any]] | None = None
        self._lost = ""

    def run(self) -> int:
        """Carry out orders until all peers have ended; exit status 1 if the launcher is lost."""
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            # A signal may come while peers are being started: those would not be asked to leave.
            signal.signal(number, lambda *_: self._lose("a signal came"))
        heard_s = time.monotonic()
        try:
            # Once peers have been started and none runs any more, everything has been sent.
            while not self._lost and self._running != []:
                if select.select([self._orders], [], [], _LOOK_S)[0]:
                    heard_s = time.monotonic()
                    self._take_in()
                elif time.monotonic() - heard_s > LOST_S:
                    self._lose(f"nothing was heard of the launcher for {LOST_S:g} s")
                self._tell()
            if self._lost and self._group is not None:
                self._let_leave(self._group)
        finally:
            if self._group is not None:
                self._group.kill_all()
                self._group.wait()
        return int(bool(self._lost))

    def _lose(self, why: str) -> None:
        self._lost = self._lost or why

    def _let_leave(self, group: ProcessGroup) -> None:
        for place in group.places:
            with suppress(OSError), open(place.folder / "log.txt", "a") as log:
                log.write(f"rumor: {self._lost}, so this peer is asked to leave\n")
        group.leave_all()
        give_up_s = time.monotonic() + self._job["leave_s"] + _PATIENCE_S
        while any(p.poll() is None for p in group.processes) and time.monotonic() < give_up_s:
            time.sleep(_LOOK_S)

    def _take_in(self) -> None:
        data = os.read(self._orders, 65536)
        if not data:
            self._lose("the connection to the launcher has ended")
        *lines, self._read = (self._read + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "job" in order:
                self._job = order["job"]
                self._say(hello=versions() | {"problems": _problems(self._job)})
            if "start" in order:
                self._start()
            if self._group is not None:
                if "leave" in order:
                    self._group.leave_all(order["leave"])
                if "dead" in order:
                    self._group.tell_dead([(str(id), int(life)) for id, life in order["dead"]])
                if "kill" in order:
                    self._group.kill_all()

    def _start(self) -> None:
        command = tuple(self._job["command"])
        places = [
            Place(**{**peer, "folder": Path(peer["folder"]), "command": command})
            for peer in self._job["peers"]
        ]
        try:
            for place in places:
                place.folder.mkdir(parents=True)
            (places[0].folder.parent / "agent.pid").write_text(f"{os.getpid()}\n")
            self._group = ProcessGroup(places, orphaned=signal.SIGTERM)
            self._group.start()
        except OSError as error:
            self._say(failed=str(error))
            self._lose("a peer could not be started")
        else:
            self._running = [*zip(places, self._group.processes, strict=True)]

    def _say(self, **news: Any) -> None:
        text = json.dumps(news).encode() + b"\n"
        try:
            while text:
                text = text[os.write(self._news, text) :]
        except OSError:
            self._lose("the launcher does not listen any more")

    def _tell(self) -> None:
        """Send all news of the peers; the end of each comes after all of its files."""
        for place, process in tuple(self._running or ()):
            status = process.poll()
            names = STREAMED if status is None else (*STREAMED, *COPIED)
            if status is not None and self._job["models"]:
                names = (*names, MODEL)
            for path in sorted(path for name in names for path in place.folder.glob(name)):
                with suppress(OSError), open(path, "rb") as file:
                    file.seek(self._offsets.get(path, 0))
                    while data := file.read(_PIECE_BYTES):
                        self._offsets[path] = file.tell()
                        text = base64.b64encode(data).decode()
                        self._say(peer=place.index, file=path.name, data=text)
            if status is not None and self._running is not None:
                self._running.remove((place, process))
                self._say(peer=place.index, exit=status)


def _problems(job: dict[str, Any]) -> list[str]:
    """Return what a job lacks on this machine, and change to the folder where its peers run."""
    problems = []
    try:
        os.chdir(os.path.expanduser(job["dir"]))
    except OSError as error:
        problems.append(f"folder {job['dir']} cannot be opened ({error.strerror}): see dir=")
    else:
        # The name python must start the interpreter that has rumor.
        own = os.path.dirname(sys.executable)
        os.environ["PATH"] = f"{own}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        program, script = job["command"][0], job["script"]
        if shutil.which(program) is None:
            problems.append(f"program {program!r} was not found")
        elif script is not None and not Path(script).is_file():
            problems.append(f"script {script!r} was not found in {Path.cwd()}")
        folders = [peer["folder"] for peer in job["peers"]]
        there = filter(os.path.exists, folders)
        problems += [f"{folder} is there already: name a new --out" for folder in there]
    if taken := [port for port in job["ports"] if bind_error(job["host"], port) is not None]:
        problems.append(f"port {taken[0]} is not free: see --port and listen=")
    return problems


def main() -> int:
    """Run the agent of the launcher on this machine."""
    # Output of libraries must not be parsed as news.
    news = os.dup(1)
    os.dup2(2, 1)
    return Agent(0, news).run()


if __name__ == "__main__":
    sys.exit(main())
