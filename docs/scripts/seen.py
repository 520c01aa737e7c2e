"""Run every rule live, replayed and on a bad network, and write the results.

``make seen``, from the root of the repository; it takes about fifteen minutes. Text above the
marker in docs/reference/rules.md is written by hand, and kept.
"""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rumor.gossip.protocol.rule import requirements_of
from rumor.gossip.rules.registry import RULES, make_rule
from rumor.sim import simulate

__all__ = ["MARKER", "PAGE", "line", "main", "settings_of"]

PAGE = Path("docs/reference/rules.md")
MARKER = "<!-- Below, all is written by docs/scripts/seen.py: run `make seen`, do not edit. -->"

HEAD = """\
## What each rule reached

Live: `rumor launch -n 4 --steps 300 --set journal` on digits, replayed to the same bits (but
`seasgd`, whose shared memory no journal records). Loss: `rumor simulate -n 8 --steps 100
--network lossy --set loss=0.15 --set duplicates=0.1`. Every weight was exact. Rules that need it
had `--set momentum=0` or another topology than `exponential`.
"""

COLUMNS = ("rule", "live: accuracy", "MB per peer", "15 % loss: median accuracy")


def main() -> None:
    """Measure everything and write the page."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---|---:|---:|---:|"]
    for name in RULES:
        lines.append(line(name))
        print(lines[-1], file=sys.stderr, flush=True)
    above = PAGE.read_text().partition(MARKER)[0]
    PAGE.write_text("\n".join([above + MARKER, "", HEAD, *lines]) + "\n")


def line(name: str) -> str:
    """Return the results of one rule, as a row of the table."""
    given = settings_of(name)
    cells = (f"`{name}`", *_live(name, given), _on_a_bad_network(name, given))
    return f"| {' | '.join(cells)} |"


def settings_of(name: str) -> dict[str, Any]:
    """Return the settings that a rule needs beyond the defaults."""
    rule = make_rule(name)
    needs = requirements_of(rule)
    given: dict[str, Any] = {"momentum": 0.0} if needs.plain_sgd else {}
    if getattr(needs, "tree", False):
        given["topology"] = "path"
    elif getattr(rule, "both_ways", False):
        given["topology"] = "random-matching" if name == "swap" else "ring"
    return given


def _live(name: str, given: dict[str, Any]) -> list[str]:
    """Return accuracy of the merged model, and megabytes sent per peer; a replay must match."""
    rumor = str(Path(sys.executable).with_name("rumor"))
    options = [f"--{key}={value}" for key, value in given.items()]
    with TemporaryDirectory() as folder:
        run = str(Path(folder) / "run")
        launch = [rumor, "launch", "-n4", "--steps=300", "--json", "--out", run]
        journals = not requirements_of(make_rule(name)).one_machine
        done = subprocess.run(
            [*launch, "--rule", name, *options, *["--set=journal"] * journals],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        summary = json.loads(done.stdout.splitlines()[-1])
        if journals:
            replay = [sys.executable, "-m", "rumor.sim.replay", run]
            subprocess.run(replay, stdout=subprocess.DEVNULL, check=True)
    _audit(name, summary)
    return [f"{summary['accuracy']:.3f}", f"{summary['bytes_sent'] / 4e6:.3g}"]


def _on_a_bad_network(name: str, given: dict[str, Any]) -> str:
    bad: dict[str, Any] = {"network": "lossy", "loss": 0.15, "duplicates": 0.1}
    run = simulate(rule=name, workers=8, steps=100, eval_every=100, **bad, **given)
    _audit(name, run.summary)
    return f"{run.series['accuracy_quantiles'][-1, 2]:.3f}"


def _audit(name: str, summary: dict[str, Any]) -> None:
    """Raise if weight was lost or created."""
    if summary["weight_units_total"] != summary["weight_units_expected"]:
        raise AssertionError(f"{name}: weight is not exact")


if __name__ == "__main__":
    main()
