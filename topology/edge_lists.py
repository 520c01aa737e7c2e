"""Edge lists: text files with a link on each line."""

import csv
import io
import re
from ast import literal_eval
from collections.abc import Iterator, Mapping
from pathlib import Path

import networkx as nx

__all__ = ["read_csv", "read_edge_list"]

_HEADERS = (("source", "target"), ("from", "to"))

# What is quoted, or a comment outside of that.
_QUOTED_OR_COMMENT = re.compile(r'("[^"]*")|#.*')

Data = Mapping[str, object]


def read_edge_list(path: Path) -> nx.Graph:
    """Read lines ``a b``, ``a b weight``, or ``a b {'weight': 2.0}`` as networkx writes them.

    Args:
        path: A file in UTF-8; what follows a ``#`` is a comment.

    Returns:
        An undirected graph, weights as they were written.

    Raises:
        ValueError: A line is something else; the message tells which one.
        OSError: The file cannot be read.
    """
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    return _graph((number, *_words(line, number)) for number, line in enumerate(lines, 1))


def read_csv(path: Path) -> nx.Graph:
    """Read lines ``a,b`` or ``a,b,weight``, with a header ``source,target`` or without.

    Args:
        path: A file in UTF-8. Names may be quoted; what follows a ``#`` elsewhere is a comment.

    Returns:
        An undirected graph, weights as they were written.

    Raises:
        ValueError: A line is something else; the message tells which one.
        OSError: The file cannot be read.
    """
    text = path.read_text(encoding="utf-8-sig")
    text = _QUOTED_OR_COMMENT.sub(lambda found: found[1] or "", text)
    return _graph(_records(text))


def _words(line: str, number: int) -> tuple[list[str], Data]:
    """Names of a line, and what it says of their link."""
    words = line.split(maxsplit=2)
    if len(words) == 3 and words[2].startswith("{") and "#" not in words[0] + words[1]:
        return words[:2], _attributes(words[2], number)
    words = line.partition("#")[0].split()
    if len(words) in (0, 2, 3) and not any(_has_comma(word) for word in words[:2]):
        return words[:2], _weight(words)
    hint = ": with commas between, it is a .csv" if "," in line else ""
    raise ValueError(f"line {number} is not 'a b' or 'a b weight'{hint}")


def _has_comma(word: str) -> bool:
    return word.startswith(",") or word.endswith(",")


def _weight(words: list[str]) -> Data:
    return {"weight": words[2]} if len(words) == 3 else {}


def _attributes(text: str, number: int) -> Data:
    try:
        data = literal_eval(text)
    except (ValueError, SyntaxError):
        data = None
    if not isinstance(data, dict):
        raise ValueError(f"line {number}: {text} does not say what the link has")
    return {str(key): value for key, value in data.items()}


def _records(text: str) -> Iterator[tuple[int, list[str], Data]]:
    """Lines of CSV: number, names, and what they say of their link."""
    reader = csv.reader(io.StringIO(text), skipinitialspace=True, strict=True)
    is_first = True
    for fields in reader:
        words = [field.strip() for field in fields]
        # Spreadsheets give all lines as many fields as the longest one has.
        while words and not words[-1]:
            words.pop()
        if not words:
            continue
        if ";" in words[0]:
            raise ValueError(f"line {reader.line_num}: commas are expected between fields, not ;")
        if len(words) not in (2, 3):
            raise ValueError(f"line {reader.line_num} is not 'a,b' or 'a,b,weight'")
        if not (is_first and _is_header(words)):
            yield reader.line_num, words[:2], _weight(words)
        is_first = False


def _is_header(words: list[str]) -> bool:
    first, second, *rest = (word.lower() for word in words)
    return (first, second) in _HEADERS and rest in ([], ["weight"])


def _graph(lines: Iterator[tuple[int, list[str], Data]]) -> nx.Graph:
    graph = nx.Graph()
    given = set()
    for number, names, data in lines:
        if not names:
            continue
        a, b = names
        if not a or not b:
            raise ValueError(f"line {number} has an empty name")
        if (a, b) in given:
            raise ValueError(f"line {number} links {a} and {b} again")
        if (b, a) in given:
            raise ValueError(
                f"line {number} links {a} and {b} again, the other way round: edge lists are "
                "undirected, one line stands for both ways"
            )
        given.add((a, b))
        graph.add_edge(a, b)
        # Not as keywords: an attribute may be called anything.
        graph.edges[a, b].update(data)
    return graph
