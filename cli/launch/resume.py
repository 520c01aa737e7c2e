"""How the lives of a peer ended that were over before its run goes on."""

import os
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from ...gossip.errors import ConfigError
from ...gossip.protocol.rule import requirements_of
from ...gossip.rules.registry import make_rule
from ...train.storage.files import read_json
from ...train.storage.ledger_file import ledger_paths
from ..run_folder import require_trust
from ..settings.exchange import ExchangeConfig
from ..settings.options import option
from .config import LaunchConfig
from .folder import Place, RunFolder
from .monitor import Life, LifeEnd, Monitor, State, Tail, life_in, read_report

__all__ = [
    "CHANGEABLE",
    "Resumption",
    "life_ends_of",
    "lives_before",
    "read_life_ends",
    "read_run",
    "require_over",
]


def read_life_ends(out: Path) -> dict[Life, LifeEnd]:
    """What the summary of a run says of each life; nothing where there is none to read.

    Args:
        out: The run's folder.
    """
    # Of another version, or cut off: what it would say is then told in fewer words.
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        summary = read_json(out / "summary.json")
        told = [
            (frozenset((peer["id"], int(number)) for number in end["incarnations"]), end)
            for peer in summary["peers_detail"]
            for end in peer.get("ends", ())
        ]
        ends = [
            LifeEnd(
                state=State(end["state"]), why=end["why"] or "", step=int(end["step"]), lives=lives
            )
            for lives, end in told
        ]
        return {life: end for end in ends for life in end.lives}
    return {}


def lives_before(out: Path, places: Sequence[Place]) -> dict[int, list[LifeEnd]]:
    """How the lives of the peers of a run ended, by their index, before any begins again."""
    told = read_life_ends(out)
    been = [place for place in places if ledger_paths(place.folder)]
    return {place.index: life_ends_of(place, told) for place in been}


def life_ends_of(place: Place, told: Mapping[Life, LifeEnd]) -> list[LifeEnd]:
    """How each life of a peer ended, the first one first.

    What its launcher saw is believed before what the peer said at its end; of a life of which
    neither is kept, the last step that it measured is all that is known.

    Args:
        place: Of its last life, as that left it.
        told: What summaries say.
    """
    ends: list[LifeEnd] = []
    step = 0
    for folder in (*place.earlier, place.folder):
        lives = [life_in(path) for path in ledger_paths(folder)]
        said = dict(_said_in(folder, lives))
        measured = _measured_in(folder, lives)
        for life in filter(None, lives):
            # A life that measured nothing stood where the one before it had.
            step = measured.get(life, step)
            silent = LifeEnd(state=State.KILLED, why="", step=step, lives=frozenset({life}))
            ends.append(told.get(life) or said.get(life) or silent)
    if ends:
        return ends
    report = read_report(place.folder)
    nothing = frozenset[Life]()
    if report is None:
        return [LifeEnd(state=State.KILLED, why="", step=0, lives=nothing)]
    return [_as_said(report, nothing)]


def _said_in(folder: Path, lives: list[Life | None]) -> Iterator[tuple[Life, LifeEnd]]:
    """What lives said themselves of their ends, as far as it has not been written over."""
    for name in ("former.peer.json", "peer.json"):
        report = read_report(folder, name)
        if report is not None:
            # It counts the ledgers that there were when it was written.
            position = int(report.get("lives", len(lives))) - 1
            life = lives[position] if 0 <= position < len(lives) else None
            if life is not None:
                yield life, _as_said(report, frozenset({life}))


def _as_said(report: Mapping[str, Any], lives: frozenset[Life]) -> LifeEnd:
    return LifeEnd(
        state=State(report["state"]),
        why=report.get("error") or "",
        step=int(report.get("steps", 0)),
        lives=lives,
    )


def _measured_in(folder: Path, lives: list[Life | None]) -> dict[Life, int]:
    """The last step that each life in a folder measured."""
    known = [life for life in lives if life is not None]
    # A life is named by the millisecond in which it began.
    began_s = [number / 1000 for _, number in known]
    steps: dict[Life, int] = {}
    for row in Tail(folder / "metrics.jsonl").rows():
        position = bisect_right(began_s, row.get("unix_s", float("inf"))) - 1
        if known:
            steps[known[max(0, position)]] = int(row.get("step", 0))
    return steps


CHANGEABLE: Final = (
    *("steps", "total_steps", "lr", "lr_schedule", "linger_s", "leave_s"),
    *("log_every", "eval_every", "eval_average_every", "checkpoint_every"),
)
"""Settings that a run may go on with changed; peers are told those that were typed."""

_NAMED_MAX: Final = 4
"""Peers that an error names one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """A run as it was, and what is left of each of its peers."""

    config: LaunchConfig
    """As it was started, but for what is changed now."""

    places: tuple[Place, ...]
    """Of the last life of each peer, in their order."""

    changes: tuple[str, ...]
    """Options that peers are told beside what they kept."""

    ends: Mapping[str, Sequence[LifeEnd]]
    """How the lives of each peer ended, by its name."""

    def again(self, run_folder: RunFolder, config: LaunchConfig) -> list[Place]:
        """Make a place for the next life of each peer.

        Args:
            run_folder: Of the run that goes on.
            config: Of the same.
        """
        changes = self.changes
        if config.exchange.no_shared_memory:
            changes = (*changes, "--no-shared-memory")
        return [run_folder.next_life(place, kept=True, changes=changes) for place in self.places]

    def remind(self, monitor: Monitor) -> None:
        """Tell who watches the run what its peers were before."""
        for index, place in enumerate(self.places):
            for end in self.ends[place.id]:
                monitor.recall(index, end)


def read_run(out: Path, typed: Mapping[str, Any], *, trust: bool = False) -> Resumption:
    """Read what a run was, from what its peers left.

    Args:
        out: The run's folder.
        typed: Settings that are to be others from now on, by name.
        trust: Whether to import whatever code it names, see `require_trust`.

    Raises:
        ConfigError: There is no run, some of its peers still run, or it cannot go on with that.
    """
    if refused := sorted(set(typed) - {*CHANGEABLE, "faults", "loggers"}):
        allowed = ", ".join(map(option, CHANGEABLE))
        raise ConfigError(
            f"{option(refused[0])} cannot be changed with --resume: a run goes on as it was, "
            f"but for {allowed}"
        )
    folders = _folders(out)
    require_over(out, folders)
    kept = {id: _options(several[-1]) for id, several in folders.items()}
    files = {folders[id][-1] / "options.json": options for id, options in kept.items()}
    require_trust(out, files, typed, trust=trust)
    places = [
        Place(
            index=kept[id]["index"] if not id.startswith("join-") else len(folders),
            id=id,
            folder=several[-1],
            command=(),
            earlier=tuple(several[:-1]),
        )
        for id, several in folders.items()
    ]
    places.sort(key=lambda place: (place.index, place.id))
    places = [replace(place, index=index) for index, place in enumerate(places)]
    first = kept[places[0].id]
    _require_resumable(out, places, str(first.get("rule", "gosgd")))
    changes = {name: value for name, value in typed.items() if name in CHANGEABLE}
    told = read_life_ends(out)
    return Resumption(
        # The launcher logs, and has kept no options: what is typed now counts.
        config=replace(_config(out, first | changes), loggers=tuple(typed.get("loggers") or ())),
        places=tuple(places),
        changes=tuple(f"{option(name)}={value}" for name, value in changes.items()),
        ends={place.id: life_ends_of(place, told) for place in places},
    )


def require_over(out: Path, folders: Mapping[str, Sequence[Path]]) -> None:
    """See that no peer of a run has outlived its launcher: its next life could not begin.

    Args:
        out: The run's folder.
        folders: Those of each peer, by its name.

    Raises:
        ConfigError: One still runs; it says how to stop it.
    """
    from ...train.storage.incarnation import is_locked

    running = [
        (id, folder)
        for id, several in sorted(folders.items())
        for folder in several
        if is_locked(folder)
    ]
    if not running:
        return
    pids = {id: pid for id, folder in running if (pid := _process_in(folder)) is not None}
    named = [id + (f" (process {pids[id]})" if id in pids else "") for id, _ in running]
    if len(named) > _NAMED_MAX:
        named[_NAMED_MAX:] = [f"{len(named) - _NAMED_MAX} more"]
    who = " and ".join(filter(None, [", ".join(named[:-1]), named[-1]]))
    run, them = ("still runs", "it") if len(running) == 1 else ("still run", "them")
    how = f" with `kill {' '.join(map(str, pids.values()))}`" if pids else ""
    raise ConfigError(
        f"--resume {out}: {who} {run}: wait until the end, or stop {them}{how}; nothing was touched"
    )


def _process_in(folder: Path) -> int | None:
    """The process of a peer that runs, if it is the one that a launcher started there."""
    from ...train.storage.incarnation import is_held_by

    try:
        pid = int((folder / "pid").read_text())
    except (OSError, ValueError):
        return None
    return pid if is_held_by(folder, pid) else None


def _require_resumable(out: Path, places: Sequence[Place], rule: str) -> None:
    from ...train.config import CHECKPOINTS

    if not any(any((place.folder / CHECKPOINTS).glob("*.safetensors")) for place in places):
        raise ConfigError(
            f"--resume {out}: none of its peers has a checkpoint (--checkpoint-every), so that "
            "nothing could go on: start the run again"
        )
    if requirements_of(make_rule(rule)).fixed_members:
        raise ConfigError(
            f"--resume {out}: a swarm that trains with {rule} takes nobody in once it has started, "
            "so that no peer of it can resume: start the run again"
        )


def _folders(out: Path) -> dict[str, list[Path]]:
    """The folders of each peer, those of earlier lives first."""
    from ...train.runtime.peer_folder import peer_folders

    found = peer_folders((out / "peers").glob("*/options.json"))
    if not os.path.isdir(out):
        raise ConfigError(f"--resume {out}: there is no such folder")
    if not found:
        raise ConfigError(
            f"--resume {out}: this is not the folder of a run that `rumor launch` made"
        )
    return found


def _options(folder: Path) -> dict[str, Any]:
    path = folder / "options.json"
    try:
        options = read_json(path)
        if not isinstance(options, dict) or not isinstance(options.get("index"), int):
            raise ValueError("not the options of a peer")
    except (OSError, ValueError) as error:
        raise ConfigError(f"--resume: {path} cannot be read: {error}") from None
    return options


def _config(out: Path, options: Mapping[str, Any]) -> LaunchConfig:
    def of(owner: type[Any], without: Collection[str] = ()) -> dict[str, Any]:
        names = {entry.name for entry in fields(owner)} - set(without)
        return {name: options[name] for name in names & set(options)}

    # How long a step lasts is each peer's own affair, and it has kept it.
    own = of(LaunchConfig, ("exchange", "out", "step_s_min", "journal", "faults"))
    own |= {name: Path(own[name]) for name in ("key", "roster") if own.get(name)}
    exchange = ExchangeConfig(**of(ExchangeConfig))
    try:
        return LaunchConfig(**own, peers=options["count"], exchange=exchange, out=out)
    except (TypeError, LookupError) as error:
        raise ConfigError(f"--resume {out}: it is of another version of rumor: {error}") from None
