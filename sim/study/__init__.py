"""Studies: a grid of simulations, computed side by side, and what came of it.

`read_study` reads what is asked for, `run_study` computes it into a folder, where finished cells
stay whatever happens, and `load_results` reads it from there.
"""

import typing

from ..lazy import be_lazy as _be_lazy

if typing.TYPE_CHECKING:
    from .built_in_studies import built_in_studies, find_study
    from .check import BadCells
    from .plan import StudyPlan, plan_study
    from .progress import StudyProgress
    from .result import CURVES, Result, Results
    from .runner import load_results, run_study
    from .study import Axis, Cell, Point, Study
    from .study_file import read_study
    from .tables import write_tables

__all__ = [
    "CURVES",
    "Axis",
    "BadCells",
    "Cell",
    "Point",
    "Result",
    "Results",
    "Study",
    "StudyPlan",
    "StudyProgress",
    "built_in_studies",
    "find_study",
    "load_results",
    "plan_study",
    "read_study",
    "run_study",
    "write_tables",
]

_HOMES = {
    "CURVES": "result",
    "Axis": "study",
    "BadCells": "check",
    "Cell": "study",
    "Point": "study",
    "Result": "result",
    "Results": "result",
    "Study": "study",
    "StudyPlan": "plan",
    "StudyProgress": "progress",
    "built_in_studies": "built_in_studies",
    "find_study": "built_in_studies",
    "load_results": "runner",
    "plan_study": "plan",
    "read_study": "study_file",
    "run_study": "runner",
    "write_tables": "tables",
}

# Workers compute without what draws up reports.
_be_lazy(__name__, _HOMES)
