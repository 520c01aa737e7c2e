"""Repeats a live run from its journals, and compares it with the original, bit for bit.

All peers are replayed in this process, record by record in the order of their clocks. A peer that
needs a share waits until the sender's replay has made it, so no clock has to be right.
"""

import re
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing
from heapq import heappop, heappush
from pathlib import Path

import torch

from ...gossip.errors import ConfigError, TrainingError
from ...train.storage.environment import differences, machine
from ...train.storage.journal import JOURNAL, Head, JournalFile
from .peer import PeerReplay
from .result import Difference, PeerVerdict, Replay, Verdict
from .shares import Key, Life, ShareKey, ShareStore

__all__ = ["PeerVerdict", "Replay", "Verdict", "replay"]

Run = Generator[Key | None, None, None]


def replay(folder: Path | str, *more: Path | str) -> Replay:
    """Repeat a live run from its journals and compare it with the original, bit for bit, under the
    number of threads of each peer and with torch's global random streams.

    Raises:
        ConfigError: No journal exists, one cannot be read at all, or its task is not available
            here.
    """
    paths = _find_journals([Path(each) for each in (folder, *more)])
    with ExitStack() as stack:
        peers, warnings = _prepared(paths, stack)
        first = _Swarm(peers).run()
    return Replay(
        peers=tuple(peer.result for peer in sorted(peers, key=lambda peer: peer.life)),
        difference=first,
        warnings=warnings,
    )


def _find_journals(folders: Sequence[Path]) -> list[Path]:
    """Return the journals in folders of peers, or of runs, which stand for all their peers."""
    found = []
    for folder in folders:
        of_run = sorted(folder.glob(f"peers/*/{JOURNAL}"))
        own = [folder / JOURNAL] if (folder / JOURNAL).is_file() else []
        if not (of_run or own):
            raise ConfigError(
                f"{folder} has no journal: give the folder of a run, or of a peer, "
                "that was started with --set journal"
            )
        found += own or of_run
    return found


class _Swarm:
    """The replays of all peers."""

    def __init__(self, peers: Sequence[PeerReplay]) -> None:
        self._peers = peers
        self._store = peers[0].store
        self._first: Difference | None = None
        self._waiting: dict[Key, list[int]] = {}
        # The next replay is that farthest behind by the calendar: then few shares are stored.
        self._queue: list[tuple[float, int]] = []

    def run(self) -> Difference | None:
        """Replay as far as all journals go; return the first difference found."""
        runs = [peer.run() for peer in self._peers]
        for index, peer in enumerate(self._peers):
            heappush(self._queue, (peer.unix_s, index))
        while self._queue:
            index = heappop(self._queue)[1]
            self._advance(index, runs[index])
            for key in self._store.take_arrivals():
                for woken in self._waiting.pop(key, ()):
                    heappush(self._queue, (self._peers[woken].unix_s, woken))
        for run in runs:
            run.close()
        for key, waiting in self._waiting.items():
            why = "no journal that could be read so far has it"
            if isinstance(key, ShareKey):
                why = self._why_missing(key.sender)
            for index in waiting:
                self._peers[index].result.why = f"it needs {key}: {why}"
        return self._first

    def _advance(self, index: int, run: Run) -> None:
        peer = self._peers[index]
        threads = peer.head.machine["threads"]
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        try:
            wanted = next(run)
        except StopIteration:
            self._first = self._first or peer.result.difference
            return
        if wanted is None:
            heappush(self._queue, (peer.unix_s, index))
        else:
            self._waiting.setdefault(wanted, []).append(index)

    def _why_missing(self, sender: Life) -> str:
        peer = next((peer for peer in self._peers if peer.life == sender), None)
        if peer is None:
            return "that journal is not here"
        if peer.result.difference is not None:
            return "that replay differs from the live run before it"
        if peer.result.verdict is not Verdict.IDENTICAL:
            return f"that replay could not go on after its record {peer.result.records}"
        cut = "" if peer.file.closed else ", where it was cut short"
        return f"that journal ends before it, after record {peer.result.records}{cut}"


def _prepared(paths: Sequence[Path], stack: ExitStack) -> tuple[list[PeerReplay], tuple[str, ...]]:
    """Prepare the replays of all peers; also return why bits may differ."""
    journals = [_opened(path, stack) for path in paths]
    lives = [Life(head.id, head.incarnation) for _, head in journals]
    if len(set(lives)) < len(lives):
        raise ConfigError("the same journal was given twice")
    warnings: dict[str, None] = {}
    for _, head in journals:
        here = machine(torch.device(_device(head))) | {"threads": head.machine.get("threads")}
        warnings |= dict.fromkeys(differences(head.machine, here))
    store = ShareStore(lives)
    stack.callback(torch.set_num_threads, torch.get_num_threads())
    peers = [PeerReplay(file, head, _device(head), store) for file, head in journals]
    return peers, tuple(warnings)


def _opened(path: Path, stack: ExitStack) -> tuple[JournalFile, Head]:
    try:
        file = stack.enter_context(closing(JournalFile(path)))
    except TrainingError as error:
        raise ConfigError(str(error)) from None
    try:
        return file, Head.from_json(file.head)
    except TrainingError as error:
        raise ConfigError(f"{path}: {error}") from None


def _device(head: Head) -> str:
    named = str(head.training["device"])
    if re.fullmatch(r"cpu|[a-z]+(:\d{1,3})?", named) is None:
        raise ConfigError(f"the journal of {head.id} names no device: {named!r}")
    return named if torch.device(named).type != "cuda" or torch.cuda.is_available() else "cpu"
