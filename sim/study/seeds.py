"""Which seeds a group should have results of."""

from collections.abc import Mapping

from .result import Results

__all__ = ["seeds_tried"]


def seeds_tried(results: Results, at: Mapping[str, str]) -> dict[tuple[str, ...], frozenset[int]]:
    """For every group that the study has cells for at a place, the seeds that it should have.

    Seeds that nobody there has a result of, and that failed for nobody, have not been run yet,
    and are left out.

    Args:
        results: Of a study.
        at: Labels on some of its axes.
    """
    asked: dict[tuple[str, ...], set[int]] = {}
    tried = {result.cell.seed for result in results.where(**at).results}
    for cell in results.study.cells():
        if all(cell.labels[axis] == label for axis, label in at.items()):
            asked.setdefault(cell.group, set()).add(cell.seed)
            if str(cell) in results.failures:
                tried.add(cell.seed)
    return {group: frozenset(seeds & tried) for group, seeds in asked.items()}
