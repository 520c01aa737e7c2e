"""Studies: a grid of simulations, computed side by side, and its results.

`read_study` reads a study file, `run_study` computes it into a folder, where finished trials
stay whatever happens, and `load_results` reads the results from there.
"""

from .execution.plan import StudyPlan, plan_study
from .execution.runner import StudyProgress, load_results, run_study
from .results import Results
from .study import Study
from .study_file import built_in_studies, find_study, read_study
from .tables import write_tables

__all__ = [
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
