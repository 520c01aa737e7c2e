"""Repeats a live run from its journals, and compares it with the original, bit for bit.

All peers are replayed in this process, record by record in the order of their clocks. A peer that
needs a share waits until the sender's replay has made it, so no clock has to be right.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import torch

from ...gossip.effects.ledger import Life
from ...gossip.errors import ConfigError, TrainingError
from ...train.storage.environment import differences, machine
from ...train.storage.journal import JOURNAL, Head, JournalFile
from .peer import PeerReplay, ShareKey, Shares
from .result import Difference, PeerVerdict, Replay

__all__ = ["PeerVerdict", "Replay", "replay"]


def replay(folder: Path | str, *more: Path | str) -> Replay:
    """Repeat a live run from its journals and compare it with the original, bit for bit, under the
    number of threads of each peer and with torch's global random streams.

    Raises:
        ConfigError: No journal exists, one cannot be read at all, or its task is not available
            here.
    """
    threads = torch.get_num_threads()
    try:
        peers, warnings = _prepared(_find_journals([Path(each) for each in (folder, *more)]))
        first = _run(peers)
    finally:
        torch.set_num_threads(threads)
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


def _run(peers: Sequence[PeerReplay]) -> Difference | None:
    """Replay as far as all journals go; return the first difference found."""
    shares = peers[0].shares
    runs = {peer.life: peer.run() for peer in peers}
    going = {peer.life: peer for peer in peers}
    waiting: dict[Life, ShareKey] = {}
    first: Difference | None = None
    while ready := [
        peer for life, peer in going.items() if life not in waiting or waiting[life] in shares
    ]:
        # The replay that is farthest behind by the calendar: then few shares are stored.
        peer = min(ready, key=lambda peer: peer.unix_s)
        waiting.pop(peer.life, None)
        threads = peer.head.machine["threads"]
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        try:
            wanted = next(runs[peer.life])
        except StopIteration:
            del going[peer.life]
            first = first or peer.result.difference
        else:
            if wanted is not None:
                waiting[peer.life] = wanted
    for life, key in waiting.items():
        runs[life].close()
        going[life].result.why = f"it needs {key}: {_why_missing(peers, key.sender)}"
    return first


def _why_missing(peers: Sequence[PeerReplay], sender: Life) -> str:
    peer = next((peer for peer in peers if peer.life == sender), None)
    if peer is None:
        return "that journal is not here"
    if peer.result.difference is not None:
        return "that replay differs from the live run before it"
    if not peer.result.is_done:
        return f"that replay could not go on after its record {peer.result.records}"
    cut = "" if peer.file.closed else ", where it was cut short"
    return f"that journal ends before it, after record {peer.result.records}{cut}"


def _prepared(paths: Sequence[Path]) -> tuple[list[PeerReplay], tuple[str, ...]]:
    """Prepare the replays of all peers; also return why bits may differ."""
    try:
        files = [JournalFile(path) for path in paths]
    except TrainingError as error:
        raise ConfigError(str(error)) from None
    heads = [file.head for file in files]
    lives = [(head.id, head.incarnation) for head in heads]
    if len(set(lives)) < len(lives):
        raise ConfigError("the same journal was given twice")
    warnings: dict[str, None] = {}
    for head in heads:
        here = machine(torch.device(_device(head))) | {"threads": head.machine.get("threads")}
        warnings |= dict.fromkeys(differences(head.machine, here))
    shares = Shares(lives)
    return [PeerReplay(file, _device(file.head), shares) for file in files], tuple(warnings)


def _device(head: Head) -> str:
    named = str(head.training["device"])
    if re.fullmatch(r"cpu|[a-z]+(:\d{1,3})?", named) is None:
        raise ConfigError(f"the journal of {head.id} names no device: {named!r}")
    return named if torch.device(named).type != "cuda" or torch.cuda.is_available() else "cpu"
