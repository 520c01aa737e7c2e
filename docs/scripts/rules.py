"""Write the list of parameters of rules and filters in docs/reference/rules.md.

``make rules``, from the root of the repository. Text outside the two markers is written by hand,
and kept.
"""

from pathlib import Path

from rumor.gossip.rules.registry import RULES
from rumor.gossip.rules.robust.filters import ROBUST
from rumor.gossip.specs.parameter import Parameter, parameters_of

__all__ = ["BEGIN", "END", "PAGE", "main", "parameters", "rewritten"]

PAGE = Path("docs/reference/rules.md")
BEGIN = (
    "<!-- Down to the next marker all is written by docs/scripts/rules.py: run `make rules`. -->"
)
END = "<!-- Here it ends. -->"


def parameters() -> str:
    """Return the parameters of all rules and robust filters, as a Markdown list."""
    filters = {f"robust={name}": found for name, found in ROBUST.items()}
    # Rules that share a parameter share a line.
    names: dict[str, list[str]] = {}
    for name, rule in {**RULES, **filters}.items():
        for parameter in parameters_of(rule):
            names.setdefault(_described(parameter), []).append(f"`{name}:{parameter.name}`")
    return "\n".join(f"- {', '.join(each)} {described}" for described, each in names.items())


def rewritten(page: str) -> str:
    """Return a page with the current list between its markers."""
    above, _, rest = page.partition(BEGIN)
    _, _, below = rest.partition(END)
    return f"{above}{BEGIN}\n\n{parameters()}\n\n{END}{below}"


def main() -> None:
    """Write the page."""
    PAGE.write_text(rewritten(PAGE.read_text()))


def _described(parameter: Parameter) -> str:
    # A default shows whether values are integers or texts.
    allowed = "" if parameter.allowed == "a string" else f"; {parameter.allowed}"
    allowed = allowed.replace("an integer of ", "").replace("an integer ", "")
    return f"(`{parameter.told_default}`{allowed}): {parameter.help}"


if __name__ == "__main__":
    main()
