"""Write the table of parameters of rules and filters in docs/reference/rules.md.

``make rules``, from the root of the repository. Text outside the two markers is written by hand,
and kept.
"""

from pathlib import Path

from rumor.gossip.rules.registry import RULES
from rumor.gossip.rules.robust.filters import ROBUST
from rumor.gossip.specs.parameter import Parameter, parameters_of

__all__ = ["BEGIN", "END", "PAGE", "main", "rewritten", "table"]

PAGE = Path("docs/reference/rules.md")
BEGIN = (
    "<!-- Down to the next marker all is written by docs/scripts/rules.py: run `make rules`. -->"
)
END = "<!-- Here it ends. -->"


def table() -> str:
    """Return the parameters of all rules and robust filters, as Markdown."""
    rows = ["| rule | parameter | values | default | |", "|---|---|---|---|---|"]
    filters = {f"robust={name}": found for name, found in ROBUST.items()}
    for name, rule in {**RULES, **filters}.items():
        parameters = parameters_of(rule)
        rows += [_row(name, parameter) for parameter in parameters]
        if not parameters:
            rows.append(f"| `{name}` | none | | | |")
    return "\n".join(rows)


def rewritten(page: str) -> str:
    """Return a page with the current table between its markers."""
    above, _, rest = page.partition(BEGIN)
    _, _, below = rest.partition(END)
    return f"{above}{BEGIN}\n\n{table()}\n\n{END}{below}"


def main() -> None:
    """Write the page."""
    PAGE.write_text(rewritten(PAGE.read_text()))


def _row(rule: str, parameter: Parameter) -> str:
    default = f"`{parameter.told_default}`"
    cells = (f"`{rule}`", f"`{parameter.name}`", parameter.allowed, default, parameter.help)
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
