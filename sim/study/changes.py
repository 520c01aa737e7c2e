"""What the axes behind the first change, in a sentence."""

from collections.abc import Sequence
from typing import Final

from .effects import Effect, effect, effects
from .naming import instead, named, place
from .result import Results
from .words import MINUS, listed, number, times

__all__ = ["changes"]

# Factors nearer to 1 than this are called the same.
_SAME: Final = 1.02

_AXES_MAX: Final = 2

# With so many points each is said in full.
_POINTS_MAX: Final = 3

_NAMES_MAX: Final = 4


def changes(results: Results) -> str:
    """Say what each axis behind the first does; where there are several, the most that each does.

    Args:
        results: Of a study with more than one axis.
    """
    axes = results.study.axes[1 : 1 + _AXES_MAX]
    if len(axes) == 1 and len(axes[0].points) > _POINTS_MAX:
        text = _summed_up(effects(results, axes[0]), results)
    elif len(axes) == 1:
        text = "; ".join(_said(one, results) for one in effects(results, axes[0]))
    else:
        largest = [effect(results, axis) for axis in axes]
        text = "; ".join(_said(one, results) for one in largest if one is not None)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _summed_up(found: Sequence[Effect], results: Results) -> str:
    """Many points of an axis in a row, each with its mean."""
    if not found:
        return ""
    axis, start = found[0].axis, found[0].start
    clauses = []
    for name in dict.fromkeys(one.measure.name for one in found):
        alike = [one for one in found if one.measure.name == name]
        sizes = [_short(one) for one in alike]
        clauses.append(f"{_whole(alike[0], results)} {listed(sizes, len(sizes))}")
    largest = max(found, key=lambda one: abs(one.overall.mean))
    extremes = _extremes(largest, results)
    if extremes and not largest.is_noise:
        clauses.append(f"{place({axis: largest.end})} does most, {extremes}")
    lost = [f"by {_names(one.lost, results)} ({named(axis, one.end)})" for one in found if one.lost]
    if lost:
        clauses.append(f"the target is no longer always reached {', '.join(lost)}")
    doubt = " (one seed: which part is noise cannot be told)" if largest.overall.pairs < 2 else ""
    return f"against {place({axis: start})}, {'; '.join(clauses)}{doubt}"


def _short(found: Effect) -> str:
    noise = ", maybe noise" if found.is_noise else ""
    where = f"({named(found.axis, found.end)}{noise})"
    if found.measure.is_ratio:
        return f"{number(found.size, 2)} {where}"
    if found.measure.name != "accuracy":
        return f"{number(found.size, 2).replace('-', MINUS)} {where}"
    return f"{number(100 * found.size, 2).replace('-', MINUS)} percentage points {where}"


def _whole(found: Effect, results: Results) -> str:
    what = f"the {found.measure.words}"
    if found.measure.curve is not None:
        what = f"the time to accuracy {number(results.study.target)}"
    verb = "is multiplied in the mean by" if found.measure.is_ratio else "moves in the mean by"
    return f"{what} {verb}"


def _said(found: Effect, results: Results) -> str:
    where = instead(found.axis, found.end, found.start)
    doubt = " (one seed: which part is noise cannot be told)" if found.overall.pairs < 2 else ""
    return f"with {where}, {_change_said(found, results)}{_moved(found, results)}{doubt}"


def _change_said(found: Effect, results: Results) -> str:
    doubt = ", which may be noise" if found.is_noise else ""
    if found.measure.curve is not None:
        ratio = _times(found, "long")
        said = f"accuracy {number(results.study.target)} takes {ratio}"
    elif found.measure.name == "accuracy":
        direction = "lower" if found.size < 0 else "higher"
        points = f"{number(100 * abs(found.size), 2)} percentage points"
        said = f"the final accuracy is {points} {direction}"
    elif found.measure.is_ratio:
        said = f"the {found.measure.words} is {_times(found, 'large')}"
    else:
        direction = "smaller" if found.size < 0 else "larger"
        size = f"{number(abs(found.size), 2)} {direction}" if found.size else "just as large"
        said = f"the {found.measure.words} is {size}"
    return f"{said}{_range(found, results)}{doubt}"


def _times(found: Effect, word: str) -> str:
    if 1 / _SAME < found.size < _SAME:
        return f"about as {word}"
    return f"{times(found.size)} as {word}"


def _range(found: Effect, results: Results) -> str:
    """That it is a mean, and of what."""
    if len(found.by) < 2:
        return ""
    extremes = _extremes(found, results)
    return f" on average, {extremes}" if extremes else " on average"


def _extremes(found: Effect, results: Results) -> str:
    """From whom it changes least to whom it changes most."""
    axis = results.study.axes[0].name
    sizes = dict(found.by)
    if not found.measure.is_ratio:
        # It was said already whether it is lower or higher.
        sign = -1 if found.size < 0 else 1
        unit = 100 if found.measure.name == "accuracy" else 1
        sizes = {label: unit * sign * value for label, value in found.by.items()}
    low, high = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
    least, most = (number(sizes[label], 2).replace("-", MINUS) for label in (low, high))
    if least == most:
        return ""
    return f"from {least} for {named(axis, low)} to {most} for {named(axis, high)}"


def _moved(found: Effect, results: Results) -> str:
    """Who is lost to the target, and who is won."""
    parts = []
    if found.lost:
        if set(found.lost) >= set(results.study.axes[0].labels):
            parts.append("none gets there with every seed any more")
        else:
            verb = "gets" if len(found.lost) == 1 else "get"
            parts.append(f"{_names(found.lost, results)} no longer always {verb} there")
    if found.gained:
        verb = "gets" if len(found.gained) == 1 else "get"
        parts.append(f"only then {_names(found.gained, results)} always {verb} there")
    return f", and {' and '.join(parts)}" if parts else ""


def _names(labels: Sequence[str], results: Results) -> str:
    axis = results.study.axes[0].name
    return listed([named(axis, label) for label in labels], _NAMES_MAX)
