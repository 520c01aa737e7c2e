"""HTML that is put together from parts, each escaped unless it is HTML already."""

from collections.abc import Iterable
from html import escape

__all__ = ["Html", "join", "tag"]

_EMPTY = ("br", "col", "input", "link", "meta")


class Html(str):
    """Text that is HTML: it is not escaped again."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: str | float | bool | None) -> Html:
    """An element.

    Args:
        name: Of the element.
        children: What is inside, in order: HTML as it is, other text escaped, None left out.
        attributes: ``class_`` for class, ``data_key`` for data-key. True stands alone, as in
            ``hidden``; None and False are left out.

    >>> tag("a", "1 < 2", href="#x", class_="link")
    '<a href="#x" class="link">1 &lt; 2</a>'
    """
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _EMPTY:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{join(children)}</{name}>")


def join(parts: Iterable[str | None], between: str = "") -> Html:
    """Parts one after another, each escaped unless it is HTML; None is left out."""
    return Html(_safe(between).join(_safe(part) for part in parts if part is not None))


def _safe(part: str) -> str:
    return part if isinstance(part, Html) else escape(str(part), quote=False)


def _attribute(key: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
