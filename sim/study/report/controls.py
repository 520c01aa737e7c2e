"""What a reader may choose on the page: a row of buttons for few things, a list for many."""

from collections.abc import Iterable, Mapping

from ..study import Axis
from .html import Html, join, tag

__all__ = ["chooser", "facet_bar", "section"]

_BUTTONS_MAX = 5
_LETTERS_MAX = 60


def chooser(name: str, title: str, choices: Mapping[str, str], part: str = "") -> Html:
    """One of several, the first unless chosen otherwise.

    Args:
        name: Of what is chosen; controls of one name make up one value between them.
        title: What to call it.
        choices: What is shown, by its value.
        part: Tells controls of one name apart.
    """
    letters = sum(len(text) for text in choices.values())
    if len(choices) <= _BUTTONS_MAX and letters <= _LETTERS_MAX:
        return _buttons(name, title, choices, part)
    options = (tag("option", text, value=value) for value, text in choices.items())
    return tag(
        "label",
        title,
        tag("select", *options, data_chooses=name, autocomplete="off"),
        class_="picker",
    )


def facet_bar(further: Iterable[Axis]) -> Html | None:
    """Where the reader looks: a point of each further axis. None where there is none."""
    controls = [
        chooser("facet", axis.name, {str(i): label for i, label in enumerate(axis.labels)}, str(at))
        for at, axis in enumerate(further)
    ]
    if not controls:
        return None
    return tag(
        "div", *controls, class_="bar", role="group", aria_label="What all below is shown for",
        hidden=True, data_script=True,
    )  # fmt: skip


def section(key: str, title: str, words: str, *content: Html | None) -> Html:
    """A part of the page with its heading, and a sentence on how to read it."""
    return tag(
        "section",
        tag("h2", title, id=f"{key}-title"),
        tag("p", words),
        *content,
        id=key,
        aria_labelledby=f"{key}-title",
    )


def _buttons(name: str, title: str, choices: Mapping[str, str], part: str) -> Html:
    group = f"{name}-{part}" if part else name
    buttons = [
        tag(
            "label",
            tag("input", type="radio", name=group, value=value, checked=not i, autocomplete="off"),
            tag("span", text),
        )
        for i, (value, text) in enumerate(choices.items())
    ]
    legend = tag("legend", title)
    return tag(
        "fieldset",
        legend,
        tag("div", join(buttons), class_="choices"),
        class_="seg",
        data_chooses=name,
    )
