"""What a reader may choose on the page: a row of buttons for few things, a list for many."""

from collections.abc import Iterable, Mapping

from ..study import Axis
from .html import Html, join, tag

__all__ = ["bar", "chooser", "section"]

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


def bar(further: Iterable[Axis], sections: Mapping[str, str]) -> Html:
    """What stays in sight: where the reader looks, and the way to every section.

    Args:
        further: Axes of which all that follows shows one point.
        sections: What to call each section, by its key.
    """
    controls = [
        chooser("facet", axis.name, {str(i): label for i, label in enumerate(axis.labels)}, str(at))
        for at, axis in enumerate(further)
    ]
    links = (tag("a", title, href=f"#{key}") for key, title in sections.items())
    group = tag(
        "div", *controls, class_="where", role="group", aria_label="What all below is shown for"
    )
    return tag(
        "div",
        group if controls else None,
        tag("nav", *links, aria_label="Sections"),
        class_="bar",
        hidden=True,
        data_script=True,
    )


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
