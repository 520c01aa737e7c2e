"""What a storm came to, as rows of a table: what was measured beside what was predicted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ....gossip import ONE
from ....gossip.weight import from_units, in_units
from ...results import Row
from .figures import Participation, Pause, Returns

__all__ = ["Seen", "Storm", "rows_of"]

_FT_DILOCO = "published, ft-diloco 2026: 32 replicas on one machine, 125 faults an hour"
_PART_PUBLISHED = 16 / 30
_RETURN_PUBLISHED_S = 54.0
_EXCHANGE_PUBLISHED_S = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Figures of one run."""

    participation: Participation
    pause: Pause | None
    returns: Returns
    end_s: float
    """When the last step was taken, seconds."""
    loss: float | None
    """Of the merged model, on all held-out data; None where it was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """All that was measured."""

    peers: int
    batch_size: int
    step_s: float
    """What a step was to last, seconds."""
    p: float
    """Probability of a push at a step."""
    interval_s: float
    total_steps: int
    measured: Seen
    predicted: Seen
    ahead_s: float
    """How long before all trained the prediction was written, seconds."""
    start_s: float
    """What a process's start took in the calibration, seconds."""
    calm: Seen
    """Of the calibration: a few kills, far apart, and nothing else."""
    ledger: Mapping[str, object]
    """Where all weight is, as a launch's summary has it."""
    alone: Mapping[str, float | str]
    """Loss of one process: ``wide``, with the batches of all peers together, and ``long``, with all
    their steps; or why there is none."""
    done: Mapping[str, int]
    """Faults that were done, by kind."""


def rows_of(storm: Storm) -> Iterator[Row]:
    """The table of a storm."""
    yield from _participation(storm)
    yield from _pauses(storm)
    yield from _returns(storm)
    yield from _pace(storm)
    yield from _losses(storm)
    yield _weight(storm.ledger)


def _predicted(storm: Storm) -> str:
    return f"predicted, written {storm.ahead_s:.0f} s before all trained"


def _participation(storm: Storm) -> Iterator[Row]:
    seen, told = storm.measured.participation, storm.predicted.participation
    yield Row(
        name="members taking part",
        ours=seen.took_part,
        reference=told.took_part,
        unit="peers",
        note=f"{_predicted(storm)}; of {seen.alive:.2f} alive ({told.alive:.2f}), in each of "
        f"{seen.intervals} intervals of {storm.interval_s:.3g} s; {seen.least} in the worst "
        f"({told.least})",
    )
    yield Row(
        name="the same, of the alive",
        ours=seen.part,
        reference=_PART_PUBLISHED,
        unit="of 1",
        note=f"{_FT_DILOCO}, 16 of 30 alive took part in each exchange",
    )


def _pauses(storm: Storm) -> Iterator[Row]:
    seen, told, calm = storm.measured.pause, storm.predicted.pause, storm.calm.pause
    if seen is None or told is None:
        return
    quiet = "" if calm is None else f"; {calm.steps:.2f} in the calibration, with a few kills"
    yield Row(
        name="longest pause of a survivor",
        ours=seen.steps,
        reference=told.steps,
        unit="own steps",
        note=f"{_predicted(storm)}; 1 is no pause; {seen.seconds:.3g} s, {seen.id} at "
        f"{seen.at_s:.0f} s{quiet}",
    )
    yield Row(
        name="the same, in seconds",
        ours=seen.seconds,
        reference=_EXCHANGE_PUBLISHED_S,
        unit="s",
        note="published, ft-diloco 2026: a survivor's next exchange after a kill takes 12 to 14 s "
        "in the median, at 2 replicas",
    )


def _returns(storm: Storm) -> Iterator[Row]:
    seen, told = storm.measured.returns, storm.predicted.returns
    if not seen.seconds:
        return
    cut = f"; {seen.cut_short} were struck again or cut off before" if seen.cut_short else ""
    for name, ours, reference in (
        ("victim steps again, median", seen.median_s, told.median_s),
        ("victim steps again, worst", seen.worst_s, told.worst_s),
    ):
        yield Row(
            name=name,
            ours=ours,
            reference=reference,
            unit="s",
            note=f"{_predicted(storm)}, {storm.start_s:.2f} s of it for the start, from the "
            f"calibration; {len(seen.seconds)} starts, by a fork that has imported all{cut}",
        )
    yield Row(
        name="the same, beside",
        ours=seen.worst_s,
        reference=_RETURN_PUBLISHED_S,
        unit="s",
        note="published, ft-diloco 2026: fully back after 54 to 86 s at 2 replicas, 149 s at 32",
    )


def _pace(storm: Storm) -> Iterator[Row]:
    done = ", ".join(f"{count} {kind}" for kind, count in sorted(storm.done.items())) or "nothing"
    yield Row(
        name="time for all steps",
        ours=storm.measured.end_s,
        reference=storm.predicted.end_s,
        unit="s",
        note=f"{_predicted(storm)}; {storm.total_steps:,} steps of all, {storm.step_s:.3g} s each; "
        f"done: {done}",
    )


def _losses(storm: Storm) -> Iterator[Row]:
    loss = storm.measured.loss
    if loss is None:
        return
    if storm.predicted.loss is not None:
        yield Row(
            name="loss of the merged model",
            ours=loss,
            reference=storm.predicted.loss,
            unit="nats",
            note=_predicted(storm),
        )
    wide, many = storm.peers * storm.batch_size, storm.total_steps
    kinds = {
        "wide": f"one process that sees all data, {-(-many // storm.peers):,} steps of {wide}",
        "long": f"one process that sees all data, {many:,} steps of {storm.batch_size}, one after "
        "another",
    }
    for kind, what in kinds.items():
        alone = storm.alone.get(kind)
        if isinstance(alone, str):
            yield Row(name=f"loss beside {kind}", ours=loss, reference=0.0, unit="nats", note=alone)
        elif alone is not None:
            name = f"loss, {'equal steps' if kind == 'wide' else 'all steps in turn'}"
            note = f"{what}: as many samples in all"
            yield Row(name=name, ours=loss, reference=alone, unit="nats", note=note)


def _weight(ledger: Mapping[str, object]) -> Row:
    parts = ("held", "in_flight", "stranded", "burned", "died")
    units = {name: from_units(told) for name, told in ledger.items()}
    accounted, founded = sum(units[name] for name in parts), units["founded"]
    exact = "exact, ==" if accounted == founded else "NOT exact"
    return Row(
        name="weight in all ledgers",
        ours=accounted / ONE,
        reference=founded / ONE,
        unit="founders",
        note=f"what was founded: {exact}; difference in units: {in_units(accounted - founded)}; "
        f"gone with the dead {units['died'] / ONE:.6g}",
    )
