"""Headlines: the leader of each ranking in a sentence."""

from rumor.sim.study.analysis.verdicts import headlines

from ..made_up import Course, results_of

RULES = ["gosgd", "sgp", "dpsgd"]


def test_a_headline_names_the_leader_and_insignificant_differences() -> None:
    results = results_of({"rule": RULES}, lambda at: Course(rate_s=RULES.index(at["rule"]) + 1.0))
    (line,) = headlines(results)
    assert line.startswith("The lowest mean virtual time to target 0.9 is that of gosgd: ")
    assert "no significant difference" not in line
    alike = results_of({"rule": RULES}, lambda at: Course(noise=0.3))
    assert "; no significant difference from " in headlines(alike)[0]


def test_only_the_first_of_many_rankings_have_a_headline() -> None:
    lines = headlines(results_of({"rule": RULES, "p": [0.1, 0.2, 0.5, 0.7, 1.0]}))
    assert len(lines) == 4 and lines[0].startswith("With p = 0.1, the lowest mean ")
    assert lines[-1] == "And 2 more such rankings."


def test_one_seed_has_a_caveat_and_no_results_have_no_headline() -> None:
    one = headlines(results_of({"rule": RULES}, seeds=1))
    assert one[0].endswith("; with one seed the noise is not known.")
    assert headlines(results_of({"rule": RULES}, lambda at: None)) == ()
