"""Who leads, in a sentence for each place."""

from rumor.sim.study.analysis.verdicts import headlines

from ..made_up import Course, results_of

RULES = ["gosgd", "sgp", "dpsgd"]


def test_the_first_is_named_with_its_figure_and_who_is_not_told_apart() -> None:
    results = results_of({"rule": RULES}, lambda at: Course(rate_s=RULES.index(at["rule"]) + 1.0))
    (line,) = headlines(results)
    assert line.startswith("The lowest mean virtual time to target 0.9 is that of gosgd: ")
    assert "no significant difference" not in line
    alike = results_of({"rule": RULES}, lambda at: Course(noise=0.3))
    assert "; no significant difference from " in headlines(alike)[0]


def test_of_many_places_the_first_have_a_line() -> None:
    lines = headlines(results_of({"rule": RULES, "p": [0.1, 0.2, 0.5, 0.7, 1.0]}))
    assert len(lines) == 4 and lines[0].startswith("With p = 0.1, the lowest mean ")
    assert lines[-1] == "And 2 more such rankings."


def test_what_cannot_be_compared_is_told() -> None:
    one = headlines(results_of({"rule": RULES}, seeds=1))
    assert one[0].endswith("; with one seed the noise is not known.")
    assert headlines(results_of({"rule": RULES}, lambda at: None)) == ()
