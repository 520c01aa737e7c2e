"""A small table for notebooks, light or dark."""

from collections.abc import Iterable
from html import escape

__all__ = ["html_table"]

# Colors are the notebook's own: nothing here knows whether it is dark.
_TABLE = "border-collapse:collapse;color:inherit;background:transparent;font-size:90%"
_CAPTION = "caption-side:top;text-align:left;color:inherit;font-weight:bold;padding:4px 8px"
_ROW = "background:transparent;border-top:1px solid rgba(128,128,128,0.35)"
_CELL = "text-align:left;vertical-align:top;color:inherit;padding:3px 8px"
_FAINT = f"{_CELL};font-weight:normal;opacity:0.7"


def html_table(caption: str, rows: Iterable[tuple[str, ...]]) -> str:
    """Make a table of figures, one a row.

    Args:
        caption: Above it; plain text, as all cells are.
        rows: A name, a value and maybe what that means.

    Returns:
        HTML without scripts or classes, in the colors that are there.
    """
    lines = [
        f'<table style="{_TABLE}">',
        f'<caption style="{_CAPTION}">{escape(caption)}</caption>',
    ]
    for name, value, *words in rows:
        cells = [
            f'<th scope="row" style="{_FAINT};white-space:nowrap">{escape(name)}</th>',
            f'<td style="{_CELL}">{escape(value)}</td>',
            *(f'<td style="{_FAINT}">{escape(text)}</td>' for text in words),
        ]
        lines.append(f'<tr style="{_ROW}">{"".join(cells)}</tr>')
    return "\n".join([*lines, "</table>"])
