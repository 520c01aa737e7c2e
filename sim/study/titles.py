"""What to call who is first, and why it is that which is compared."""

from collections.abc import Sequence
from typing import Final

from .comparison import Comparison
from .naming import named
from .words import listed, number, uncapitalized

__all__ = ["head_of", "headed", "reason", "title"]

_NAMES_MAX: Final = 3


def title(comparison: Comparison) -> str:
    """What to call the first."""
    name = comparison.measure.name
    if name == "time_to_target_s":
        target = number(comparison.target)
        rows = comparison.rows
        if len(rows) > 1 and sum(row.always_reached for row in rows) == 1:
            if comparison.is_waiting:
                return f"Of those with results of all seeds, the first at accuracy {target}"
            return f"The only one to reach accuracy {target} with every seed"
        return f"The fastest to accuracy {target}"
    titles = {
        "accuracy": "The most accurate at the end",
        "loss": "The one with the lowest loss at the end",
    }
    return titles.get(name, "The one whose workers agree best at the end")


def head_of(found: Sequence[Comparison]) -> str:
    """A title that fits all of several places, or the first where none fits all."""
    if not any(row.reached for comparison in found for row in comparison.rows):
        return headed(found[0])
    titles = {title(comparison) for comparison in found}
    alike = len({comparison.measure.name for comparison in found}) == 1
    if len(titles) > 1 and alike and found[0].measure.curve is not None:
        return f"The fastest to accuracy {number(found[0].target)}"
    return title(found[0])


def headed(comparison: Comparison) -> str:
    """The title, behind why it is not the time to the target that is compared."""
    said = title(comparison)
    if comparison.measure.name != "accuracy":
        return said
    target = number(comparison.target)
    reached = [row for row in comparison.rows if row.reached]
    if not reached:
        return f"Nothing reaches accuracy {target}; {uncapitalized(said)}"
    names = listed([named(comparison.axis, row.label) for row in reached], _NAMES_MAX)
    verb = "does" if len(reached) == 1 else "do"
    return (
        f"Nothing reaches accuracy {target} with every seed, {names} {verb} "
        f"with some; {uncapitalized(said)}"
    )


def reason(comparison: Comparison) -> str:
    """Why it is not the time to the target that is compared at a place, in a clause."""
    if comparison.measure.name != "accuracy":
        return ""
    reached = any(row.reached for row in comparison.rows)
    return "where none gets there with every seed, " if reached else "where none gets there, "
