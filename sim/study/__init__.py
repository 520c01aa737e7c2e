"""Studies: a grid of simulations, computed side by side, and what came of it.

`read_study` reads what is asked for, `run_study` computes it into a folder, where finished trials
stay whatever happens, and `load_results` reads it from there.
"""

import typing

from ..lazy import be_lazy as _be_lazy

if typing.TYPE_CHECKING:
    from .execution.check import BadCells, InvalidTrials
    from .execution.halving import Rung, halve
    from .execution.plan import StudyPlan, plan_study
    from .execution.runner import StudyProgress, load_results, run_study
    from .metrics import METRICS, Metric
    from .results import CURVES, Result, Results
    from .study import Axis, Cell, Halving, Point, Study, Trial
    from .study_file import built_in_studies, find_study, read_study
    from .tables import write_tables

__all__ = [
    "CURVES",
    "METRICS",
    "Axis",
    "BadCells",
    "Cell",
    "Halving",
    "InvalidTrials",
    "Metric",
    "Point",
    "Result",
    "Results",
    "Rung",
    "Study",
    "StudyPlan",
    "StudyProgress",
    "Trial",
    "built_in_studies",
    "find_study",
    "halve",
    "load_results",
    "plan_study",
    "read_study",
    "run_study",
    "write_tables",
]

_HOMES = {
    "CURVES": "results",
    "METRICS": "metrics",
    "Axis": "study",
    "Halving": "study",
    "Rung": "execution.halving",
    "halve": "execution.halving",
    "BadCells": "execution.check",
    "Cell": "study",
    "InvalidTrials": "execution.check",
    "Metric": "metrics",
    "Point": "study",
    "Result": "results",
    "Results": "results",
    "Study": "study",
    "StudyPlan": "execution.plan",
    "StudyProgress": "execution.runner",
    "Trial": "study",
    "built_in_studies": "study_file",
    "find_study": "study_file",
    "load_results": "execution.runner",
    "plan_study": "execution.plan",
    "read_study": "study_file",
    "run_study": "execution.runner",
    "write_tables": "tables",
}

# Workers compute without what draws up reports.
_be_lazy(__name__, _HOMES)
