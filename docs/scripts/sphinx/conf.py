"""Settings of Sphinx for `make site`; see docs/scripts/site.py."""

from importlib.metadata import version as installed
from typing import Any

from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring

project = "rumor"
release = version = installed("rumor")
html_show_copyright = False

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "index"
source_suffix = {".md": "markdown"}
exclude_patterns = [".doctrees"]
highlight_language = "text"

# Headings are anchors as on GitHub.
myst_heading_anchors = 4

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 80

html_theme = "furo"
html_title = f"rumor {release}"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"top_of_page_buttons": []}


def _google(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Read docstrings as napoleon does, except fields: it reads text before a colon as type."""
    kind = "method" if what in ("attribute", "data", "property") else what
    config = Config(napoleon_use_rtype=False)
    lines[:] = GoogleDocstring(list(lines), config, app, kind, name, value, options).lines()


def setup(app: Sphinx) -> None:
    """Connect the handler; called by Sphinx."""
    app.connect("autodoc-process-docstring", _google)
